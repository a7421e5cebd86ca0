"""From a cassette's name to its files.

               ROOT/.gitignore             written with the first cassette
smoke/login ─► ROOT/smoke/login.json       the cassette, or login.yaml, login.yml
               ROOT/smoke/login.journal    what was recorded since
               ROOT/smoke/.login.lock      held by the one who records
               ROOT/smoke/login.assets/    its large bodies
"""

import errno
import os
import shlex
import stat
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

from tapeway.core.http.routing import check_cassette_name, valid_cassette_name
from tapeway.errors import CassetteCorrupt, OtherToolsFile, StoreError
from tapeway.formats.cassette_file import (
    JSON,
    SERIALIZER_BY_SUFFIX,
    Serializer,
    begins_like_cassette,
)
from tapeway.stores.file.journal import is_only_begun
from tapeway.stores.support.durable_files import (
    OPEN_FOLDER,
    create_file,
    make_folder,
    make_root,
    read_error,
    store_error,
    write_all,
)

JOURNAL = ".journal"
_DEEPEST = 8
_FOLDERS = 16
LOOK_UPS = 100
"""How many new names are compared with the former content of a folder."""

_GIT_IGNORE = ".gitignore"
_GIT_IGNORED = b"""# Of tapeway: locks, and recordings that are not in a cassette's file yet.
*.journal
.*.lock
.*.tmp
"""


class Paths:
    """The files of one cassette. Raises RequestError for a name that is none.

    Its file is the one that `settle` found, or is to be in the format given.
    """

    def __init__(
        self,
        root: Path,
        name: str,
        serializer: Serializer = JSON,
        folder_names: "FolderNames | None" = None,
    ) -> None:
        """`folder_names` are those that a store remembers; without, a folder is read each time."""
        self._root = root
        self._folder_names = folder_names or FolderNames()
        *self._folders, self._stem = check_cassette_name(name).split("/")
        self._preferred = self._stem + serializer.suffixes[0]
        self.cassette = self._preferred
        self.journal = self._stem + JOURNAL
        self.lock = f".{self._stem}.lock"
        self.assets = f"{self._stem}.assets"
        self.candidates = tuple([self._stem + ending for ending in SERIALIZER_BY_SUFFIX])
        self._others: dict[str, str] = {}

    @property
    def serializer(self) -> Serializer:
        """How its file is written."""
        return SERIALIZER_BY_SUFFIX[self.cassette.removeprefix(self._stem)]

    def settle(self, folder: int) -> None:
        """Find out which file is there. Raises CassetteCorrupt where there are several, OSError.

        A file of another tool stays beside the cassette, and the cassette gets another suffix.
        """
        present = [file for file in self.candidates if _is_there(folder, file)]
        tools = {file: _tool_of(folder, file) for file in present}
        self._others = {file: tool for file, tool in tools.items() if tool is not None}
        own = [file for file in present if file not in self._others]
        if len(own) > 1:
            raise CassetteCorrupt(
                f"{self.shown(own[0])} and {own[1]} are both there, and a cassette is one file: "
                "move one of them away"
            )
        free = [file for file in (self._preferred, *self.candidates) if file not in self._others]
        # With no suffix left, a write meets the file that is there, and fails.
        self.cassette = [*own, *free, self._preferred][0]

    def refuse_other_tools(self, folder: int) -> None:
        """Raise OtherToolsFile where another tool's file is there, and no cassette. Settle first."""
        if not self._others or any(_is_there(folder, own) for own in (self.cassette, self.journal)):
            return
        file, tool = next(iter(self._others.items()))
        raise OtherToolsFile(
            f"{self.shown(file)} holds recordings of {tool}: to bring them over, run "
            f"tapeway cassette convert --all {shlex.quote(str(self._root))}"
        )

    def shown(self, file: str) -> str:
        """A file's path for messages."""
        return str(self._root.joinpath(*self._folders, file))

    def open_folder(self) -> int | None:
        """A descriptor of the cassette's folder, or None where there is none.

        Below the root no symbolic link is followed. Raises StoreError.
        """
        try:
            return self._open_folder(create=False)
        except FileNotFoundError:
            return None

    def make_folder(self) -> int:
        """A descriptor of the cassette's folder; missing folders are made. Raises StoreError."""
        try:
            return self._open_folder(create=True)
        except FileNotFoundError as exc:
            raise store_error(exc, self.shown(""), "make the folder") from exc

    def _open_folder(self, *, create: bool) -> int:
        path = self._root
        try:
            if create:
                make_root(path)
            folder = os.open(path, OPEN_FOLDER)
            if create:
                _begin_git_ignore(folder)
            for segment in self._folders:
                path /= segment
                folder = self._step(folder, segment, path, create=create)
        except FileNotFoundError:
            raise
        except OSError as exc:
            if exc.errno in (errno.ELOOP, errno.ENOTDIR):
                message = f"{path} is no folder, or a symbolic link to one: move it away"
                raise StoreError(message, status=503) from exc
            failed = store_error if create else read_error
            raise failed(exc, str(path), "open the folder") from exc
        return folder

    def _step(self, folder: int, segment: str, path: Path, *, create: bool) -> int:
        try:
            if create:
                self._refuse_twin(folder, {segment}, str(path.parent))
                make_folder(folder, segment)
            return os.open(segment, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        finally:
            os.close(folder)

    def open_assets(self, folder: int, *, create: bool = False) -> int:
        """A descriptor of the folder beside the cassette. Raises OSError, CassetteCorrupt."""
        if create:
            make_folder(folder, self.assets)
        try:
            return os.open(self.assets, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        except OSError as exc:
            if exc.errno in (errno.ELOOP, errno.ENOTDIR):
                place = self.shown(self.assets)
                raise CassetteCorrupt(f"{place} is no folder, or a link: move it away") from exc
            raise

    def refuse_twin(self, folder: int) -> None:
        """Raise StoreError where the name is taken by one that differs only in case."""
        self._refuse_twin(folder, {*self.candidates, self.journal}, self.shown(""))

    def _refuse_twin(self, folder: int, names: set[str], place: str) -> None:
        # On a file system that does not tell letter case apart the two would be one cassette.
        if (taken := self._folder_names.twin(folder, names)) is not None:
            raise StoreError(
                f"'{taken}' in {place} differs from the new name only in case: use one of them",
                status=409,
                code="cassette_name_taken",
            )

    def temporary(self, ending: str) -> str:
        """The name of a file under construction."""
        return f".{self._stem}.{ending}.tmp"

    def from_folder(self, file: str) -> str:
        """The path of a file of the root, from the cassette's folder."""
        return "../" * len(self._folders) + file

    def leftovers(self, folder: int) -> list[str]:
        """Files under construction that a crash left behind; call it holding the lock."""
        start, end = self.temporary("\0").split("\0")
        # The ending has no dot, so the leftovers of `a.b` are not taken for those of `a`.
        return [
            file
            for file in os.listdir(folder)
            if file.startswith(start)
            and file.endswith(end)
            and "." not in file[len(start) : -len(end)]
        ]


def find_names(root: Path) -> list[str]:
    """The names of all cassettes below the root, sorted. Raises OSError."""
    return sorted(set(_names_below(root, ())))


def _names_below(folder: Path, above: tuple[str, ...]) -> Iterator[str]:
    try:
        with os.scandir(folder) as listing:
            entries = list(listing)
    except FileNotFoundError:
        return
    journals: list[str] = []
    for entry in entries:
        if entry.is_dir(follow_symlinks=False) and len(above) < _DEEPEST - 1:
            yield from _names_below(folder / entry.name, (*above, entry.name))
        elif entry.is_file(follow_symlinks=False):
            stem, ending = os.path.splitext(entry.name)
            name = "/".join((*above, stem))
            if ending in (*SERIALIZER_BY_SUFFIX, JOURNAL) and valid_cassette_name(name):
                if ending == JOURNAL:
                    journals.append(name)
                else:
                    yield name
    yield from _with_recordings(folder, journals)


def _with_recordings(folder: Path, journals: Sequence[str]) -> Iterator[str]:
    """The cassettes with a journal that holds a recording."""
    if not journals:
        return
    fd = os.open(folder, OPEN_FOLDER)
    try:
        for name in journals:
            # A missing journal was folded into its cassette's file just now.
            with suppress(FileNotFoundError):
                if is_only_begun(fd, name.rpartition("/")[2] + JOURNAL):
                    continue
            yield name
    finally:
        os.close(fd)


def _is_there(folder: int, file: str) -> bool:
    try:
        status = os.stat(file, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    # A folder belongs to cassettes whose names begin with the folder's name.
    return not stat.S_ISDIR(status.st_mode)


def _tool_of(folder: int, file: str) -> str | None:
    """The other tool that wrote a file; None also for an unreadable file, which a load reports."""
    try:
        if not stat.S_ISREG(os.stat(file, dir_fd=folder, follow_symlinks=False).st_mode):
            return None
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        with open(fd, "rb") as opened:
            if begins_like_cassette(opened):
                return None
            # Nearly no store has such a file, and the formats take a while to be imported.
            from tapeway.formats.registry import tool_of

            opened.seek(0)
            return tool_of(opened, os.path.splitext(file)[1])
    except OSError:
        return None


class FolderNames:
    """The names in folders to which cassettes are added, which may be thousands.

    A folder is read again before a name is refused, and after many look-ups: another process may
    have added a name. Two processes that record at the same moment are not kept apart either way.

    A folder is known by the inode number, which the system reuses for later folders: each store has
    a new FolderNames, which begins empty.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._names: OrderedDict[tuple[int, int], dict[str, str]] = OrderedDict()
        self._left: dict[tuple[int, int], int] = {}

    def twin(self, folder: int, names: set[str]) -> str | None:
        """The file name that differs from one of `names` only in case, if none of `names` is there.

        Raises OSError.
        """
        fstat = os.fstat(folder)
        at = fstat.st_dev, fstat.st_ino
        with self._lock:
            known = self._names.get(at)
            if known is not None and any(
                known.get(name.lower()) == name and _exists(folder, name) for name in names
            ):
                return None
            if known is None or not self._left[at] or not self._are_new(folder, names, known):
                present = os.listdir(folder)
                known = {name.lower(): name for name in present}
                self._remember(at, known)
                if names.intersection(present):
                    return None
                if taken := [known[name.lower()] for name in names if name.lower() in known]:
                    return taken[0]
            self._left[at] -= 1
            known.update((name.lower(), name) for name in names)
        return None

    @staticmethod
    def _are_new(folder: int, names: set[str], known: dict[str, str]) -> bool:
        """Whether no such name is known, nor there: where letter case is not told apart, a twin is."""
        return known.keys().isdisjoint(map(str.lower, names)) and not any(
            _exists(folder, name) for name in names
        )

    def _remember(self, at: tuple[int, int], known: dict[str, str]) -> None:
        self._names[at], self._left[at] = known, LOOK_UPS
        self._names.move_to_end(at)
        if len(self._names) > _FOLDERS:
            oldest, _ = self._names.popitem(last=False)
            del self._left[oldest]


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _begin_git_ignore(folder: int) -> None:
    """Write a .gitignore into a folder for cassettes, before the first lock, unless there is one.

    An empty one stays as it is. Errors do not matter here: no recording depends on it.
    """
    with suppress(OSError):
        with suppress(FileNotFoundError):
            os.stat(_GIT_IGNORE, dir_fd=folder, follow_symlinks=False)
            return
        fd = create_file(folder, _GIT_IGNORE, os.O_WRONLY)
        try:
            write_all(fd, _GIT_IGNORED)
        except OSError:
            os.unlink(_GIT_IGNORE, dir_fd=folder)
        finally:
            os.close(fd)
