"""Processes in which the n-th call of a kind fails or is the last: `strace` tampers with them.

One process that has loaded everything forks those, so that there can be hundreds.
"""

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.process.strace import Injection, skip_where_forbidden

PROJECT = Path(__file__).parents[3]
_PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a process ended, the lines it wrote, and whether the call was reached."""

    killed: bool
    lines: list[str]
    reached: bool


class ForkServer:
    """Runs the fixed work on stores given to it, in a process for each."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, url: str, folder: Path, injection: Injection | None) -> Outcome:
        """One process, from its beginning to its end; its files are written into the folder."""
        trace, output = folder / "trace", folder / "output"
        pid = int(self._ask(f"{url}\t{output}"))
        strace = None
        if injection is not None:
            strace = subprocess.Popen(
                ["strace", "-f", "-q", "-o", trace, *injection.options, "-p", str(pid)],
                stderr=subprocess.PIPE,
            )
            _wait_until_traced(pid)
        status = int(self._ask("go"))
        if strace is not None:
            assert strace.stderr is not None
            strace.stderr.close()
            strace.wait(_PATIENCE_S)
        text = trace.read_text() if strace is not None else ""
        reached = re.search(r"\(INJECTED\)|\+\+\+ killed by SIGKILL", text) is not None
        lines = output.read_text().splitlines() if output.exists() else []
        return Outcome(os.WIFSIGNALED(status), lines, reached)

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        readable, _, _ = select.select([self._process.stdout], [], [], _PATIENCE_S)
        assert readable, f"no answer to {line}"
        return self._process.stdout.readline()


@contextmanager
def fork_server() -> Iterator[ForkServer]:
    """The process that forks them; skips the test where tracing is not allowed."""
    skip_where_forbidden()
    with subprocess.Popen(
        [sys.executable, "-m", "tests.stores.crashes.traced_processes"],
        cwd=PROJECT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        yield ForkServer(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(_PATIENCE_S)


def _wait_until_traced(pid: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _serve() -> None:
    import asyncio

    # What a store is made of is imported here, once, and by none of the processes.
    from tapeway.stores.file import store as _file  # noqa: F401
    from tapeway.stores.sqlite import store as _sqlite  # noqa: F401
    from tests.stores.crashes import fixed_work

    for line in sys.stdin:
        url, output = line.rstrip("\n").split("\t")
        ready, go = os.pipe()
        if (pid := os.fork()) == 0:
            os.close(go)
            os.read(ready, 1)
            out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            asyncio.run(fixed_work.work(url, out))
            os._exit(0)
        os.close(ready)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        sys.stdin.readline()
        os.close(go)
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
