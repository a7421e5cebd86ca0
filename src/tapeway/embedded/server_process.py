"""`tapeway serve` as a child process, wherever tapeway is installed."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .admin_client import DeckError
from .client_variables import ADMIN_URL_VARIABLE, COMMAND_VARIABLE, URL_VARIABLE, ClientSetup

ARGUMENTS_VARIABLE = "TAPEWAY_ARGUMENTS"
"""Hands the arguments to the process, as a list in JSON."""

VERSIONS = "tapeway>=1.0.0rc1,<2"
"""The versions that work with this package."""
_RUNNERS = {
    "tapeway": ("tapeway",),
    "uvx": ("uvx", "--from", VERSIONS, "tapeway"),
    "pipx": ("pipx", "run", "--spec", VERSIONS, "tapeway"),
}
"""Commands that run tapeway from a separate environment, the preferred first."""
_STOP_S = 30.0
_LAST_LINES = 20
_MOST_SHOWN = 200
_BACKLOG = 1024


def tapeway_command(environ: Mapping[str, str]) -> list[str]:
    """The command `tapeway`: of this environment, or else the first one on the path.

    Raises DeckError if there is none.
    """
    if given := environ.get(COMMAND_VARIABLE):
        return [given] if Path(given).exists() else given.split()
    if find_spec("tapeway") is not None:
        return [sys.executable, "-m", "tapeway"]
    for program, words in _RUNNERS.items():
        if (executable := shutil.which(program, path=environ.get("PATH"))) is not None:
            return [executable, *words[1:]]
    raise DeckError(
        "there is no tapeway: install it (pip install tapeway, uv tool install tapeway or pipx install "
        f"tapeway), name its command in {COMMAND_VARIABLE}, or name a running one in {URL_VARIABLE} "
        f"and {ADMIN_URL_VARIABLE}",
        "not_installed",
    )


class ServerProcess:
    """A running `tapeway serve`, on free ports unless others are given. It ends with its parent.

    Options are those of the command line, by name: `mode="replay"`, `route=["a=https://…"]`,
    `strict=True`. Raises DeckError if it does not start.

    Without `waits` the process may still be starting afterwards, but `urls` are those of the proxy and
    of the admin API already: clients that connect early wait until it serves. `wait` raises the reason
    if it never does.
    """

    def __init__(
        self,
        options: Mapping[str, object],
        *,
        environ: Mapping[str, str] | None = None,
        folder: Path | None = None,
        waits: bool = True,
    ) -> None:
        if not hasattr(socket, "send_fds"):
            raise DeckError(
                "tapeway runs on Linux and macOS: start it in WSL 2 or in a container, and name it in "
                f"{URL_VARIABLE} and {ADMIN_URL_VARIABLE}",
                "unsupported",
            )
        environ = os.environ if environ is None else environ
        command = tapeway_command(environ)
        with ExitStack() as until_started:
            enter = until_started.enter_context
            listening = [] if waits else [enter(_listener()) for _ in range(2)]
            self.urls = [f"http://{_address(listener)}" for listener in listening]
            own = [*map(_address, listening)] or ["127.0.0.1:0"] * 2
            defaults = dict(zip(("listen", "admin_listen"), own, strict=True))
            flags = command_line({**defaults, **options})
            self._end, theirs = socket.socketpair()
            enter(theirs)
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the command is tapeway
                    [*command, "child"],
                    stdin=theirs.fileno(),
                    stdout=subprocess.PIPE,
                    stderr=self._log,
                    # Other users can see arguments in the process list, and these may hold passwords.
                    env={**environ, ARGUMENTS_VARIABLE: json.dumps(flags)},
                    cwd=folder,
                    # Ctrl-C in a terminal is for the program, which then stops this process.
                    start_new_session=True,
                )
            except OSError as exc:
                self._end.close()
                self._log.close()
                raise DeckError(
                    f"{command[0]} cannot be started: {exc.strerror}", "not_started"
                ) from exc
            socket.send_fds(self._end, [b"l"], [listener.fileno() for listener in listening])
        self._told: list[dict[str, Any]] = []
        if waits:
            self.wait()

    def wait(self) -> dict[str, Any]:
        """Wait until it serves; returns what it says then. Raises DeckError if it never does."""
        return self._line(1)

    @property
    def clients(self) -> ClientSetup:
        """How clients reach the proxy, known before it serves. Raises DeckError if it does not start."""
        return ClientSetup.of(self._line(0)["clients"])

    @property
    def token(self) -> str | None:
        """The token of the admin API, from any source of settings."""
        token: str | None = self._line(0)["token"]
        return token

    @property
    def certificate(self) -> str | None:
        """The file of the proxy's TLS certificate."""
        certificate: str | None = self._line(0)["certificate"]
        return certificate

    @property
    def log(self) -> str:
        """What it has logged."""
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode(
            errors="replace"
        )

    def stop(self) -> None:
        """Let it finish calls in flight, and wait for its end. A second call does nothing."""
        if self._log.closed:
            return
        self._end.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            # With what stands between: `uvx` starts tapeway as a further child.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()

    def _line(self, number: int) -> dict[str, Any]:
        """A line of output: the first tells settings, the second readiness."""
        while len(self._told) <= number:
            try:
                self._told.append(self._next_line())
            except BaseException:
                self.stop()
                raise
        return self._told[number]

    def _next_line(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout is not None else b""
        if not line:
            self._process.wait(_STOP_S)
            output = "\n".join(self.log.splitlines()[-_LAST_LINES:])
            raise DeckError(f"tapeway did not start: {output or 'it said nothing'}", "not_started")
        try:
            message: dict[str, Any] = json.loads(line)
        except ValueError:
            shown = line[:_MOST_SHOWN].decode(errors="replace")
            raise DeckError(f"this is not tapeway: it printed {shown!r}", "not_started") from None
        return message


def _listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()
    return f"{host}:{port}"


def command_line(options: Mapping[str, object]) -> list[str]:
    """The flags of some options."""
    flags: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None:
            continue
        if isinstance(value, bool):
            flags.append(flag if value else f"--no-{flag[2:]}")
        elif isinstance(value, str | int | float | Path):
            flags.append(f"{flag}={value}")
        elif isinstance(value, Sequence):
            flags += [f"{flag}={item}" for item in value]
        else:
            raise TypeError(
                f"the option {name} must be a text, a number, a bool or a list of texts"
            )
    return flags
