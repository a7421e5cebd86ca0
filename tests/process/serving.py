"""`tapeway serve` as a process of its own: started, called, signalled and waited for."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from tests.support import fork_server
from tests.support.canary import canary, sightings
from tests.support.raw_client import Answer, RawClient

COMMAND = (sys.executable, str(Path(sys.executable).with_name("tapeway")), "serve")
FREE_PORTS = ("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
DEADLINE_S = 60.0
"""After this the test has failed; nothing is expected to take a tenth of it."""

SEARCHED = 2**20
"""Larger files, of which there are few, are not searched for secrets."""

USAGE, FAILURE = 2, 1
"""Exit codes: what was given cannot be used, and everything else that is wrong."""

_KEPT = ("PATH", "HOME", "PYTHONPATH")


class Tapeway:
    """Serves from `folder/cassettes` between `async with` and its end, where it must stop cleanly.

    A test that ends it otherwise waits for that itself, with `ended`.
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        command: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
        before: Callable[[], object] | None = None,
        limit: Callable[[], object] | None = None,
        umask: int = -1,
    ) -> None:
        """`before` is called in the new process before it becomes tapeway; so is `limit`, which only
        takes rights from it or limits its resources.

        Unless it needs an interpreter of its own, it is forked from one that has imported tapeway.
        """
        self.store = folder / "cassettes"
        self._folder = folder
        given = () if "--store" in options else ("--store", str(self.store))
        self._environ = dict(environ or {})
        self._forked = command is None and before is None and not _read_at_import(self._environ)
        command = command or ((*fork_server.command(), "serve") if self._forked else COMMAND)
        self._command = [*command, *FREE_PORTS, *given, *options]
        self.key = canary()
        self._before = before or limit
        self._umask = umask
        self._stderr = folder / "stderr"
        # Another one may have written there before.
        self._stderr_start = self._stderr.stat().st_size if self._stderr.exists() else 0
        self.ready: dict[str, Any] = {}

    async def start(self) -> Self:
        """Return when it announced itself."""
        await self.launch()
        assert self._process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            line = await self._process.stdout.readline()
        assert line, f"it did not come up: {self.stderr}"
        self.ready = json.loads(line)
        return self

    async def launch(self) -> None:
        """Start it and wait for nothing."""
        # Nothing of the tester's own environment may count as a setting or a credential.
        environ = {name: value for name, value in os.environ.items() if name in _KEPT}
        with self._stderr.open("ab") as stderr:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env=environ | {"OPENAI_API_KEY": self.key} | self._environ,
                cwd=self._folder,
                preexec_fn=self._before,
                umask=self._umask,
            )

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.kill()
            raise

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._process.returncode is None:
                assert await self.stopped() == 0, self.stderr
                assert "Traceback" not in self.stderr
                assert {line["level"] for line in self.log} <= {"info", "warning"}, self.stderr
                assert sightings({"the key": self.key}, self._written()) == []
        finally:
            await self.kill()

    @property
    def proxy(self) -> str:
        """Where the app connects."""
        return str(self.ready["proxy"])

    @property
    def child(self) -> int:
        """The process that was started, which a tool in front of tapeway would be."""
        return self._process.pid

    @property
    def pid(self) -> int:
        return int(self.ready["pid"])

    @property
    def stderr(self) -> str:
        return self._stderr.read_bytes()[self._stderr_start :].decode()

    @property
    def log(self) -> list[dict[str, Any]]:
        """What it logged so far; every whole line must be a JSON object."""
        whole, _, _ = self.stderr.rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def _written(self) -> dict[str, bytes]:
        found = {"stderr": self.stderr.encode()}
        for path in self.store.rglob("*"):
            if path.is_file() and path.stat().st_size < SEARCHED:
                found[str(path)] = path.read_bytes()
        return found

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def ended(self) -> int:
        """Its exit code; negative for the signal that killed it."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._process.wait()

    async def stopped(self) -> int:
        """Its exit code after SIGTERM."""
        self.signal(signal.SIGTERM)
        return await self.ended()

    async def rest_of_stdout(self) -> bytes:
        """What it wrote to stdout behind the ready line, up to its end."""
        assert self._process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            return await self._process.stdout.read()

    async def kill(self) -> None:
        """End it without a word."""
        if self._process.returncode is None:
            if self.ready and self.pid != self._process.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
            if not (self.ready and self._forked):
                self._process.kill()
            await self._process.wait()

    async def ask(self, target: str, body: bytes = b"", *fields: tuple[str, str]) -> Answer:
        """The answer to a GET, or with a body to a POST, on a connection of its own.

        It brings a key along, which the process must have written nowhere when it ends.
        """
        async with asyncio.timeout(DEADLINE_S), RawClient(self.proxy) as client:
            await client.send(request(target, body, self.login, *fields))
            return await client.answer()

    @property
    def login(self) -> tuple[str, str]:
        """The header field with the key."""
        return "Authorization", f"Bearer {self.key}"

    async def admin(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and document of an admin call."""
        content = b"" if body is None else json.dumps(body).encode()
        typed = ("Content-Type", "application/json")
        url = str(self.ready["admin"])
        sent = request(path, content, typed, method=method, host=url.removeprefix("http://"))
        async with asyncio.timeout(DEADLINE_S), RawClient(url) as client:
            answer = await client.ask(sent)
        return answer.status, json.loads(answer.body)

    async def status(self) -> dict[str, Any]:
        """GET /api/v1/status."""
        code, document = await self.admin("GET", "/api/v1/status")
        assert code == 200
        assert isinstance(document, dict)
        return document

    async def unready(self) -> None:
        """Return when the stop has begun, or something keeps it from its work."""
        await self._says(503)

    async def at_work(self) -> None:
        """Return when nothing keeps it from its work."""
        await self._says(200)

    async def _says(self, status: int) -> None:
        for _ in range(int(DEADLINE_S * 100)):
            if (await self.admin("GET", "/readyz"))[0] == status:
                return
            await asyncio.sleep(0.01)
        raise TimeoutError

    async def until(self, claim: Callable[[], object], what: str) -> None:
        """Look again and again where nothing tells when a claim has come true."""

        def comes_true() -> bool:
            assert self._process.returncode is None, f"it ended before {what}: {self.stderr}"
            return bool(claim())

        await eventually(comes_true)


def _read_at_import(environ: Mapping[str, str]) -> bool:
    """Whether Python or a library reads one of these variables when it is imported."""
    return any(not name.startswith(("TAPEWAY_", "OPENAI_")) for name in environ)


async def eventually(claim: Callable[[], bool]) -> None:
    """Look again and again until a claim is true."""
    for _ in range(int(DEADLINE_S * 100)):
        if claim():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


def request(
    target: str,
    body: bytes = b"",
    *fields: tuple[str, str],
    method: str | None = None,
    host: str = "app",
) -> bytes:
    """A request as bytes."""
    lines = [f"{method or ('POST' if body else 'GET')} {target} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in fields]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def address_of(url: str) -> tuple[str, int]:
    """Host and port of a listener."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


async def refused(
    folder: Path,
    *options: str,
    environ: Mapping[str, str] | None = None,
    before: Callable[[], object] | None = None,
    limit: Callable[[], object] | None = None,
    command: Sequence[str] | None = None,
) -> tuple[int, str]:
    """Exit code and message of a start that must fail, with one line and without a ready line."""
    tapeway = Tapeway(
        folder, *options, environ=environ, before=before, limit=limit, command=command
    )
    await tapeway.launch()
    try:
        code = await tapeway.ended()
        assert await tapeway.rest_of_stdout() == b""
    finally:
        await tapeway.kill()
    (line,) = tapeway.stderr.splitlines()
    assert line.startswith("tapeway: ")
    return code, line.removeprefix("tapeway: ")
