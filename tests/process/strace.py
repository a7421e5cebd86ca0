"""System calls of a process, seen and tampered with by strace."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.process.serving import COMMAND, eventually


class Trace:
    """Lines of strace about calls on these paths and sockets; skips the test where it may not look."""

    def __init__(self, file: Path, *options: str) -> None:
        skip_where_forbidden()
        self._file = file
        # Detached, so that the process started is tapeway and gets the signals itself.
        quiet = ("-D", "-f", "-qq", "-yy", "-s", "128", "-o", str(file))
        self.command = ("strace", *quiet, *options, *COMMAND)

    @property
    def lines(self) -> list[str]:
        """One for each call, and where another thread's came in between, one for its end."""
        return self._file.read_text().splitlines()

    def calls(self, name: str, place: str) -> list[str]:
        """The calls of that name on that file or socket."""
        return [line for line in self.lines if f" {name}(" in line and place in line]

    def end_of(self, name: str, place: str) -> int:
        """The number of the line in which the first call of that name on that file ended."""
        for number, line in enumerate(self.lines):
            if f" {name}(" in line and place in line:
                if "<unfinished ...>" not in line:
                    return number
                thread = line.split(" ", 1)[0]
                return self._resumed(number, thread, name)
        raise AssertionError(f"no {name} on {place}")

    def first(self, *words: str) -> int:
        """The number of the first line with all these words."""
        found = [n for n, line in enumerate(self.lines) if all(word in line for word in words)]
        assert found, f"no line with {words}"
        return found[0]

    def end(self, pid: int) -> None:
        """Stop tracing the process: what a call waits for by `delay_exit` is over at once."""
        found = re.search(r"^TracerPid:\t(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.M)
        assert found is not None
        os.kill(int(found[1]), signal.SIGKILL)

    def _resumed(self, begun: int, thread: str, name: str) -> int:
        for number, line in enumerate(self.lines):
            if number > begun and line.startswith(f"{thread} ") and f"<... {name} resumed>" in line:
                return number
        raise AssertionError(f"{name} never ended")


@dataclass(frozen=True, slots=True)
class Injection:
    """What happens at which call, counted in each thread for itself; at every one without `nth`."""

    calls: str
    effect: str
    nth: int | None = None

    @property
    def options(self) -> list[str]:
        """The options of strace."""
        inject = f"inject={self.calls}:{self.effect}"
        when = "" if self.nth is None else f":when={self.nth}"
        return ["-e", f"trace={self.calls}", "-e", inject + when]


@asynccontextmanager
async def killed_at(pid: int, calls: str) -> AsyncIterator[None]:
    """Have a running process killed as soon as it makes one of these calls."""
    skip_where_forbidden()
    options = Injection(calls, "signal=KILL").options
    command = ("strace", "-f", "-qq", "-o", "/dev/null", *options, "-p", str(pid))
    strace = await asyncio.create_subprocess_exec(*command)
    try:
        await eventually(lambda: _traced(pid))
        yield
        await strace.wait()
    finally:
        if strace.returncode is None:
            strace.kill()
            await strace.wait()


def _traced(pid: int) -> bool:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return not any("TracerPid:\t0\n" in (thread / "status").read_text() for thread in threads)


def skip_where_forbidden() -> None:
    """Skip the test where no process may be traced."""
    if shutil.which("strace") is None:
        pytest.skip("there is no strace here")
    tried = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"tracing is not allowed here: {tried.stderr.strip()}")
