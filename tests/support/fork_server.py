"""A process that has imported tapeway, and forks where a test would start another.

An interpreter works for half a second to import tapeway, and for four to import LiteLLM, before it
does what is tested. The child gets what a start gives: arguments, environment, folder, umask,
limits, rights and the first three descriptors. A test of the start itself, or of options of the interpreter, starts one
from scratch.
"""

import contextlib
import ctypes
import fcntl
import gc
import os
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from runpy import run_module, run_path
from typing import Any, cast

_IMPORTED = (
    "uvloop",
    "re2",
    "tapeway.cli.doctor",
    "tapeway.cli.run.authority",
    "tapeway.cli.run.command",
    "tapeway.cli.serve",
    "tapeway.cli.main",
    "tapeway.admin.app",
    "tapeway.admin.listener",
    "tapeway.html_report.collection",
    "tapeway.stores.postgres.store",
    "tapeway.stores.sqlite.store",
    "tapeway.embedded.deck",
    "pytest",
)
"""Also what a process imports when it is first asked for, such as the admin API."""
_CAPABILITY_VERSION_3 = 0x20080522
_HIGH = 200
"""Descriptors from here on are nobody's."""

_CLIENT = Path(__file__).with_name("fork_client.py")
_servers: list[subprocess.Popen[bytes]] = []


@cache
def program() -> Path:
    """A program `tapeway`, in a folder with `pytest`, that a fork server runs; `-m` runs a module.

    It ends as the child does, passes on what asks it to stop, and takes the child along if it ends
    before.
    """
    return _programs(sys.executable, _IMPORTED, "tapeway", "pytest") / "tapeway"


@cache
def with_clients() -> Path:
    """A folder of programs that have imported OpenAI's package too: the same, and `python`."""
    return _programs(sys.executable, (*_IMPORTED, "openai"), "tapeway", "pytest", "python")


@cache
def python(interpreter: str, *imported: str) -> Path:
    """A program `python`, alone in a folder: that interpreter, which has imported these modules."""
    return _programs(interpreter, imported, "python") / "python"


def _programs(interpreter: str, imported: Sequence[str], *names: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tapeway-fork-"))
    server = subprocess.Popen(
        [interpreter, "-P", __file__, str(folder), *imported],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # LiteLLM fetches a list when it is imported, unless it is told to use its own.
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    )
    _servers.append(server)
    for name in names:
        started = folder / name
        started.write_text(f"#!{sys.executable} -IS\n{_CLIENT.read_text()}")
        started.chmod(0o755)
    assert server.stdout is not None
    assert server.stdout.read() == b"listens"
    return folder


def command() -> tuple[str, ...]:
    """What runs that program."""
    return (sys.executable, "-IS", str(program()))


def stop() -> None:
    """End the server of this process, if there is one."""
    while _servers:
        with _servers.pop():
            # It ends with its stdin, which leaving closes.
            continue


def _children(folder: Path) -> list[str]:
    """Returns in each child, with its arguments."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen(100)
        os.write(1, b"listens")
        os.dup2(2, 1)
        while 0 not in select.select([0, listener.fileno()], [], [])[0]:
            client, _ = listener.accept()
            with client:
                if os.fork() == 0:
                    listener.close()
                    return _child(client)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
    shutil.rmtree(folder)
    sys.exit()


def _child(client: socket.socket) -> list[str]:
    size = int.from_bytes(client.recv(8, socket.MSG_WAITALL))
    asked, descriptors, _, _ = socket.recv_fds(client, 1, 3)
    (asking,) = struct.unpack("i8x", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    while len(asked) < size:
        asked += client.recv(size - len(asked))
    child = os.fork()
    if child:
        for descriptor in (*range(3), *descriptors):
            os.close(descriptor)
        _wait(child, client)
    client.close()
    folder, umask, count, *rest = asked.split(b"\0")
    _move(descriptors)
    variables, arguments = rest[: int(count)], rest[int(count) :]
    os.chdir(folder)
    os.umask(int(umask))
    os.environb.clear()
    for name, _, value in (variable.partition(b"=") for variable in variables):
        os.environb[name] = value
    _limit_like(asking)
    return [os.fsdecode(argument) for argument in arguments]


def _limit_like(pid: int) -> None:
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, resource.prlimit(pid, limit))
    rights = _rights(pid)
    if rights != _rights(os.getpid()):
        words = [limit >> shift & 0xFFFFFFFF for shift in (0, 32) for limit in rights]
        header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
        if ctypes.CDLL(None).capset(header, struct.pack("6I", *words)):
            raise OSError(f"the rights of process {pid} could not be taken over")


def _rights(pid: int) -> tuple[int, ...]:
    status = Path(f"/proc/{pid}/status").read_text()
    names = ("CapEff", "CapPrm", "CapInh")
    return tuple(int(status.split(f"{name}:")[1].split()[0], 16) for name in names)


def _move(descriptors: list[int]) -> None:
    # One may have the number that is another's in the end.
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _HIGH) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, number in zip(high, range(3), strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _wait(child: int, client: socket.socket) -> None:
    """Tell the client how the child ended; one that is gone takes the child along."""
    ended = os.pidfd_open(child)
    while ended not in select.select([ended, client.fileno()], [], [])[0]:
        number = client.recv(1)
        os.kill(child, number[0] if number else signal.SIGKILL)
        if not number:
            break
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    try:
        client.sendall(code.to_bytes(2, signed=True))
    finally:
        os._exit(0)


def _interpret(arguments: list[str]) -> None:
    """Do what an interpreter does with these."""
    safe_path = arguments[0] == "-P"
    arguments = arguments[safe_path:]
    while arguments[0] == "-W":
        warnings.simplefilter(cast("Any", arguments[1]))
        arguments = arguments[2:]
    first, *rest = arguments
    name, sys.argv = (first, rest) if first not in ("-m", "-c") else (rest[0], rest[1:])
    sys.argv.insert(0, name)
    own = os.path.dirname(os.path.abspath(name)) if first == name else os.getcwd()
    sys.path[:0] = [*[own][safe_path:], *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    if first == "-m":
        run_module(name, run_name="__main__", alter_sys=True)
    elif first == "-c":
        exec(compile(name, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - a test's
    else:
        run_path(name, run_name="__main__")


if __name__ == "__main__":
    for module in sys.argv[2:]:
        import_module(module)
    if "tapeway" in sys.modules:
        # A child that is pytest must not warn that these modules keep their asserts as they are.
        vars(sys.modules["tapeway"])["__doc__"] = "PYTEST_DONT_REWRITE"
    gc.collect()
    gc.freeze()
    folder = Path(sys.argv[1])
    match _children(folder):
        case ["-m" | "-c", *_] as arguments:
            _interpret(arguments)
        case ["python", *arguments]:
            _interpret(arguments)
        case arguments:
            sys.argv = ["tapeway", *arguments]
            sys.modules["tapeway.cli.main"].main()
