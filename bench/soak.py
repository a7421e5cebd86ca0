"""Mixed traffic for a while: whether memory and open files stay flat, and whom something kept waiting.

python -m bench.soak [STREAMS] [IDLE] [CASSETTES]

`MINUTES` (3) is how long. Streams record and replay in mode auto, each in a cassette after the other;
idle connections ask nothing; the admin API ejects, rewinds and reports meanwhile. A line for every ten
seconds: requests, wrong answers, memory, open files, and the longest wait of a client of /healthz.
"""

import asyncio
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from bench.heartbeat import Heartbeat, Server, upstream

_EVERY_S = 10.0
_QUESTIONS = 20


@dataclass(slots=True)
class Counts:
    """What was asked, and what was not answered as it should be."""

    requests: int = 0
    wrong: list[str] = field(default_factory=list)


async def stream(
    client: aiohttp.ClientSession, server: Server, cassettes: int, until: float, counts: Counts
) -> None:
    """One client that asks one question after another."""
    while time.monotonic() < until:
        name = f"c{random.randrange(cassettes)}"
        question = {
            "model": "m",
            "messages": [{"role": "user", "content": random.randrange(_QUESTIONS)}],
        }
        url = f"{server.proxy}/@{name}/v1/chat/completions"
        async with client.post(url, json=question) as answer:
            text = await answer.text()
        counts.requests += 1
        if answer.status != 200 or "hello" not in text:
            counts.wrong.append(f"{name}: {answer.status} {text[:200]}")


async def administer(server: Server, cassettes: int, until: float, counts: Counts) -> None:
    """Somebody who ejects, rewinds and looks."""
    async with aiohttp.ClientSession(f"{server.admin}/") as client:
        while time.monotonic() < until:
            name = f"c{random.randrange(cassettes)}"
            for path, body in (("eject", {"cassette": name}), ("rewind", {"cassette": name})):
                async with client.post(f"api/v1/{path}", json=body) as answer:
                    if answer.status not in (200, 409):
                        counts.wrong.append(f"{path} {name}: {answer.status}")
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
            f"{len(counts.wrong)} wrong  {pages * os.sysconf('SC_PAGE_SIZE') >> 20:5d} MiB  "
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
    for each in counts.wrong[:10]:
        print(each)
    sys.exit(1 if counts.wrong else 0)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
