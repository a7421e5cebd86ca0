"""Disks that fail at a call, and what a folder could look like after a crash at any moment.

While a disk is watched, every call of the store that changes it is noted, and before and after each
the folder is kept in four conditions: as a killed process leaves it, and as a power cut leaves it
when nothing survived but what was synced, when removals got through besides, and when all names did
but not the contents.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Files = dict[str, bytes]

_CHANGING = ("write", "fsync", "fdatasync", "rename", "unlink", "ftruncate")


_TOUCHING = (
    "open",
    "write",
    "fsync",
    "fdatasync",
    "rename",
    "unlink",
    "ftruncate",
    "close",
    "fchmod",
)


class FaultyDisk:
    """Lets the n-th call that touches the disk fail, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, calls: Sequence[str] = _TOUCHING) -> None:
        self.count = 0
        self.fails_at: Callable[[int, str], bool] = lambda _, __: False
        self.error = errno.EIO
        for name in calls:
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.fails_at(self.count, name):
                if name == "close":
                    call(*args, **kwargs)
                raise OSError(self.error, os.strerror(self.error))
            return call(*args, **kwargs)

        return wrapped


@dataclass
class CrashState:
    """A folder after a crash: at which call, in which condition, and what was acknowledged."""

    at: str
    condition: str
    files: Files
    acknowledged: list[bytes]

    def put(self, folder: Path) -> None:
        folder.mkdir()
        for name, content in self.files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)


@dataclass
class WatchedDisk:
    """Notes all crash states of a folder and those in it; add to `acknowledged` what was told.

    A call it `forgets` is taken for done without effect, to see that the effect was needed.
    """

    folder: Path
    forgets: str = ""
    acknowledged: list[bytes] = field(default_factory=list)
    states: list[CrashState] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    _synced: dict[int, bytes] = field(default_factory=dict)
    _names: dict[int, dict[str, int]] = field(default_factory=dict)
    _held: list[int] = field(default_factory=list)
    _folders: set[int] = field(default_factory=set)

    @contextmanager
    def watching(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        with monkeypatch.context() as patch:
            for name in _CHANGING:
                patch.setattr(os, name, self._watched(name, getattr(os, name)))
            patch.setattr(os, "open", self._opening(os.open))
            try:
                yield
            finally:
                for fd in self._held:
                    os.close(fd)

    def settle(self) -> None:
        """Take everything that is there now for synced long ago."""
        os.sync()
        for path in (self.folder, *self.folder.rglob("*")):
            fd = os.open(path, os.O_RDONLY)
            self._held.append(fd)
            self._sync(fd)

    def crashes(self, place: Path) -> Iterator[tuple[Path, CrashState]]:
        """Each different state in a folder of its own, below a place."""
        seen: set[tuple[frozenset[tuple[str, bytes]], int]] = set()
        for state in self.states:
            outcome = (frozenset(state.files.items()), len(state.acknowledged))
            if outcome not in seen:
                seen.add(outcome)
                folder = place / f"crash-{len(seen)}"
                state.put(folder)
                yield folder, state

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._note(f"before {name}")
            result = call(*args, **kwargs)
            if name in ("fsync", "fdatasync") and name != self.forgets:
                self._sync(args[0])
            self.calls.append(name)
            self._note(f"after {name}")
            return result

        return watched

    def _opening(self, call: Callable[..., int]) -> Callable[..., int]:
        def opening(path: str, flags: int, *args: Any, **kwargs: Any) -> int:
            fd = call(path, flags, *args, **kwargs)
            if flags & os.O_CREAT and not str(path).endswith(".lock"):
                # Held open, so that no later file gets the same inode number.
                self._held.append(os.dup(fd))
            return fd

        return opening

    def _sync(self, fd: int) -> None:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            entries = Path(f"/proc/self/fd/{fd}").iterdir()
            self._names[found.st_ino] = names = {}
            for entry in entries:
                names[entry.name] = entry.stat().st_ino
                if entry.is_dir():
                    self._folders.add(names[entry.name])
        else:
            self._synced[found.st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()

    def _note(self, at: str) -> None:
        at = f"{at} #{len(self.calls)}"
        now = {
            str(path.relative_to(self.folder)): path
            for path in self.folder.rglob("*")
            if not path.is_dir()
        }
        killed = {name: path.read_bytes() for name, path in now.items()}
        durable = self._durable(self.folder.stat().st_ino)
        unplugged = {name: self._synced.get(inode, b"") for name, inode in durable.items()}
        removed = {name: content for name, content in unplugged.items() if name in now}
        named = {name: self._synced.get(path.stat().st_ino, b"") for name, path in now.items()}
        conditions = {
            "killed": killed,
            "unplugged": unplugged,
            "removed": removed,
            "named": named,
        }
        for condition, files in conditions.items():
            self.states.append(CrashState(at, condition, files, list(self.acknowledged)))

    def _durable(self, folder: int) -> dict[str, int]:
        """The files whose names, and the names of the folders they are in, were synced."""
        found: dict[str, int] = {}
        for name, inode in self._names.get(folder, {}).items():
            if inode in self._folders:
                inner = self._durable(inode)
                found |= {f"{name}/{other_name}": file for other_name, file in inner.items()}
            else:
                found[name] = inode
        return found
