"""`tapeway serve` as a process of its own, and every byte it lets out."""

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from tests.clients.end_to_end.admin_crawl import pages
from tests.support import fork_server

ADMIN_PAGES = (
    "/metrics",
    "/healthz",
    "/readyz",
    "/openapi.json",
    "/api/v1/status",
    "/api/v1/journal?limit=1000",
    "/api/v1/report",
    "/api/v1/cassettes",
    "/api/v1/mode",
)


class Tapeway:
    """Serves from `store` between `with` and its end, where it must stop with code 0.

    TAPEWAY_TEST_STORE=sqlite in the environment has all of it in a database there.
    """

    def __init__(
        self, folder: Path, *options: str, name: str = "tapeway", **environment: str
    ) -> None:
        self._folder = folder
        self._environment = environment
        self.store = folder / "cassettes"
        self._stderr = folder / f"{name}.stderr"
        self._stdout = self._command_line = b""
        self._events = bytearray()
        self._command = [
            *(*fork_server.command(), "serve", "--store", _address(self.store)),
            *("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"),
            *("--log-level", "debug", "--log-format", "json", *options),
        ]

    def __enter__(self) -> Self:
        # Nothing of the tester's own environment may count as a setting or a credential.
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "PYTHONPATH")}
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=kept | self._environment,
                cwd=self._folder,
            )
        assert self._process.stdout is not None
        self._stdout = self._process.stdout.readline()
        assert self._stdout, f"it did not come up: {self._stderr.read_text()}"
        self.ready: dict[str, Any] = json.loads(self._stdout)
        self._command_line = Path(f"/proc/{self._process.pid}/cmdline").read_bytes()
        return self

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Read the events of the journal meanwhile, as they come."""
        parts = urlsplit(self.ready["admin"])
        with socket.create_connection((parts.hostname, parts.port)) as followed:
            head = "GET /api/v1/events HTTP/1.1\r\nHost: {}\r\n{}\r\n"
            token = f"Authorization: {self._authorization}\r\n" if self._authorization else ""
            followed.sendall(head.format(parts.netloc, token).encode())
            self._events += followed.recv(2**16)
            reading = threading.Thread(target=self._follow, args=(followed,))
            reading.start()
            yield
            followed.shutdown(socket.SHUT_RD)
            reading.join()

    def _follow(self, followed: socket.socket) -> None:
        while read := followed.recv(2**16):
            self._events += read

    @property
    def _authorization(self) -> str:
        token = self._environment.get("TAPEWAY_ADMIN_TOKEN")
        return f"Bearer {token}" if token else ""

    def __exit__(self, *_: object) -> None:
        os.kill(self.pid, signal.SIGTERM)
        rest, _err = self._process.communicate(timeout=30)
        self._stdout += rest
        assert self._process.returncode == 0, self._stderr.read_text()

    @property
    def proxy(self) -> str:
        """Where the app connects."""
        return str(self.ready["proxy"])

    @property
    def pid(self) -> int:
        return int(self.ready["pid"])

    def admin(self, method: str, path: str, body: object = None) -> bytes:
        """The admin API's answer to a call that it must accept."""
        request = Request(  # noqa: S310  the address is the process's own
            self.ready["admin"] + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={} if body is None else {"Content-Type": "application/json"},
        )
        if self._authorization:
            request.add_header("Authorization", self._authorization)
        with urlopen(request, timeout=30) as answer:  # noqa: S310
            content: bytes = answer.read()
        return content

    def status(self) -> dict[str, Any]:
        """GET /api/v1/status."""
        found: dict[str, Any] = json.loads(self.admin("GET", "/api/v1/status"))
        return found

    def let_out(self) -> dict[str, bytes]:
        """Everything it has written and everything its admin API tells, by place."""
        pages = {f"admin {path}": self.admin("GET", path) for path in ADMIN_PAGES}
        return pages | self.left_behind()

    def everything(self) -> dict[str, bytes]:
        """What every page of its admin API tells, in every format, and all it has written."""
        return pages(lambda path: self.admin("GET", path)) | self.left_behind()

    def told_of(self, cassette: str) -> dict[str, bytes]:
        """What the admin API tells of one cassette."""
        paths = (f"/api/v1/cassettes/{cassette}", f"/api/v1/cassettes/{cassette}/interactions")
        return {f"admin {path}": self.admin("GET", path) for path in paths}

    def left_behind(self) -> dict[str, bytes]:
        """Its files and output alone; these outlive it."""
        files = {
            f"file {path.relative_to(self.store)}": path.read_bytes()
            for path in sorted(self.store.rglob("*"))
            if path.is_file()
        }
        names = {"names of files": "\n".join(files).encode()}
        output = {
            "stdout": self._stdout,
            "stderr": self._stderr.read_bytes(),
            "events": bytes(self._events),
            "command line": self._command_line,
        }
        return files | names | output


def _address(folder: Path) -> str:
    if os.environ.get("TAPEWAY_TEST_STORE") != "sqlite":
        return str(folder)
    folder.mkdir(exist_ok=True)
    return f"sqlite:{folder}/all.db"
