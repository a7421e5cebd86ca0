"""The location of a SQLite store: its file, and the files beside it.

calls.db         the recordings             calls.db-wal, -shm    SQLite's own
calls.db.lock    who writes, and how much was acknowledged
"""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Literal

from tapeway.errors import CassetteCorrupt, CassetteUnreadable, ConfigError, StoreError
from tapeway.stores.support.durable_files import FILE_MODE, make_root, store_error, sync_folder

MOUNTS = Path("/proc/self/mountinfo")

_BESIDE = ("", "-wal", "-shm", "-journal", ".lock")
# Locks of one machine are not seen on another, and SQLite's memory of the log is not shared.
_NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "beegfs"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse"),
    }
)


_COMMON_MEMORY = 64 * 1024
"""More than SQLite writes before the first look."""


class StoreFileAbsent(Exception):
    """There is no file, or it is empty."""


class StoreLocation:
    """A store's file, examined by name and never opened here.

    A process that closes a second descriptor of the file loses SQLite's locks on it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def lock(self) -> Path:
        return self.beside(".lock")

    def beside(self, ending: str) -> Path:
        """The file with this ending beside it."""
        return self.path.with_name(self.path.name + ending)

    @property
    def writable(self) -> bool:
        """Whether the file can be written, or created in its folder."""
        folder = self.folder
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return os.access(folder, os.W_OK) and (
            not self.path.exists() or os.access(self.path, os.W_OK)
        )

    @property
    def role(self) -> Literal["read", "copy", "copy with log"]:
        """`read` while a process may write, a copy on a disk that takes nothing.

        A connection beside one that writes needs a file of SQLite's for their common memory; who uses a
        log has made that file.
        """
        log = self.beside("-wal")
        has_log = log.exists() and log.stat().st_size > 0
        in_use = has_log and self.beside("-shm").exists()
        if in_use or (self.writable and self._has_room()):
            return "read"
        return "copy with log" if has_log else "copy"

    @property
    def number(self) -> tuple[int, int] | None:
        """What tells the file from one that is put in its place; None where there is none."""
        status = self._status()
        return None if status is None else (status.st_dev, status.st_ino)

    @property
    def state(self) -> object:
        """What differs where a connection that reads has to be made anew."""
        status = self._status()
        if status is None or self.role == "read":
            return self.number
        return self.number, status.st_mtime_ns, status.st_size

    def _status(self) -> os.stat_result | None:
        try:
            return os.stat(self.path)
        except OSError:
            return None

    def _has_room(self) -> bool:
        disk = os.statvfs(self.folder)
        return disk.f_bavail * disk.f_frsize >= _COMMON_MEMORY

    def refuse_read_only(self) -> None:
        """Raise StoreError for a file that cannot be written."""
        if self.path.exists() and not os.access(self.path, os.R_OK):
            raise CassetteUnreadable(f"{self} cannot be read: check the permissions")
        if not self.writable:
            raise StoreError(
                f"{self} cannot be written: check the permissions, or replay only", status=503
            )

    def examine(self) -> os.stat_result:
        """The file's status. Raises StoreFileAbsent; CassetteCorrupt or StoreError for no regular file."""
        try:
            # The file last: the log is made after the file, perhaps at this moment.
            files = [self._file(ending) for ending in reversed(_BESIDE)][::-1]
        except OSError as exc:
            if exc.errno == errno.ENOTDIR:
                raise ConfigError(
                    f"{self.folder} is not a folder: give --store another one"
                ) from exc
            raise store_error(exc, str(self), "examine the file") from exc
        if files[0] is not None:
            return files[0]
        if (log := files[1]) is not None and log.st_size:
            raise CassetteCorrupt(
                f"{self.beside('-wal')} is there and {self} is not: put that back, or move the "
                "other away to begin anew"
            )
        raise StoreFileAbsent

    def refuse_network(self) -> None:
        """Raise ConfigError for a file on a network file system."""
        kind = _file_system(self.folder, MOUNTS)
        if kind in _NETWORK:
            raise ConfigError(
                f"{self} lies on a network file system ({kind}), where SQLite can lose recordings: "
                "use a local disk, or postgresql://… for several machines"
            )

    def create(self) -> None:
        """Create an empty file, and its folder, where there is none. Raises StoreError."""
        try:
            make_root(self.folder)
            created = os.open(
                self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE
            )
        except FileExistsError:
            return
        except OSError as exc:
            raise store_error(exc, str(self), "create the file") from exc
        try:
            os.fchmod(created, FILE_MODE)
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                sync_folder(folder)
            finally:
                os.close(folder)
        except OSError as exc:
            raise store_error(exc, str(self), "create the file") from exc
        finally:
            os.close(created)

    def make_private(self) -> None:
        """Take other users' permissions away; SQLite gives this mode to the files beside."""
        with suppress(OSError):
            if stat.S_IMODE(os.stat(self.path).st_mode) & 0o077:
                os.chmod(self.path, FILE_MODE)

    def _file(self, ending: str) -> os.stat_result | None:
        path = self.beside(ending)
        try:
            lstat = os.lstat(path)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(lstat.st_mode):
            raise CassetteCorrupt(f"{path} is a symbolic link: put the file itself there")
        if not stat.S_ISREG(lstat.st_mode):
            raise CassetteCorrupt(f"{path} is not a regular file: move it away")
        if lstat.st_nlink > 1:
            raise CassetteCorrupt(f"{path} has a second name (a hard link): put a copy there")
        return lstat


def _file_system(folder: Path, mounts: Path) -> str:
    """The kind of file system a folder is on, empty where it is unknown."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    there = folder.resolve()
    best, kind = -1, ""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        mounted = Path(fields[4].encode().decode("unicode_escape"))
        # Of two mounts on a folder the later mount is on top.
        if there.is_relative_to(mounted) and len(mounted.parts) >= best:
            best, kind = len(mounted.parts), after.split(" ", 1)[0]
    return kind
