"""Proxies that `tapeway.serve` starts are forked by a fork server: here, and in inner runs of pytest.

So are the workers of pytest-xdist in inner runs.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from execnet import gateway_io

from tapeway.embedded import server_process
from tests.support import fork_server

PACKAGES = ("tapeway", "tapeway_pytest")
COMMAND = "FORKED_TAPEWAY"
"""The variable with the command that forks one, its words on lines of their own."""


def _forked_by(command: Sequence[str]) -> SimpleNamespace:
    """What stands in for the module `subprocess`."""

    def started(asked: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        _interpreter, *arguments = asked
        return subprocess.Popen([*command, *arguments], **options)

    names = {"Popen": started, "PIPE": subprocess.PIPE}
    return SimpleNamespace(**names, TimeoutExpired=subprocess.TimeoutExpired)


def pytest_addoption() -> None:
    """Called where this is a plugin, which the outer run only imports: before any proxy starts."""
    command = os.environ[COMMAND].splitlines()
    for package in PACKAGES:
        with suppress(ImportError):
            module = import_module(f"{package}.deck.server_process")
            vars(module)["subprocess"] = _forked_by(command)
    # The parent of a forked worker is the fork server; the plugin looks for the process of the run.
    child = f"import os; os.getppid = lambda: {os.getpid()}"
    bootstrap = ["-c", f"{child}; {gateway_io.popen_bootstrapline}"]
    vars(gateway_io)["popen_args"] = lambda spec: [*command, *bootstrap]


@pytest.fixture(scope="module")
def forked_proxies() -> Iterator[None]:
    """For tests in whose module the start of a proxy is not what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_process, "subprocess", _forked_by(fork_server.command()))
        yield
