"""Mixed traffic for a while: whether memory and open files stay flat, and whom something kept waiting.

python -m soak.traffic [STREAMS] [IDLE] [CASSETTES]

`MINUTES` (3) is how long. The clients called streams record and replay in mode auto, in one cassette
after the other; half of the answers are streams of 20 events. Each client thinks for two seconds on
average before it asks again: without that, the server is never idle, and a wait is the length of its
queue. Idle connections ask nothing; the admin API ejects, rewinds and reports meanwhile. Beside these:

- Some clients ask for what a cassette in mode replay does not hold, under ever new paths.
- Every ten seconds 200 clients connect at once and ask the same, half of them for something that is
  recorded then, half for a miss.
- Some clients hold an event stream that does not end. Half of them leave theirs after a while and open
  another one, which is recorded; the other half replay one and stay.

A line for every ten seconds: requests, wrong answers, recordings, memory, open files, and the longest
wait of a client of /healthz. The last lines have memory and open files at the beginning, in the middle
and at the end. Memory grows with the recordings of cassettes that are loaded, and with nothing else:
there are 20 for each cassette, all recorded after some minutes.
"""

import asyncio
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
_MISSING, _MISS_EVERY_S = 20, 0.2
_FLOOD, _FLOOD_EVERY_S = 200, 10.0
_STANDING, _STAYS_S = 20, 20.0
_STANDING_EVENT_EVERY_S = 3.0
"""Longer than the pause after which a stream that stays open is handed out."""
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


async def _standing(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    with suppress(ConnectionError):
        while True:
            await response.write(b'data: {"now":"hello"}\n\n')
            await asyncio.sleep(_STANDING_EVENT_EVERY_S)
    return response


async def _serve(ready: Connection) -> None:
    app = web.Application()
    app.router.add_post("/{path:.*}", _answer)
    app.router.add_get("/{path:.*}", _standing)
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


def _question(number: int, *, stream: bool = False) -> dict[str, object]:
    messages = [{"role": "user", "content": number}]
    return {"model": "m", "stream": stream, "messages": messages}


async def stream(
    client: aiohttp.ClientSession, server: Server, cassettes: int, until: float, counts: Counts
) -> None:
    """One client that asks one question after another."""
    while time.monotonic() < until:
        await asyncio.sleep(random.uniform(0, 2 * _THINK_S))
        name, number = f"c{random.randrange(cassettes)}", random.randrange(_QUESTIONS)
        url = f"{server.proxy}/@{name}/v1/chat/completions"
        question = _question(number, stream=bool(number % 2))
        async with client.post(url, json=question) as answer:
            text = await answer.text()
        counts.requests += 1
        if answer.status != 200 or text.count("hello") != (_EVENTS if number % 2 else 1):
            counts.add_wrong(f"{name}: {answer.status} {text[:200]}")


async def ask_what_is_missing(
    client: aiohttp.ClientSession, server: Server, until: float, counts: Counts
) -> None:
    """One client of a cassette in mode replay, which misses each time."""
    while time.monotonic() < until:
        url = f"{server.proxy}/@missing/v1/{random.randrange(10**9)}/chat/completions"
        async with client.post(url, json=_question(random.randrange(10**9))) as answer:
            text = await answer.text()
        counts.requests += 1
        if answer.status != 400 or "replay_miss" not in text:
            counts.add_wrong(f"missing: {answer.status} {text[:200]}")
        await asyncio.sleep(_MISS_EVERY_S)


async def flood(server: Server, until: float, counts: Counts) -> None:
    """Many clients at once that all ask the same."""

    async def ask(client: aiohttp.ClientSession, name: str, number: int) -> int:
        async with client.post(
            f"{server.proxy}/@{name}/v1/chat/completions", json=_question(number)
        ) as answer:
            await answer.read()
            return answer.status

    while time.monotonic() < until:
        number = random.randrange(10**9)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
            asked = [
                ask(client, name, number)
                for name in ("flood", "missing")
                for _ in range(_FLOOD // 2)
            ]
            statuses = await asyncio.gather(*asked)
        counts.requests += len(statuses)
        if statuses != [200] * (_FLOOD // 2) + [400] * (_FLOOD // 2):
            counts.add_wrong(f"flood: {sorted(set(statuses))}")
        await asyncio.sleep(_FLOOD_EVERY_S)


async def stand(
    client: aiohttp.ClientSession, server: Server, number: int, until: float, counts: Counts
) -> None:
    """One client of an event stream that does not end."""
    stays = number % 2 == 0
    while (left_s := until - time.monotonic()) > 0:
        path = f"stays-{number}" if stays else f"leaves-{random.randrange(10**9)}"
        wanted = aiohttp.ClientTimeout(total=left_s if stays else min(left_s, _STAYS_S))
        events = 0
        try:
            url = f"{server.proxy}/@standing/events/{path}"
            headers = {"Accept": "text/event-stream"}
            async with client.get(url, headers=headers, timeout=wanted) as answer:
                async for line in answer.content:
                    events += line.startswith(b"data:")
            counts.add_wrong(f"{path}: {answer.status}, it ended after {events} events")
            await asyncio.sleep(1)
        except TimeoutError:
            counts.requests += 1
            if not events and left_s > _STAYS_S:
                counts.add_wrong(f"{path}: no event")


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


@dataclass(frozen=True, slots=True)
class Sample:
    """What the server held at one moment."""

    at_s: float
    recordings: int
    mib: int
    files: int

    def __str__(self) -> str:
        return (
            f"{self.at_s:6.0f} s  {self.recordings:7d} recordings  {self.mib:5d} MiB  "
            f"{self.files:5d} files"
        )


def _sample(server: Server, at_s: float) -> Sample:
    process = Path(f"/proc/{server.process.pid}")
    pages = int((process / "statm").read_text().split()[1])
    _, text = server.call("GET", "/api/v1/status")
    recorded = json.loads(text)["counts"]["recorded"]
    mib = pages * os.sysconf("SC_PAGE_SIZE") >> 20
    return Sample(at_s, recorded, mib, len(list((process / "fd").iterdir())))


async def watch(server: Server, heartbeat: Heartbeat, until: float, counts: Counts) -> None:
    """Print how it goes."""
    started = time.monotonic()
    samples: list[Sample] = []
    while time.monotonic() < until:
        await asyncio.sleep(_EVERY_S)
        waited = await asyncio.to_thread(heartbeat.longest)
        now = await asyncio.to_thread(_sample, server, time.monotonic() - started)
        samples.append(now)
        print(
            f"{now}  {counts.requests:8d} requests  {counts.wrong} wrong  longest wait "
            f"{waited.longest_ms:7.1f} ms, its own {waited.own_ms:6.1f} ms",
            flush=True,
        )
    for name, at in (("beginning", 0), ("middle", len(samples) // 2), ("end", -1)):
        print(f"{name:>9}: {samples[at]}", flush=True)


async def soak(server: Server, streams: int, idle: int, cassettes: int, seconds: float) -> Counts:
    """Everything at once."""
    counts, until = Counts(), time.monotonic() + seconds
    server.call("PUT", "/api/v1/mode", b'{"mode":"replay","cassette":"missing"}')
    place = urlsplit(server.proxy)
    opened = [await asyncio.open_connection(place.hostname, place.port) for _ in range(idle)]
    heartbeat = Heartbeat(server.admin, server.process.pid)
    unlimited = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=unlimited) as client, asyncio.TaskGroup() as tasks:
        for _ in range(streams):
            tasks.create_task(stream(client, server, cassettes, until, counts))
        for _ in range(_MISSING):
            tasks.create_task(ask_what_is_missing(client, server, until, counts))
        for number in range(_STANDING):
            tasks.create_task(stand(client, server, number, until, counts))
        tasks.create_task(flood(server, until, counts))
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
