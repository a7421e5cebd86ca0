"""`tapeway serve` as a child process."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tapeway.deck.admin_client import DeckError

_STOP_S = 30.0
_LAST_LINES = 20


class ServerProcess:
    """A running `tapeway serve`, on free ports unless others are given. It ends with its parent.

    Options are those of the command line, by name: `mode="replay"`, `route=["a=https://…"]`,
    `strict=True`. Raises DeckError if it does not start.
    """

    def __init__(
        self,
        options: Mapping[str, object],
        *,
        environ: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        defaults = {"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0"}
        flags, tokens = command_line({**defaults, **options})
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "tapeway.deck.child", "serve", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**(os.environ if environ is None else environ), **tokens},
            cwd=folder,
            # Ctrl-C in a terminal is for the program, which then stops this process.
            start_new_session=True,
        )
        try:
            self.ready = self._ready()
        except BaseException:
            self.stop()
            raise

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
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
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


def command_line(options: Mapping[str, object]) -> tuple[Sequence[str], Mapping[str, str]]:
    """The flags of some options, and the variables of those that a process list must not show."""
    flags: list[str] = []
    tokens: dict[str, str] = {}
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None:
            continue
        if name.endswith("_token"):
            tokens[f"TAPEWAY_{name.upper()}"] = str(value)
        elif isinstance(value, bool):
            flags.append(flag if value else f"--no-{flag[2:]}")
        elif isinstance(value, str | int | float | Path):
            flags.append(f"{flag}={value}")
        elif isinstance(value, Sequence):
            flags += [f"{flag}={each}" for each in value]
        else:
            raise TypeError(
                f"the option {name} must be a text, a number, a bool or a list of texts"
            )
    return flags, tokens
