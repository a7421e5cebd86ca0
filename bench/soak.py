"""Mixed traffic for a while: whether memory and open files stay flat, and whom something kept waiting.

python -m bench.soak [STREAMS] [IDLE] [CASSETTES]

`MINUTES` (3) is how long. The clients called streams record and replay in mode auto, in one cassette
after the other; half of the answers are streams of 20 events. Each client thinks for two seconds on
average before it asks again: without that, the server is never idle, and a wait is the length of its
queue. Idle connections ask nothing; the admin API ejects, rewinds and reports meanwhile. A line for
every ten seconds: requests, wrong answers, memory, open files, and the longest wait of a client of
/healthz.
"""

import asyncio
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from bench.heartbeat import Heartbeat, Server

_EVERY_S = 10.0
_QUESTIONS = 20
_THINK_S = 2.0
_EVENTS, _EVENT_EVERY_S = 20, 0.02
_EVENT = b'data: {"choices":[{"delta":{"content":"hello "}}]}\n\n'
_ANSWER = b'{"choices":[{"message":{"role":"assistant","content":"hello"}}]}'
_SHOWN = 10
"""Of wrong answers, so many are printed."""


@dataclass(slots=True)
class Counts:
    """What was asked, and what was not answered as it should be."""

    requests: int = 0
    wrong: int = 0

    def add_wrong(self, what: str) -> None:
        """Count it, and print it if it is one of the first."""
        self.wrong += 1
        if self.wrong <= _SHOWN:
            print(what, flush=True)


async def _answer(request: web.Request) -> web.StreamResponse:
    if not (await request.json()).get("stream"):
        return web.Response(body=_ANSWER, content_type="application/json")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for _ in range(_EVENTS):
        await response.write(_EVENT)
        await asyncio.sleep(_EVENT_EVERY_S)
    await response.write(b"data: [DONE]\n\n")
    return response


async def _serve(ready: Connection) -> None:
    app = web.Application()
    app.router.add_post("/{path:.*}", _answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    ready.send(runner.addresses[0][1])
    await asyncio.Event().wait()


@contextmanager
def upstream() -> Iterator[str]:
    """A service on loopback, in a process of its own."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(
        target=lambda: asyncio.run(_serve(theirs)), name="upstream", daemon=True
    )
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.kill()


async def stream(
    client: aiohttp.ClientSession, server: Server, cassettes: int, until: float, counts: Counts
) -> None:
    """One client that asks one question after another."""
    while time.monotonic() < until:
        await asyncio.sleep(random.uniform(0, 2 * _THINK_S))
        name, number = f"c{random.randrange(cassettes)}", random.randrange(_QUESTIONS)
        question = {
            "model": "m",
            "stream": bool(number % 2),
            "messages": [{"role": "user", "content": number}],
        }
        url = f"{server.proxy}/@{name}/v1/chat/completions"
        async with client.post(url, json=question) as answer:
            text = await answer.text()
        counts.requests += 1
        if answer.status != 200 or text.count("hello") != (_EVENTS if number % 2 else 1):
            counts.add_wrong(f"{name}: {answer.status} {text[:200]}")


async def administer(server: Server, cassettes: int, until: float, counts: Counts) -> None:
    """Somebody who ejects, rewinds and looks."""
    async with aiohttp.ClientSession(f"{server.admin}/") as client:
        while time.monotonic() < until:
            name = f"c{random.randrange(cassettes)}"
            for path, body in (("eject", {"cassette": name}), ("rewind", {"cassette": name})):
                async with client.post(f"api/v1/{path}", json=body) as answer:
                    if answer.status not in (200, 409):
                        counts.add_wrong(f"{path} {name}: {answer.status}")
            async with client.get("api/v1/status") as answer:
                await answer.read()
            await asyncio.sleep(0.5)


async def watch(server: Server, heartbeat: Heartbeat, until: float, counts: Counts) -> None:
    """Print how it goes."""
    started, process = time.monotonic(), Path(f"/proc/{server.process.pid}")
    while time.monotonic() < until:
        await asyncio.sleep(_EVERY_S)
        pages = int((process / "statm").read_text().split()[1])
        waited = await asyncio.to_thread(heartbeat.longest)
        print(
            f"{time.monotonic() - started:6.0f} s  {counts.requests:8d} requests  "
            f"{counts.wrong} wrong  {pages * os.sysconf('SC_PAGE_SIZE') >> 20:5d} MiB  "
            f"{len(list((process / 'fd').iterdir())):5d} files  longest wait {waited.longest_ms:7.1f} ms, "
            f"its own {waited.own_ms:6.1f} ms",
            flush=True,
        )


async def soak(server: Server, streams: int, idle: int, cassettes: int, seconds: float) -> Counts:
    """Everything at once."""
    counts, until = Counts(), time.monotonic() + seconds
    place = urlsplit(server.proxy)
    opened = [await asyncio.open_connection(place.hostname, place.port) for _ in range(idle)]
    heartbeat = Heartbeat(server.admin, server.process.pid)
    unlimited = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=unlimited) as client, asyncio.TaskGroup() as tasks:
        for _ in range(streams):
            tasks.create_task(stream(client, server, cassettes, until, counts))
        tasks.create_task(administer(server, cassettes, until, counts))
        tasks.create_task(watch(server, heartbeat, until, counts))
    heartbeat.stop()
    for _, writer in opened:
        writer.close()
    return counts


def main(streams: int = 500, idle: int = 1000, cassettes: int = 2000) -> None:
    """Start tapeway in front of a service and put it under load."""
    seconds = 60 * float(os.environ.get("MINUTES") or 3)
    with tempfile.TemporaryDirectory() as folder, upstream() as service:
        server = Server(folder, service, "--mode", "auto")
        try:
            counts = asyncio.run(soak(server, streams, idle, cassettes, seconds))
        finally:
            server.stop()
    sys.exit(1 if counts.wrong else 0)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
