"""Documents of a cassette, for tools that read or change cassettes while nobody records."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.errors import StoreError
from tapeway.formats.fields import Document
from tapeway.stores.file import snapshot
from tapeway.stores.file.paths import JOURNAL, Paths
from tapeway.stores.file.snapshot import Snapshot, SnapshotDocuments
from tapeway.stores.file.writer import CassetteWriter
from tapeway.stores.support.durable_files import store_error, sync_folder
from tapeway.stores.support.resident_recordings import ResidentRecordings


@dataclass(frozen=True, slots=True)
class OfflineInteraction:
    """An interaction, and the document in the file."""

    document: Document
    item: AnyInteraction


@dataclass(frozen=True, slots=True)
class OfflineCassette:
    """A cassette of a folder, with the entries of the journal."""

    head: CassetteHead
    documents: SnapshotDocuments
    items: Sequence[AnyInteraction]

    @property
    def interactions(self) -> Iterator[OfflineInteraction]:
        """The interactions in order, read anew each time. Raises StoreError."""
        for document, item in zip(self.documents, self.items, strict=True):
            yield OfflineInteraction(document, item)
            if isinstance(item, LazyInteraction):
                item.forget()


@dataclass(frozen=True, slots=True)
class ClaimedCassette:
    """A cassette that nobody else records into, and its writer."""

    cassette: OfflineCassette
    replace: Callable[[CassetteHead, Iterable[Document]], None]
    """Writes this instead, atomically. Raises StoreError."""


def read(root: Path, name: str) -> OfflineCassette:
    """The cassette, unlocked. Raises StoreError, CassetteCorrupt, RequestError for no name."""
    paths = Paths(root, name)
    folder = paths.open_folder()
    if folder is None:
        raise _missing(paths)
    try:
        snapshot.settle(folder, paths)
        return _offline_cassette(snapshot.take(folder, paths), folder, paths)
    finally:
        os.close(folder)


@contextmanager
def claimed(root: Path, name: str) -> Iterator[ClaimedCassette]:
    """The cassette, claimed; what is not replaced is not touched.

    Raises CassetteLocked while somebody records into it, and all that `read` raises.
    """
    read(root, name)
    paths = Paths(root, name)
    writer = CassetteWriter.take(paths)
    try:
        now = snapshot.take(writer.folder, paths)

        def replace(head: CassetteHead, documents: Iterable[Document]) -> None:
            writer.resume(now)
            writer.replace(head, documents)
            # What was taken out of a body must not stay beside the cassette.
            writer.sweep()

        yield ClaimedCassette(_offline_cassette(now, writer.folder, paths), replace)
    finally:
        writer.close()


def rename(root: Path, old: str, new: str) -> None:
    """Rename a cassette: the file, byte for byte and in the present format, and the large bodies.

    A second call finishes a rename that was broken off. Raises CassetteLocked while somebody
    records into either cassette, StoreError where the new name is taken, CassetteCorrupt.
    """
    paths = Paths(root, old)
    writer = CassetteWriter.take(paths)
    try:
        now = snapshot.take(writer.folder, paths)
        if not now.exists:
            raise _missing(paths)
        # Raises CassetteCorrupt.
        now.documents()
        writer.resume(now)
        writer.fold()
        new_paths = Paths(root, new, paths.serializer)
        other = CassetteWriter.take(new_paths)
        try:
            _move(writer.folder, paths, other.folder, new_paths)
        finally:
            other.close()
    finally:
        writer.close()


def _move(folder: int, old: Paths, other_folder: int, new: Paths) -> None:
    if snapshot.take(other_folder, new).exists:
        raise StoreError(
            f"{new.shown(new.cassette)}: there is a cassette of this name already", status=409
        )
    # Its suffix stays too, `.yml` as `.yml`.
    target = new.journal.removesuffix(JOURNAL) + Path(old.cassette).suffix
    try:
        with suppress(FileNotFoundError):
            os.rename(old.assets, new.assets, src_dir_fd=folder, dst_dir_fd=other_folder)
        os.rename(old.cassette, target, src_dir_fd=folder, dst_dir_fd=other_folder)
        for changed in (other_folder, folder):
            sync_folder(changed)
    except OSError as exc:
        raise store_error(exc, old.shown(old.cassette), "rename the cassette") from exc


def _offline_cassette(now: Snapshot, folder: int, paths: Paths) -> OfflineCassette:
    if not now.exists:
        raise _missing(paths)
    cassette = now.cassette(folder, ResidentRecordings())
    return OfflineCassette(cassette.head, now.documents(), cassette.interactions)


def _missing(paths: Paths) -> StoreError:
    return StoreError(f"{paths.shown(paths.cassette)}: there is no such cassette", status=404)
