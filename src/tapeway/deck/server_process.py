"""`tapeway serve` as a child process."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tapeway.deck.admin_client import DeckError

_STOP_S = 30.0
_LAST_LINES = 20
_BACKLOG = 1024


ARGUMENTS_VARIABLE = "TAPEWAY_ARGUMENTS"
"""Hands the arguments to the process, as a list in JSON."""


class ServerProcess:
    """A running `tapeway serve`, on free ports unless others are given. It ends with its parent.

    Options are those of the command line, by name: `mode="replay"`, `route=["a=https://…"]`,
    `strict=True`. Raises DeckError if it does not start.

    Without `waits` the process may still be starting afterwards, but `urls` are those of the proxy and
    of the admin API already: who connects to them waits until it serves. `wait` tells why, if it
    does not.
    """

    def __init__(
        self,
        options: Mapping[str, object],
        *,
        environ: Mapping[str, str] | None = None,
        folder: Path | None = None,
        waits: bool = True,
    ) -> None:
        with ExitStack() as until_started:
            enter = until_started.enter_context
            listening = [] if waits else [enter(_listener()) for _ in range(2)]
            self.urls = [f"http://{_address(each)}" for each in listening]
            own = [*map(_address, listening)] or ["127.0.0.1:0"] * 2
            defaults = dict(zip(("listen", "admin_listen"), own, strict=True))
            flags = command_line({**defaults, **options})
            self._end, theirs = socket.socketpair()
            enter(theirs)
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tapeway.deck.child"],
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=self._log,
                # Other users can see arguments in the process list, and these may hold passwords.
                env={
                    **(os.environ if environ is None else environ),
                    ARGUMENTS_VARIABLE: json.dumps(["serve", *flags]),
                },
                cwd=folder,
                # Ctrl-C in a terminal is for the program, which then stops this process.
                start_new_session=True,
            )
            socket.send_fds(self._end, [b"l"], [each.fileno() for each in listening])
        self._found: dict[str, Any] | None = None
        if waits:
            self.wait()

    def wait(self) -> dict[str, Any]:
        """Wait until it serves; returns what it says then. Raises DeckError if it never does."""
        if self._found is None:
            try:
                self._found = self._ready()
            except BaseException:
                self.stop()
                raise
        return self._found

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
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _ready(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout is not None else b""
        if not line:
            self._process.wait(_STOP_S)
            said = "\n".join(self.log.splitlines()[-_LAST_LINES:])
            raise DeckError(f"tapeway did not start: {said or 'it said nothing'}", "not_started")
        found: dict[str, Any] = json.loads(line)
        return found


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
            flags += [f"{flag}={each}" for each in value]
        else:
            raise TypeError(
                f"the option {name} must be a text, a number, a bool or a list of texts"
            )
    return flags
