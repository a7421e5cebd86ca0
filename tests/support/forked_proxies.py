"""A plugin for inner runs: their proxies are forked by the fork server of the outer run."""

import os
import subprocess
from types import SimpleNamespace
from typing import Any

from tapeway.deck import server_process

COMMAND = "FORKED_TAPEWAY"
"""The variable with the command that forks one, its words on lines of their own."""


def _started(command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
    _interpreter, *arguments = command
    return subprocess.Popen([*os.environ[COMMAND].splitlines(), *arguments], **options)


def pytest_addoption() -> None:
    """Called where this is a plugin, which the outer run only imports: before any proxy starts."""
    names = {"Popen": _started, "PIPE": subprocess.PIPE}
    names["TimeoutExpired"] = subprocess.TimeoutExpired
    vars(server_process)["subprocess"] = SimpleNamespace(**names)
