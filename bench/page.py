"""How the page's journal keeps up with requests that come by the thousand.

python -m bench.page [REQUESTS_A_SECOND]

A tapeway replays, a process of its own asks over kept-alive connections, and Chromium shows the
journal. It fails where the page's counts or its list are not exact, unless the page said that it
missed some. Frames are the gaps between the browser's animation frames.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.answers import JSON_BODY, JSON_PATH, request
from bench.figures import Table, text
from bench.replay import Server, in_cassette, recordings, started, tapeway
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.stores.file.store import FileStore

RATE, SECONDS = 1000, 10
CONNECTIONS = 4
DIFFERENT = 200
TICK_S = 0.01
PATIENCE_S = 30
MOST_LISTED = 19_000
"""The page's list holds little more."""
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

_FRAMES = """() => {
    window.gaps = [];
    let before = performance.now();
    const frame = (now) => { window.gaps.push(now - before); before = now; requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
}"""
_SHOWN = """() => ({
    counted: document.querySelector('.chip[data-outcome=replayed] .chip-count').textContent.replace(/\\D/g, ''),
    listed: document.querySelector('[role=option]')?.ariaSetSize ?? '0',
    drawn: document.querySelectorAll('[role=option]').length,
    said: document.querySelector('.heading .muted').textContent,
})"""


def available() -> bool:
    """Whether there is a browser to measure with."""
    return CHROMIUM is not None


class Asker(asyncio.Protocol):
    """A connection that pipelines requests and counts the answers."""

    def __init__(self, expected: int) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self._expected = expected
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        got = self._rest + data
        self._expected -= got.count(JSON_BODY)
        if self._expected == 0:
            self.done.set_result(None)
        whole = got.rfind(JSON_BODY)
        self._rest = got if whole < 0 else got[whole + len(JSON_BODY) :]


async def load(host: str, port: int, rate: int, seconds: float) -> None:
    """Ask so many times a second, evenly, and print how many were sent and answered."""
    loop = asyncio.get_running_loop()
    each_of = int(rate * seconds) // CONNECTIONS
    askers = [
        (await loop.create_connection(lambda: Asker(each_of), host, port))[1]
        for _ in range(CONNECTIONS)
    ]
    sent = [request(JSON_PATH, number, in_cassette("page")) for number in range(DIFFERENT)]
    asked, began = 0, loop.time()
    while asked < each_of * CONNECTIONS:
        due = min(int((loop.time() - began) * rate), each_of * CONNECTIONS)
        for number in range(asked, due):
            askers[number % CONNECTIONS].transport.write(sent[number % DIFFERENT])
        asked = due
        await asyncio.sleep(TICK_S)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(client.done for client in askers))
    took = loop.time() - began
    print(json.dumps({"asked": asked, "rate": asked / took}))


def asked_by_another(server: Server, rate: int) -> dict[str, Any]:
    """Have a process ask, and what it says at its end."""
    command = ("-m", "bench.page", "load", *map(str, (*server.address, rate, SECONDS)))
    done = subprocess.run(
        [sys.executable, *command],
        check=True,
        stdout=subprocess.PIPE,
        timeout=SECONDS + 2 * PATIENCE_S,
    )
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def watched(server: Server, rate: int) -> dict[str, Any]:
    """Have it ask while Chromium shows the journal; what the page showed, and its frames."""
    from playwright.sync_api import sync_playwright

    sandbox = ["--no-sandbox"] if os.getuid() == 0 else []
    with (
        sync_playwright() as client,
        client.chromium.launch(executable_path=CHROMIUM, args=sandbox) as browser,
    ):
        tab = browser.new_page(viewport={"width": 1280, "height": 800})
        tab.set_default_timeout(PATIENCE_S * 1000)
        tab.goto(f"{server.admin}/#/journal")
        tab.get_by_text("Live", exact=True).wait_for()
        tab.wait_for_function(f"() => ({_SHOWN})().counted !== ''")
        before = tab.evaluate(_SHOWN)
        tab.evaluate(_FRAMES)
        other = asked_by_another(server, rate)
        ended = time.perf_counter()
        gaps = sorted(tab.evaluate("window.gaps.slice(1)"))
        while True:
            shown = tab.evaluate(_SHOWN)
            for name in ("counted", "listed"):
                shown[name] = int(shown[name]) - int(before[name])
            late_s = time.perf_counter() - ended
            whole = shown["listed"] == other["asked"] or other["asked"] > MOST_LISTED
            if shown["counted"] == other["asked"] and (shown["said"] or whole):
                return {**other, **shown, "gaps": gaps, "late_s": late_s}
            if late_s > PATIENCE_S:
                raise RuntimeError(f"{other['asked']} were asked, and the page shows {shown}")
            time.sleep(0.05)


def measure(rate: int = RATE) -> Table:
    """What the journal shows of a load, and what the server pays for showing it."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_save(folder))
        options = ("--mode", "replay", "--admin-listen", "127.0.0.1:0")
        with started(*tapeway(folder, *options)) as server:
            cpu = server.cpu_ns()
            alone = asked_by_another(server, rate)
            alone_us = (server.cpu_ns() - cpu) / alone["asked"] / 1000
            cpu = server.cpu_ns()
            seen = watched(server, rate)
            seen_us = (server.cpu_ns() - cpu) / seen["asked"] / 1000
    gaps = seen["gaps"]
    median, p99 = (gaps[int(len(gaps) * part)] for part in (0.5, 0.99))
    said = f" The page said: {seen['said']}" if seen["said"] else ""
    return Table(
        f"The journal on the page, {seen['rate']:,.0f} requests a second for {SECONDS} s",
        ("",),
        {
            "requests asked, counted, listed": (
                f"{seen['asked']:,}, {seen['counted']:,}, {seen['listed']:,}",
            ),
            "rows drawn at the end": (str(seen["drawn"]),),
            "ms between frames: median, p99, most": (f"{median:.0f}, {p99:.0f}, {gaps[-1]:.0f}",),
            "seconds until the page showed all": (f"{seen['late_s']:.1f}",),
            "CPU microseconds of the server per request, page closed": (f"{alone_us:.0f}",),
            "the same, page open": (f"{seen_us:.0f}",),
        },
        note=said,
    )


async def _save(folder: str) -> None:
    store = FileStore(Path(folder))
    await store.open()
    try:
        head = CassetteHead("2026-01-01T00:00:00+00:00", "bench")
        await store.save("page", StoredCassette(head, recordings(DIFFERENT)))
    finally:
        await store.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["load"]:
        to_host, to_port, at_rate, for_s = sys.argv[2:6]
        asyncio.run(load(to_host, int(to_port), int(at_rate), float(for_s)))
    else:
        print(text(measure(int(sys.argv[1]) if sys.argv[1:] else RATE)))
