"""What replays of other tools cost, beside ours, for those that are installed (bench/rivals.md).

python -m bench.rivals

Each tool records the same requests from the same bare server, as its documentation says, and replays
them with the upstream gone. The requests differ: a tool that remembers its last answer gains nothing.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle
from operator import truediv
from pathlib import Path

from bench.answers import JSON_PATH, request
from bench.figures import Figure, Table, figure, text
from bench.replay import Server, started, tapeway

DIFFERENT = 1_000
BLOCKS, BLOCK = 9, 250
_WAIT_S = 60.0

Command = Callable[[Path, str, int, bool], tuple[str, ...]]
"""From a folder, the upstream's URL, a port and whether to record: how the tool is started."""


@dataclass(frozen=True, slots=True)
class Rival:
    """Another tool: the program that must be there, and how it is started."""

    program: str
    command: Command


def _mitmproxy(folder: Path, upstream: str, port: int, records: bool) -> tuple[str, ...]:
    options = (
        *("--mode", f"reverse:{upstream}", "--listen-port", str(port), "-q"),
        # Or it looks for the upstream before each replay.
        *("--set", "connection_strategy=lazy"),
    )
    if records:
        return ("mitmdump", *options, "-w", f"{folder}/flows")
    replay = ("--server-replay", f"{folder}/flows", "--set", "server_replay_reuse=true")
    return ("mitmdump", *options, *replay, "--set", "server_replay_extra=404")


def _talkback(folder: Path, upstream: str, port: int, records: bool) -> tuple[str, ...]:
    script = folder / "talkback.js"
    script.write_text(
        f"""const talkback = require("talkback")
talkback({{
  host: "{upstream}", port: {port}, path: "{folder}/tapes", silent: true, summary: false,
  record: talkback.Options.RecordMode.{"NEW" if records else "DISABLED"},
}}).start()
"""
    )
    return ("node", str(script))


RIVALS = {
    "mitmproxy": Rival("mitmdump", _mitmproxy),
    "talkback": Rival("node", _talkback),
}


def installed() -> dict[str, Rival]:
    """The tools that this machine has."""
    present = {name: rival for name, rival in RIVALS.items() if shutil.which(rival.program)}
    if "talkback" in present and not _has_node_package("talkback"):
        del present["talkback"]
    return present


def _has_node_package(name: str) -> bool:
    places = os.environ.get("NODE_PATH", "").split(os.pathsep)
    return any(Path(place, name).is_dir() for place in places if place)


@contextmanager
def running(rival: Rival, folder: Path, upstream: str, *, records: bool) -> Iterator[Server]:
    """The tool, once it accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        rival.command(folder, upstream, port, records),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + _WAIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(0.05)
        yield Server(f"http://127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        process.wait()


def measure() -> Table:
    """Replays in turn, of requests that differ."""
    sent = [request(JSON_PATH, number) for number in range(DIFFERENT)]
    rivals = installed()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with started("-m", "bench.bare", "lowlevel") as upstream:
            with started(
                *tapeway(f"{root}/ours", "--mode", "record", "--upstream", upstream.url)
            ) as recorder:
                _ask_all(recorder, sent)
            for name, rival in rivals.items():
                (folder := root / name).mkdir()
                with running(rival, folder, upstream.url, records=True) as recorder:
                    _ask_all(recorder, sent)
            gone = upstream.url
        servers = {
            "tapeway": stack.enter_context(started(*tapeway(f"{root}/ours", "--mode", "replay")))
        }
        for name, rival in rivals.items():
            made = running(rival, root / name, gone, records=False)
            servers[name] = stack.enter_context(made)
        asked = {name: cycle(sent) for name in servers}
        costs: dict[str, list[float]] = {name: [] for name in servers}
        for _ in range(BLOCKS):
            for name, server in servers.items():
                server.connect()
                costs[name].append(server.cost(asked[name], b"", BLOCK))
    ours = costs["tapeway"]
    rows: dict[str, list[Figure | str]] = {
        name: [figure(cost, 0), figure(list(map(truediv, cost, ours)), 1)]
        for name, cost in costs.items()
    }
    title = f"{DIFFERENT:,} different requests in turn: CPU microseconds of the server per replay"
    return Table(title, ("CPU us", "of tapeway's"), rows)


def _ask_all(server: Server, sent: list[bytes]) -> None:
    for sent_bytes in sent:
        server.ask(sent_bytes)


if __name__ == "__main__":
    if not installed():
        sys.exit("no other tool is installed: bench/rivals.md says which, and how")
    print(text(measure()))
