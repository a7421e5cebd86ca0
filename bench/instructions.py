"""How many instructions the server executes for a replay, a stream and a recording.

python -m bench.instructions [--keep]

Time differs from run to run, and instructions hardly do: the counts are kept in
`bench/instructions.json`, and this prints how they have changed. `--keep` replaces them: a change
that costs more is made knowingly. It takes a minute, and callgrind (Debian's package valgrind).
Counts depend on the machine's libraries and on Python, which are kept beside them.
"""

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from itertools import cycle, islice
from pathlib import Path
from shutil import which
from typing import Any

from bench.answers import EVENTS, JSON_BODY, JSON_PATH, STREAM_PATH
from bench.figures import Table, text
from bench.recording import requests
from bench.replay import LAST_CHUNK, ORDINARY, Server, started, tapeway

KEPT = Path(__file__).with_name("instructions.json")
_WARM, _COUNTED = 60, 208
"""A multiple of 16: so many replays are entered in the journal together."""
_STREAMS = 20
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


@contextmanager
def counted(folder: Path, *command: str) -> Iterator[Server]:
    """A server under callgrind, whose dumps are in the folder."""
    process = subprocess.Popen(
        [
            *("valgrind", "--tool=callgrind", "-q", f"--callgrind-out-file={folder}/out"),
            *(sys.executable, *command),
        ],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    try:
        yield Server.of(process)
    finally:
        process.terminate()
        process.communicate()


def instructions(server: Server, folder: Path, sent: Iterator[bytes], end: bytes, n: int) -> int:
    """The instructions of one of so many requests, after some that are not counted."""
    for request in islice(sent, min(n, _WARM)):
        server.ask(request, end)
    for dump in folder.iterdir():
        dump.unlink()
    _control("--zero", server)
    for request in islice(sent, n):
        server.ask(request, end)
    _control("--dump", server)
    (dump,) = folder.iterdir()
    return sum(map(int, _TOTAL.findall(dump.read_text())[:1])) // n


def request_with(field: str, sent: bytes) -> bytes:
    """A request with one more header field."""
    head, end, body = sent.partition(b"\r\n\r\n")
    return b"%b\r\n%b%b%b" % (head, field.encode(), end, body)


def _asked_before(path: str, count: int) -> Iterator[bytes]:
    """So many requests again and again: those that are not counted are all of them."""
    return cycle(list(islice(requests(path), count)))


def _control(order: str, server: Server) -> None:
    program = which("callgrind_control") or "callgrind_control"
    subprocess.run([program, order, str(server.pid)], check=True, capture_output=True)


def measured() -> dict[str, int]:
    """The counts, by what was asked."""
    counts: dict[str, int] = {}
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (dumps := root / "dumps").mkdir()
        store, upstream = (
            f"{root}/store",
            stack.enter_context(started("-m", "bench.bare", "lowlevel")),
        )
        recording = tapeway(store, "--mode", "record", "--upstream", upstream.url)
        with counted(dumps, *recording) as server:
            asked = requests(JSON_PATH)
            counts["a recording"] = instructions(server, dumps, asked, JSON_BODY, _COUNTED)
            asked = requests(STREAM_PATH)
            what = f"the recording of a stream of {len(EVENTS)} events"
            counts[what] = instructions(server, dumps, asked, LAST_CHUNK, _STREAMS)
        auto = tapeway(f"{root}/auto", "--mode", "auto", "--upstream", upstream.url)
        with counted(dumps, *auto) as server:
            asked = requests(JSON_PATH)
            counts["a recording in mode auto"] = instructions(
                server, dumps, asked, JSON_BODY, _COUNTED
            )
            asked = requests(JSON_PATH)
            counts["its replay in the same run"] = instructions(
                server, dumps, asked, JSON_BODY, _COUNTED
            )
        with counted(dumps, *tapeway(store, "--mode", "replay")) as server:
            asked = requests(JSON_PATH)
            counts["the first replay of a recording in a file"] = instructions(
                server, dumps, asked, JSON_BODY, _COUNTED
            )
            asked = _asked_before(JSON_PATH, _WARM)
            counts["a replay"] = instructions(server, dumps, asked, JSON_BODY, _COUNTED)
            asked = (
                request_with(f"X-Request-Id: {sha256(b'%d' % number).hexdigest()}", request)
                for number, request in enumerate(_asked_before(JSON_PATH, _WARM))
            )
            what = "a replay with a header field of its own"
            counts[what] = instructions(server, dumps, asked, JSON_BODY, _COUNTED)
            asked = (request_with(ORDINARY, request) for request in _asked_before(JSON_PATH, _WARM))
            what = "a replay on the ordinary way"
            counts[what] = instructions(server, dumps, asked, JSON_BODY, _COUNTED)
            asked = _asked_before(STREAM_PATH, _STREAMS)
            what = f"the replay of a stream of {len(EVENTS)} events"
            counts[what] = instructions(server, dumps, asked, LAST_CHUNK, _COUNTED)
    return counts


def measure(*, keep: bool = False) -> Table:
    """The counts beside those that are kept; with `keep`, they are kept instead."""
    counts, machine = measured(), f"Python {platform.python_version()}, {platform.machine()}"
    kept: dict[str, Any] = {"machine": "nothing yet", "counts": {}}
    if KEPT.exists():
        kept = json.loads(KEPT.read_text())
    if keep:
        KEPT.write_text(json.dumps({"machine": machine, "counts": counts}, indent=2) + "\n")
    rows = {
        what: [
            f"{now:,}",
            f"{before:,}" if (before := kept["counts"].get(what)) else "",
            f"{(now / before - 1) * 100:+.1f} %" if before else "",
        ]
        for what, now in counts.items()
    }
    note = f"Counted with {machine}; kept with {kept['machine']}."
    return Table("Instructions of the server", ("now", "kept", "change"), rows, note)


def available() -> bool:
    """Whether callgrind is installed."""
    return which("valgrind") is not None and which("callgrind_control") is not None


if __name__ == "__main__":
    if not available():
        sys.exit("bench.instructions needs callgrind: install Debian's package valgrind")
    print(text(measure(keep="--keep" in sys.argv[1:])))
