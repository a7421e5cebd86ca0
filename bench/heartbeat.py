"""How long clients wait while something large happens: one that asks for /healthz all the time.

python -m bench.heartbeat [STORE ...]

Each line is a step, the longest wait during it, and the most processor time that the server used
during one wait, in milliseconds. On a busy machine a client waits for other processes too: only the
second number is tapeway's own. Stores: file, memory, sqlite.
"""

import http.client
import json
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

from bench.million import JSON
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.formats.native import document

MOST_MS = 50.0
"""No other client may wait longer."""

_EVERY_S = 0.005
_MANY, _LARGE, _HUGE, _LARGE_BODY, _TURNS = 30_000, 5_000, 7_800, 10_000, 1_000_000
_HEAD = CassetteHead("2026-01-01T00:00:00", "heartbeat")
_8_MIB = 8 * 1024 * 1024
_ANSWER = b'{"choices":[{"message":{"role":"assistant","content":"hello"}}]}'


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a client waited at most, and the most that the server computed during one wait."""

    longest_ms: float
    own_ms: float


class Heartbeat:
    """A process that asks for /healthz every five milliseconds."""

    def __init__(self, admin: str, server: int) -> None:
        """`server` is the process that answers."""
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(
            target=_beat, args=(admin, server, theirs), daemon=True
        )
        self._process.start()

    def longest(self) -> "Wait":
        """The longest wait since the last call, one that lasts still included."""
        self._pipe.send(None)
        wait: Wait = self._pipe.recv()
        return wait

    def stop(self) -> None:
        """Ask no more."""
        self._process.terminate()
        self._process.join()


def _beat(admin: str, server: int, pipe: Connection) -> None:
    place = urlsplit(admin)
    client = http.client.HTTPConnection(place.hostname or "", place.port)
    # The clock of another process's processor time: clock_getcpuclockid(3).
    clock = ~server << 3 | 2
    longest = own = 0.0
    while True:
        if pipe.poll():
            pipe.recv()
            pipe.send(Wait(longest * 1000, own * 1000))
            longest = own = 0.0
        started, used = time.perf_counter(), time.clock_gettime(clock)
        client.request("GET", "/healthz")
        client.getresponse().read()
        waited = time.perf_counter() - started
        longest = max(longest, waited)
        own = max(own, min(waited, time.clock_gettime(clock) - used))
        time.sleep(_EVERY_S)


class Upstream(BaseHTTPRequestHandler):
    """Answers everything alike."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(_ANSWER)))
        self.end_headers()
        self.wfile.write(_ANSWER)

    def log_message(self, *_: object) -> None: ...


def question(number: int) -> bytes:
    """The body of a small request, another one for each number."""
    return b'{"model":"m","messages":[{"role":"user","content":"question %d"}]}' % number


def messages(size: int) -> bytes:
    """A chat request of about this size."""
    one = b'{"role":"user","content":"%b"}' % (b"a word of it, " * 20)
    return b'{"model":"m","messages":[%b]}' % b",".join([one] * (size // len(one)))


def floats(size: int) -> bytes:
    """A request with a list of numbers of about this size."""
    numbers = [b"%.17f" % (number / 1_000_003) for number in range(size // 20)]
    return b'{"model":"m","input":[%b]}' % b",".join(numbers)


BLANKS = b'{"authorization":"%b"}' % (b" " * 128_000)
"""Slow for a pattern that tries every number of blanks from every one of them."""


def cassette(count: int, body: int) -> bytes:
    """A cassette's file of so many recordings with bodies of this size."""
    items = []
    for number in range(count):
        asked = question(number)
        request = Request("default", "POST", "/v1/chat/completions", JSON, asked, "http://h")
        said = b'{"choices":[{"message":{"role":"assistant","content":"%b"}}]}' % (
            b"word " * (body // 5)
        )
        response = Response(ResponseHead(200, "OK", JSON), said, 1.0)
        items.append(Interaction(number, request, response))
    return document.save(StoredCassette(_HEAD, tuple(items)))


class Server:
    """`tapeway serve` with calls of its proxy and of its admin API."""

    def __init__(self, store: str, upstream: str, *options: str) -> None:
        command = [str(Path(sys.executable).with_name("tapeway")), "serve"]
        free = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--log-level", "error"]
        self.process = subprocess.Popen(
            [*command, *free, "--store", store, "--upstream", upstream, *options],
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        self.proxy, self.admin = ready["proxy"], ready["admin"]

    def call(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> tuple[int, bytes]:
        """A call of the admin API."""
        return _call(self.admin, method, path, body, kind)

    def ask(self, name: str, number: int) -> tuple[int, bytes]:
        """A request to the proxy."""
        return self.post(name, question(number))

    def post(self, name: str, body: bytes, *, most: int = 399) -> tuple[int, bytes]:
        """A request to the proxy with this body, and a status of at most `most`."""
        path = f"/@{name}/v1/chat/completions"
        return _call(self.proxy, "POST", path, body, "application/json", most)

    def mode(self, mode: str) -> tuple[int, bytes]:
        """Set the mode of all cassettes."""
        return self.call("PUT", "/api/v1/mode", json.dumps({"mode": mode}).encode())

    def stop(self) -> None:
        """Stop it as an operator does."""
        self.process.terminate()
        with self.process:
            assert self.process.wait(30) == 0


def _call(
    base: str, method: str, path: str, body: bytes | None, kind: str, most: int = 399
) -> tuple[int, bytes]:
    place = urlsplit(base)
    client = http.client.HTTPConnection(place.hostname or "", place.port, timeout=600)
    client.request(method, path, body, {"Content-Type": kind} if body is not None else {})
    answer = client.getresponse()
    data = answer.read()
    client.close()
    assert answer.status <= most, (method, path, answer.status, data[:300])
    return answer.status, data


@contextmanager
def upstream() -> Iterator[str]:
    """A service on loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def _bodies() -> dict[str, bytes]:
    return {
        "8 MiB of messages": messages(_8_MIB),
        "8 MiB of numbers": floats(_8_MIB),
        "128,000 blanks": BLANKS,
    }


def _miss(server: Server, body: bytes) -> None:
    server.mode("replay")
    server.post("bodies", body.replace(b"model", b"other"), most=400)
    server.mode("auto")


_FORMS = {
    "jsonl": "application/jsonl",
    "har": "application/har+json",
    "yaml": "application/yaml",
}
"""Formats beside a cassette's own, with the content type of an import."""


def _export(server: Server, path: str, written: list[bytes]) -> None:
    written.append(server.call("GET", path)[1])


def _import(server: Server, path: str, written: list[bytes], kind: str) -> None:
    server.call("PUT", path, written.pop(), kind)


def steps(server: Server, many: bytes, large: bytes) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is measured, by name, in order."""
    cassettes = "/api/v1/cassettes"
    yield f"import {_MANY} recordings", lambda: server.call("PUT", f"{cassettes}/many", many)
    yield f"import {len(large) >> 20} MiB", lambda: server.call("PUT", f"{cassettes}/large", large)
    yield "first request to many", lambda: server.ask("many", 7)
    yield "first request to large", lambda: server.ask("large", 7)
    yield "a miss that is recorded", lambda: server.ask("large", _LARGE + 7)
    for name, body in _bodies().items():
        yield f"{name}, recorded", partial(server.post, "bodies", body)
        yield f"{name}, replayed", partial(server.post, "bodies", body)
        yield f"{name}, missed", partial(_miss, server, body)
    yield "2,000 of many replayed", lambda: [server.ask("many", number) for number in range(2_000)]
    yield "list", lambda: server.call("GET", cassettes)
    yield "status", lambda: server.call("GET", "/api/v1/status")
    yield "metrics", lambda: server.call("GET", "/metrics")
    yield "report", lambda: server.call("GET", "/api/v1/report")
    yield "report as text", lambda: server.call("GET", "/api/v1/report?format=text")
    yield "export", lambda: server.call("GET", f"{cassettes}/large")
    for form, kind in _FORMS.items():
        written: list[bytes] = []
        query = f"format={form}&losses=allow"
        yield f"export as {form}", partial(_export, server, f"{cassettes}/large?{query}", written)
        yield f"import {form}", partial(_import, server, f"{cassettes}/again", written, kind)
    yield "copy", lambda: server.call("GET", f"{cassettes}/large/copy")
    yield "interactions", lambda: server.call("GET", f"{cassettes}/many/interactions")
    yield "messages", lambda: server.call("GET", f"{cassettes}/many/messages")
    yield "rewind", lambda: server.call("POST", "/api/v1/rewind", b"{}")
    yield "mode", lambda: [server.mode(mode) for mode in ("replay", "auto")]
    yield "three seconds of nothing", lambda: time.sleep(3)
    yield "eject", lambda: server.call("POST", "/api/v1/eject", b'{"cassette":"large"}')
    yield "reload", lambda: server.ask("large", 8)


def use_up(shared: Path, count: int) -> None:
    """Have so many turns of a cassette used in the take that is in force."""
    with closing(sqlite3.connect(shared, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        (take,) = connection.execute("SELECT takes FROM control").fetchone()
        numbers = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?)"
        for insert in (
            "INSERT INTO turn SELECT 'used', ?, randomblob(40), x'7b7d', n FROM n",
            "INSERT INTO touched (name, take, number) SELECT 'used', ?, n FROM n",
        ):
            connection.execute(f"{numbers} {insert}", (count, take))
        connection.execute("COMMIT")


def rewind_while_asked(server: Server) -> None:
    """End the take of all these turns, and the one after it, while somebody else is served."""
    done = threading.Event()

    def ask() -> float:
        longest = 0.0
        while not done.is_set():
            started = time.perf_counter()
            server.ask("many", 7)
            longest = max(longest, time.perf_counter() - started)
        return longest * 1000

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            for _ in range(2):
                server.call("POST", "/api/v1/rewind", b"{}")
        finally:
            done.set()
        print(f"{'':8} the longest replay meanwhile: {asking.result():.1f} ms")


def of_kind(kind: str, server: Server, folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """What only one kind of store has to do."""
    if kind == "file":
        yield "first request to 80 MiB", lambda: server.ask("huge", 7)
    if kind == "sqlite":
        use_up(folder / "x.db.shared", _TURNS)
        yield f"rewind {_TURNS} used turns", lambda: rewind_while_asked(server)
        yield "mode after that", lambda: [server.mode(mode) for mode in ("replay", "auto")]
    yield "delete", lambda: server.call("DELETE", "/api/v1/cassettes/many")


def measure(kind: str, folder: Path) -> list[tuple[str, Wait]]:
    """Every step of one kind of store, with the longest wait during it."""
    many, large = cassette(_MANY, 100), cassette(_LARGE, _LARGE_BODY)
    stores = {"memory": "memory:", "file": str(folder / "files"), "sqlite": f"sqlite:{folder}/x.db"}
    waits: list[tuple[str, Wait]] = []
    if kind == "file":
        (folder / "files").mkdir()
        (folder / "files" / "huge.json").write_bytes(cassette(_HUGE, _LARGE_BODY))
    with upstream() as service:
        server = Server(stores[kind], service, "--mode", "auto")
        heartbeat = Heartbeat(server.admin, server.process.pid)
        time.sleep(0.5)
        for name, step in chain(steps(server, many, large), of_kind(kind, server, folder)):
            heartbeat.longest()
            started = time.perf_counter()
            step()
            waited = heartbeat.longest()
            took = (time.perf_counter() - started) * 1000
            waits.append((name, waited))
            mark = "" if waited.own_ms <= MOST_MS else "  <<<"
            print(
                f"{kind:8} {name:28} {took:9.0f} ms  longest wait {waited.longest_ms:7.1f} ms"
                f"  its own {waited.own_ms:7.1f} ms{mark}",
                flush=True,
            )
        heartbeat.stop()
        server.stop()
    return waits


if __name__ == "__main__":
    print(f"load {os.getloadavg()[0]:.1f}")
    for kind in sys.argv[1:] or ["file", "memory", "sqlite"]:
        with tempfile.TemporaryDirectory() as place:
            measure(kind, Path(place))
