"""Large bodies beside a cassette, each in a file of `NAME.assets/` named by the SHA-256.

A body gets this name once the whole body is durable, and before any recording refers to the body.
tapeway removes a body only when the cassette's file, durable and without a journal, no longer
refers to the body.
"""

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace

from tapeway.core.digests import sha256
from tapeway.core.model.interaction import AnyInteraction, replace_large_bodies
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteCorrupt
from tapeway.stores.file.paths import Paths
from tapeway.stores.support.durable_files import (
    create_file,
    read_file,
    store_error,
    sync_data,
    sync_folder,
    write_all,
)

_ACTION = "write a large body"
_DIGITS = 64
_DIGEST = re.compile(rb"[0-9a-f]{%d}" % _DIGITS)
_NAME = re.compile(r"sha256-[0-9a-f]{64}")
_TEMPORARY = re.compile(r"\.[0-9a-f]{8}\.tmp")


class Draft:
    """A body on its way into a cassette's folder, under a passing name until it is adopted."""

    def __init__(self, folder: int, paths: Paths) -> None:
        """Raises StoreError where its file cannot be made."""
        self._place = paths.shown(paths.assets)
        self._name = f".{secrets.token_hex(4)}.tmp"
        self._size = 0
        self._digest = hashlib.sha256()
        try:
            self._assets = paths.open_assets(folder, create=True)
            try:
                self._fd = create_file(self._assets, self._name, os.O_WRONLY)
            except BaseException:
                os.close(self._assets)
                raise
        except OSError as exc:
            raise store_error(exc, self._place, _ACTION) from exc

    def write(self, pieces: Iterable[bytes]) -> None:
        """Durable on return, but for its name. Raises StoreError, and whatever `pieces` raises."""
        for piece in pieces:
            self._digest.update(piece)
            self._size += len(piece)
            try:
                write_all(self._fd, piece)
            except OSError as exc:
                raise store_error(exc, self._place, _ACTION) from exc
        try:
            sync_data(self._fd)
        except OSError as exc:
            raise store_error(exc, self._place, _ACTION) from exc

    def adopt(self) -> BodyFile:
        """Give the file its name, durably.

        An existing file is replaced: it may be damaged, and only reading would show the damage.
        """
        digest = self._digest.hexdigest()
        name = f"sha256-{digest}"
        try:
            os.rename(self._name, name, src_dir_fd=self._assets, dst_dir_fd=self._assets)
            sync_folder(self._assets)
        except OSError as exc:
            raise store_error(exc, self._place, _ACTION) from exc
        return BodyFile(f"{self._place}/{name}", self._size, digest)

    def close(self) -> None:
        """Leave nothing behind but what was adopted."""
        with suppress(OSError):
            os.unlink(self._name, dir_fd=self._assets)
        for fd in (self._fd, self._assets):
            with suppress(OSError):
                os.close(fd)


def keep_asset(folder: int, paths: Paths, content: bytes) -> None:
    """Make the file of a large body durable. Raises StoreError."""
    name = f"sha256-{sha256(content).hexdigest()}"
    try:
        assets = paths.open_assets(folder, create=True)
        try:
            held = read_file(assets, name, paths.shown(f"{paths.assets}/{name}"))
        finally:
            os.close(assets)
    except OSError as exc:
        raise store_error(exc, paths.shown(paths.assets), _ACTION) from exc
    if held is not None and len(held) == len(content) and held[: len(held)] == content:
        return
    draft = Draft(folder, paths)
    try:
        draft.write((content,))
        draft.adopt()
    finally:
        draft.close()


def placed(folder: int, paths: Paths, item: AnyInteraction) -> AnyInteraction:
    """The interaction with its large bodies found. Raises CassetteCorrupt for one that is lost."""
    return replace_large_bodies(item, lambda file: _placed(folder, paths, file))


def sweep(folder: int, paths: Paths, spared: Collection[str] = ()) -> None:
    """Remove the bodies whose digests are neither in the cassette's file nor spared.

    Call it when that file is durable and there is no journal. Raises OSError, StoreError.
    """
    try:
        assets = paths.open_assets(folder)
    except FileNotFoundError:
        return
    try:
        names = [name for name in os.listdir(assets) if _NAME.fullmatch(name)]
        kept = {*spared, *_spoken_of(folder, paths)} if names else set()
        unused = [name for name in names if name.removeprefix("sha256-") not in kept]
        if unused:
            # After a crash the journal may be there again, and refer to these bodies.
            sync_folder(folder)
        for name in unused:
            os.unlink(name, dir_fd=assets)
    finally:
        os.close(assets)
    with suppress(OSError):
        # rmdir removes the folder only if it is empty.
        os.rmdir(paths.assets, dir_fd=folder)


def remove_leftovers(folder: int, paths: Paths) -> None:
    """Remove what a crash left half written; call it holding the lock. Raises OSError."""
    try:
        assets = paths.open_assets(folder)
    except FileNotFoundError:
        return
    try:
        for name in os.listdir(assets):
            if _TEMPORARY.fullmatch(name):
                os.unlink(name, dir_fd=assets)
    finally:
        os.close(assets)


def _spoken_of(folder: int, paths: Paths) -> set[str]:
    file = read_file(folder, paths.cassette, paths.shown(paths.cassette))
    digests: set[str] = set()
    before = b""
    for piece in file.pieces() if file else ():
        text = before + piece
        digests |= {match[0].decode() for match in _DIGEST.finditer(text)}
        # One may be in two pieces.
        before = text[-_DIGITS + 1 :]
    return digests


def _placed(folder: int, paths: Paths, file: BodyFile) -> BodyFile:
    name = f"sha256-{file.digest}"
    path = paths.shown(f"{paths.assets}/{name}")
    try:
        assets = paths.open_assets(folder)
        try:
            size = _size(assets, name)
        finally:
            os.close(assets)
    except FileNotFoundError:
        size = None
    except OSError as exc:
        raise store_error(exc, path, "look at a large body") from exc
    if size is None:
        raise CassetteCorrupt(f"{path} is missing, and a recording refers to it: restore it")
    if size != file.size:
        raise CassetteCorrupt(
            f"{path} has {size} bytes, not the {file.size} that were recorded: restore it"
        )
    return replace(file, path=path)


def _size(assets: int, name: str) -> int | None:
    try:
        status = os.stat(name, dir_fd=assets, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else -1
