"""A cassette's file and journal as they were at one moment, read without a lock."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from tapeway.core.digests import sha256
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.filed import FiledInteraction
from tapeway.core.model.interaction import AnyInteraction
from tapeway.errors import CassetteCorrupt, StoreError
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document
from tapeway.formats.native.document import ParsedFile, decode
from tapeway.stores.file import bodies
from tapeway.stores.file.filed import SMALLEST_FILE, RecordingFile, ResidentRecordings
from tapeway.stores.file.journal import (
    CassetteJournal,
    JournalDamaged,
    JournaledRecording,
    pending,
    read,
)
from tapeway.stores.file.paths import Paths
from tapeway.stores.support.durable_files import (
    Content,
    open_file,
    read_error,
    read_file,
    signature,
    signature_of,
)
from tapeway.stores.support.recording_order import RecordingOrder

T = TypeVar("T")

_ATTEMPTS = 100
_ACTION = "read the cassette"
_HASHED_AT_ONCE = 1024 * 1024
"""So much is hashed in less than a millisecond, in which no other thread runs."""

Mark = tuple[int, ...]
"""What tells in this process whether some octets are still the same."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The file, the journal, and the entries of the journal that the file does not hold yet."""

    paths: Paths
    file: Content | None
    file_digest: str | None
    """None where nobody needed it so far."""
    read: ParsedFile | None
    """What the file holds, None where only its text was taken."""
    journal: CassetteJournal | None
    journal_mark: Mark | None
    entries: tuple[JournaledRecording, ...]

    @property
    def exists(self) -> bool:
        return self.file is not None or bool(self.entries)

    @property
    def digest(self) -> str | None:
        """That of the file, None where there is none."""
        if self.file_digest is None and self.file is not None:
            return _digest(self.file.data)
        return self.file_digest

    @property
    def state(self) -> tuple[Mark | None, Mark | None]:
        """Two snapshots agree in it if nothing was recorded or edited between them."""
        return None if self.file is None else _mark(self.file.data), self.journal_mark

    @property
    def parsed(self) -> ParsedFile:
        """What the file holds. Raises CassetteCorrupt."""
        return _parsed(self.paths, self.file) if self.read is None else self.read

    def documents(self) -> list[Document]:
        """All interactions in order, as they are written."""
        return _merge(self.parsed.documents, self.entries, lambda document, _: document)

    def cassette(self, folder: int, resident: ResidentRecordings | None = None) -> StoredCassette:
        """What they say. Raises CassetteCorrupt with file, line and reason.

        With `resident`, the recordings of a large file stay in it.
        """

        def fetch(digest: str) -> bytes | None:
            return _asset(folder, self.paths, digest)

        try:
            text = self.file.data if self.file else b""
            file: RecordingFile | None = None
            if self.read is None:
                file = None if resident is None else self._file(folder, resident)
                filing = None if file is None else file.begin
                found = self.paths.serializer.load(text, fetch, filing)
            else:
                decoded = self.paths.serializer.decode_all(text, self.read, fetch)
                found = StoredCassette(self.read.head, decoded)
        except FormatFault as fault:
            raise _corrupt(self.paths.shown(self.paths.cassette), fault) from fault
        items: Iterable[AnyInteraction] = found.interactions
        if self.entries:
            try:
                items = _merge([(each.index, each) for each in items], self.entries, decode)
            except FormatFault as fault:
                raise _corrupt(self.paths.shown(self.paths.journal), fault) from fault
        found_bodies = [bodies.placed(folder, self.paths, item) for item in items]
        filed = file is not None and any(isinstance(each, FiledInteraction) for each in items)
        keys = file.end() if file is not None and filed else {}
        return StoredCassette(found.head, tuple(found_bodies), keys)

    def _file(self, folder: int, resident: ResidentRecordings) -> RecordingFile | None:
        """The cassette's file held open; None where it is small, or another one by now."""
        if self.file is None or len(self.file.data) < SMALLEST_FILE or not resident.take_file():
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

    def discard(self, found: StoredCassette) -> None:
        """Free what the file held, from which this was decoded."""
        if self.read is not None:
            self.read.discard(found)


def take(
    folder: int, paths: Paths, *, journal_size: int | None = None, parse: bool = True
) -> Snapshot:
    """The cassette as it is now, its journal up to a size if one is given.

    Without `parse` a file without a journal is only read: `cassette` decodes it quicker.
    Another process may fold the journal into the file while it is read: then it is read again.
    Raises StoreError, CassetteCorrupt.
    """
    try:
        for _ in range(_ATTEMPTS):
            before = _marks(folder, paths)
            file = read_file(folder, paths.cassette, paths.shown(paths.cassette))
            journal = read_file(folder, paths.journal, paths.shown(paths.journal))
            if _marks(folder, paths) == before:
                data = journal.data[:journal_size] if journal else None
                return _snapshot(paths, file, data, parse=parse)
    except OSError as exc:
        raise read_error(exc, paths.shown(paths.cassette), _ACTION) from exc
    raise StoreError(f"{paths.shown(paths.cassette)} changes faster than it can be read: try again")


def settle(folder: int, paths: Paths) -> None:
    """Find out which of its files the cassette has. Raises StoreError, CassetteCorrupt."""
    try:
        paths.settle(folder)
    except OSError as exc:
        raise read_error(exc, paths.shown(paths.cassette), _ACTION) from exc


def digest_of(folder: int, paths: Paths) -> str | None:
    """The digest of the cassette's file alone, None where there is none. Raises StoreError."""
    place = paths.shown(paths.cassette)
    try:
        file = read_file(folder, paths.cassette, place)
    except OSError as exc:
        raise read_error(exc, place, _ACTION) from exc
    return _digest(file.data) if file else None


def _marks(folder: int, paths: Paths) -> tuple[object, object]:
    journal = signature_of(folder, paths.journal)
    # A journal that grows is read up to its last whole line; one that is another one is not.
    return signature_of(folder, paths.cassette), journal[:2] if journal else None


def _snapshot(
    paths: Paths, file: Content | None, journal_data: bytes | None, *, parse: bool
) -> Snapshot:
    place = paths.shown(paths.journal)
    try:
        journal = read(journal_data, place) if journal_data else None
    except JournalDamaged as damage:
        raise CassetteCorrupt(
            f"{place} {damage}; it holds recordings that are nowhere else and "
            "was left as it is: restore it, or move it away to go on without them"
        ) from damage
    digest: str | None = None
    parsed: ParsedFile | None = None
    if file is None:
        parsed = ParsedFile(journal.header.head if journal else CassetteHead("", ""), ())
    elif parse or journal is not None:
        parsed = _parsed(paths, file)
    entries: list[JournaledRecording] = []
    if journal is not None and parsed is not None:
        digest = None if file is None else _digest(file.data)
        entries = pending(journal, digest, [document for _, document in parsed.documents])
    journal_mark = _mark(journal_data) if journal_data else None
    return Snapshot(paths, file, digest, parsed, journal, journal_mark, tuple(entries))


def _parsed(paths: Paths, file: Content | None) -> ParsedFile:
    if file is None:
        return ParsedFile(CassetteHead("", ""), ())
    try:
        return paths.serializer.read(file.data)
    except FormatFault as fault:
        raise _corrupt(paths.shown(paths.cassette), fault) from fault


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def _mark(data: bytes) -> Mark:
    # A quarter of the time of the digest, which only what is written to the disk needs.
    view, starts = memoryview(data), range(0, len(data), _HASHED_AT_ONCE)
    return tuple([hash(view[start : start + _HASHED_AT_ONCE]) for start in starts])


def _merge(
    items: Iterable[tuple[int, T]],
    entries: Iterable[JournaledRecording],
    make: Callable[[Document, int], T],
) -> list[T]:
    order = RecordingOrder(items)
    # A file edited meanwhile may have given the number of a recording to something else.
    given: dict[int, int] = {}
    for entry in entries:
        wanted = entry.index
        index = given[wanted] = order.next_free if wanted in order else wanted
        supersedes = [given.get(each, each) for each in entry.supersedes]
        order.add(index, make(entry.document, index), supersedes)
    return [item for _, item in order.items()]


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
    return content.data if content else None


def _corrupt(place: str, fault: FormatFault) -> CassetteCorrupt:
    line = f" line {fault.line}" if fault.line else ""
    advice = "" if fault.advice else ": repair it, or move it away to record again"
    return CassetteCorrupt(f"{place}{line}: {fault}; the file was left as it is{advice}")
