"""A cassette's file and journal as they were at one moment, read without a lock."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeVar

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.errors import CassetteCorrupt, CassetteEdited, StoreError
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document
from tapeway.formats.native.document import DocumentsOfFile, ParsedFile, decode, in_memory
from tapeway.stores.file import bodies
from tapeway.stores.file.journal import (
    CassetteJournal,
    JournalDamaged,
    JournaledRecording,
    pending,
    read,
)
from tapeway.stores.file.paths import Paths
from tapeway.stores.file.recording_file import SMALLEST_FILE, RecordingFile
from tapeway.stores.support.durable_files import (
    FileText,
    open_file,
    read_error,
    read_file,
    signature,
    signature_of,
)
from tapeway.stores.support.recording_order import RecordingOrder
from tapeway.stores.support.resident_recordings import ResidentRecordings

T = TypeVar("T")

_ATTEMPTS = 100
_ACTION = "read the cassette"

FileState = tuple[int, ...]
"""A hash that tells, within this process, whether octets have changed."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The file, the journal, and the entries of the journal that the file does not hold yet.

    The content of both is read when needed: a large cassette is not in memory as a whole.
    """

    paths: Paths
    file: FileText | None
    journal_text: FileText | None
    journal: CassetteJournal | None
    entries: tuple[JournaledRecording, ...]

    @property
    def exists(self) -> bool:
        return self.file is not None or bool(self.entries)

    @property
    def digest(self) -> str | None:
        """That of the file, None where there is none."""
        return None if self.file is None else self.file.digest

    @property
    def state(self) -> tuple[FileState | None, FileState | None]:
        """Two snapshots agree in it if nothing was recorded or edited between them."""
        return _state_of(self.file), _state_of(self.journal_text)

    @property
    def _first_head(self) -> CassetteHead:
        """The head of a cassette that has no file yet."""
        return CassetteHead("", "") if self.journal is None else self.journal.header.head

    def documents(self) -> "SnapshotDocuments":
        """All interactions in order, as they are written. Raises CassetteCorrupt."""
        in_file = _documents(self.paths, self.file)
        order = _order(zip(in_file.indexes, count(), strict=False), self.entries)
        head = self._first_head if self.file is None else in_file.head
        places = [(place, again) for _, (place, again) in order]
        return SnapshotDocuments(head, self, in_file, places)

    def cassette(self, folder: int, resident: ResidentRecordings | None = None) -> StoredCassette:
        """What they say. Raises CassetteCorrupt with file, line and reason.

        With `resident`, the recordings of a large file stay in it.
        """

        def fetch(digest: str) -> bytes | None:
            return _asset(folder, self.paths, digest)

        if self.file is None:
            filed, stored = None, StoredCassette(self._first_head)
        else:
            filed = None if resident is None else self._file(folder, resident)
            try:
                begin = None if filed is None else filed.begin
                stored = self.paths.serializer.load(self.file, fetch, begin)
            except FormatFault as fault:
                raise _corrupt(self.paths.shown(self.paths.cassette), fault) from fault
        items = [*stored.interactions]
        if self.entries:
            order = _order([(item.index, item) for item in items], self.entries)
            items = [self._decoded(entry, index, again) for index, (entry, again) in order]
        items = [bodies.placed(folder, self.paths, item) for item in items]
        if self.file is not None and not self.file.unchanged:
            place = self.paths.shown(self.paths.cassette)
            raise CassetteEdited(f"{place} was changed while it was read: load it again")
        return StoredCassette(stored.head, tuple(items), _keys(filed, items))

    def _decoded(
        self, item: AnyInteraction | JournaledRecording, index: int, again: int
    ) -> AnyInteraction:
        if isinstance(item, JournaledRecording):
            try:
                item = decode(self.document(item), index)
            except FormatFault as fault:
                raise _corrupt(self.paths.shown(self.paths.journal), fault) from fault
        if again and isinstance(item, Interaction):
            item = replace(item, index=index, again=again)
        return item

    def document(self, entry: JournaledRecording) -> Document:
        """The document of an entry. Raises CassetteCorrupt."""
        try:
            return entry.document
        except JournalDamaged as damage:
            raise _damaged(self.paths, damage) from damage

    def _file(self, folder: int, resident: ResidentRecordings) -> RecordingFile | None:
        """The cassette's file, held open; None if it is small, or was replaced."""
        if self.file is None or len(self.file) < SMALLEST_FILE or not resident.take_file():
            return None
        name = self.paths.cassette
        place = self.paths.shown(name)
        try:
            fd = open_file(folder, name, os.O_RDONLY, place)
        except (OSError, StoreError):
            resident.return_file()
            return None
        made = RecordingFile(fd, place, resident)
        return made if signature(os.fstat(fd)) == self.file.signature else None


@dataclass(frozen=True, slots=True)
class SnapshotDocuments:
    """The head of a cassette, and its documents, read anew at each walk. Raises CassetteCorrupt."""

    head: CassetteHead
    snapshot: Snapshot
    in_file: DocumentsOfFile
    places: Sequence[tuple[int | JournaledRecording, int]]
    """Of each document, where it is in the file, or what the journal has; and how often the journal
    says that it was given again."""

    def __iter__(self) -> Iterator[Document]:
        # Recordings of the file come in the file's order: a journal entry replaces a recording, or
        # follows all recordings.
        in_file = enumerate(self.in_file.documents())
        for place, again in self.places:
            if isinstance(place, JournaledRecording):
                document = self.snapshot.document(place)
            else:
                document = next(document for at, document in in_file if at == place)
            yield document | {"again": again} if again else document


def take(folder: int, paths: Paths, *, journal_size: int | None = None) -> Snapshot:
    """The present cassette, with the journal up to a size if given.

    Another process may fold the journal into the file while it is read: then it is read again.
    Raises StoreError, CassetteCorrupt.
    """
    try:
        for _ in range(_ATTEMPTS):
            before = _states(folder, paths)
            file = read_file(folder, paths.cassette, paths.shown(paths.cassette))
            journal = read_file(folder, paths.journal, paths.shown(paths.journal), journal_size)
            if _states(folder, paths) == before:
                return _snapshot(paths, file, journal)
    except OSError as exc:
        raise read_error(exc, paths.shown(paths.cassette), _ACTION) from exc
    raise StoreError(f"{paths.shown(paths.cassette)} changes faster than it can be read: try again")


def settle(folder: int, paths: Paths) -> None:
    """Find out which file the cassette has. Raises StoreError, CassetteCorrupt.

    Raises OtherToolsFile where only a file of another tool is there.
    """
    try:
        paths.settle(folder)
        paths.refuse_other_tools(folder)
    except OSError as exc:
        raise read_error(exc, paths.shown(paths.cassette), _ACTION) from exc


def digest_of(folder: int, paths: Paths) -> str | None:
    """The digest of the cassette's file alone, None where there is none. Raises StoreError."""
    place = paths.shown(paths.cassette)
    try:
        file = read_file(folder, paths.cassette, place)
    except OSError as exc:
        raise read_error(exc, place, _ACTION) from exc
    return file.digest if file else None


def _states(folder: int, paths: Paths) -> tuple[object, object]:
    journal = signature_of(folder, paths.journal)
    # A journal that grows is read up to its last whole line; one that is another one is not.
    return signature_of(folder, paths.cassette), journal[:2] if journal else None


def _snapshot(paths: Paths, file: FileText | None, journal_text: FileText | None) -> Snapshot:
    try:
        place = paths.shown(paths.journal)
        journal = read(journal_text, place) if journal_text else None
    except JournalDamaged as damage:
        raise _damaged(paths, damage) from damage
    entries: list[JournaledRecording] = []
    if journal is not None:
        digest = None if file is None else file.digest
        try:
            entries = pending(journal, digest, lambda: _documents(paths, file).documents())
        except JournalDamaged as damage:
            raise _damaged(paths, damage) from damage
    return Snapshot(paths, file, journal_text or None, journal, tuple(entries))


def _documents(paths: Paths, file: FileText | None) -> DocumentsOfFile:
    if file is None:
        return in_memory(ParsedFile(CassetteHead("", ""), ()))
    try:
        return paths.serializer.documents(file)
    except FormatFault as fault:
        raise _corrupt(paths.shown(paths.cassette), fault) from fault


def _state_of(text: FileText | None) -> FileState | None:
    # A quarter of the time of the digest, which only what is written to the disk needs.
    return None if text is None else tuple([hash(piece) for piece in text.pieces()])


def _order(
    items: Iterable[tuple[int, T]], entries: Iterable[JournaledRecording]
) -> list[tuple[int, tuple[T | JournaledRecording, int]]]:
    """The recordings of file and journal, in one order and with their indexes.

    Each with how often the journal says that its answer was given again.
    """
    order = RecordingOrder[tuple[T | JournaledRecording, int]](
        (index, (item, 0)) for index, item in items
    )
    # A file edited meanwhile may have given the number of a recording to something else.
    given: dict[int, int] = {}
    for entry in entries:
        wanted = entry.index
        superseded = [given.get(before, before) for before in entry.supersedes]
        item: tuple[T | JournaledRecording, int] = (entry, 0)
        if entry.again:
            if (before := next(filter(None, map(order.get, superseded)), None)) is None:
                # Somebody has removed from the file what was given again.
                continue
            item = before[0], entry.again
        index = given.get(wanted, wanted)
        if index in order and index not in superseded:
            index = order.next_free
        given[wanted] = index
        order.add(index, item, superseded)
    return order.items()


def _keys(filed: RecordingFile | None, items: Iterable[AnyInteraction]) -> Mapping[int, bytes]:
    """By index, the match keys of the recordings that stay in their file."""
    staying = [item.index for item in items if isinstance(item, LazyInteraction)]
    if filed is None or not staying:
        return {}
    keys = filed.end()
    return keys if len(keys) == len(staying) else {index: keys[index] for index in staying}


def _asset(folder: int, paths: Paths, digest: str) -> bytes | None:
    name = digest.replace(":", "-")
    place = paths.shown(f"{paths.assets}/{name}")
    try:
        assets = paths.open_assets(folder)
        try:
            content = read_file(assets, name, place)
        finally:
            os.close(assets)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise read_error(exc, place, _ACTION) from exc
    return content[: len(content)] if content else None


def _damaged(paths: Paths, damage: JournalDamaged) -> CassetteCorrupt:
    return CassetteCorrupt(
        f"{paths.shown(paths.journal)} {damage}; it holds recordings that are nowhere else and "
        "was left as it is: restore it, or move it away to go on without them"
    )


def _corrupt(place: str, fault: FormatFault) -> CassetteCorrupt:
    line = f" line {fault.line}" if fault.line else ""
    advice = "" if fault.advice else ": repair it, or move it away to record again"
    return CassetteCorrupt(f"{place}{line}: {fault}; the file was left as it is{advice}")
