"""Where a ReplayCache keeps its entries: a JSON file in DSPy's format, or a cassette in a store."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from tapeway.core import loose_json
from tapeway.core.json_text import Json, json_pieces
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.errors import CassetteCorrupt, StoreError
from tapeway.formats import conversion_loss, registry
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document, Fields
from tapeway.formats.other_tools import dspy
from tapeway.integrations.blocking_cassette import BlockingCassette
from tapeway.stores.support import durable_files

Entries = dict[str, Mapping[str, Json]]
_read_file = registry.loader(dspy.read)


class EntryStore(Protocol):
    """Entries by DSPy's cache key. Every method may raise StoreError."""

    @property
    def shown(self) -> str:
        """The place, for messages."""

    def read(self) -> Entries | None:
        """All entries, or None if there is no file or cassette yet. Raises CassetteCorrupt."""

    def run_id(self) -> str:
        """The run id that placeholders of redacted values are derived from."""

    def put(self, key: str, entry: Document) -> None:
        """Add or replace an entry, durable on return."""

    def close(self) -> None: ...


class FileEntryStore:
    """A JSON file, rewritten as a whole with each entry.

    Several processes may record into one file at the same time without losing entries.
    """

    def __init__(self, path: Path, about: Mapping[str, str]) -> None:
        self._path = path.resolve()
        self.shown = str(path)
        self._about = about
        self._head: CassetteHead | None = None
        self._items: dict[str, ForeignInteraction] = {}

    def read(self) -> Entries | None:
        cassette = self._load()
        if cassette is None:
            return None
        self._remember_items(cassette)
        return {key: entry for key, entry, _ in _entries(cassette)}

    def run_id(self) -> str:
        return self._known_head().run_id

    def put(self, key: str, entry: Document) -> None:
        with self._locked_folder() as folder:
            # A second process may have added entries meanwhile.
            cassette = self._load()
            if cassette is not None:
                self._remember_items(cassette)
            self._items[key] = ForeignInteraction(0, _document(key, entry))
            text = self._text()
            try:
                _replace(folder, self._path.name, text)
            except OSError as exc:
                raise durable_files.store_error(exc, self.shown, "write the recording") from exc

    def close(self) -> None: ...

    def _remember_items(self, cassette: StoredCassette) -> None:
        self._head = cassette.head
        self._items = {key: item for key, _, item in _entries(cassette)}

    def _load(self) -> StoredCassette | None:
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise durable_files.store_error(exc, self.shown, "read it") from exc
        try:
            return _read_file(text, self._known_head()).cassette
        except FormatFault as fault:
            line = "" if fault.line is None else f" line {fault.line}"
            raise CassetteCorrupt(f"{self.shown}{line}: {fault}") from fault

    def _known_head(self) -> CassetteHead:
        if self._head is None:
            self._head = CassetteHead(_now(), str(uuid4()))
        return self._head

    def _text(self) -> bytes:
        """The file as DSPy's format has it, with the head of the cassette in a field of our own."""
        head = self._known_head()
        meta = dict(head.meta)
        before = loose_json.fields(meta.pop(dspy.META, None))
        about: Document = {"created_at": head.created_at, **before, **self._about}
        about["last_updated"] = _now()
        about[dspy.EXTENSION_NAME] = conversion_loss.head_fields(replace(head, meta=meta))
        cassette = StoredCassette(head, tuple(self._items.values()))
        entries: Document = {key: dict(entry) for key, entry, _ in _entries(cassette)}
        document: Document = {"metadata": about, "entries": entries}
        return b"".join([*json_pieces(document, indent=True), b"\n"])

    @contextmanager
    def _locked_folder(self) -> Iterator[int]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as exc:
            raise durable_files.store_error(exc, str(self._path.parent), "open the folder") from exc
        try:
            # A lock on the folder leaves no file behind.
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield folder
        finally:
            os.close(folder)


class CassetteEntryStore:
    """A cassette in any store: each entry is a recording of the kind `llm`."""

    def __init__(self, cassette: BlockingCassette) -> None:
        self._cassette = cassette
        self._index: dict[str, int] = {}

    @property
    def shown(self) -> str:
        return self._cassette.shown

    def read(self) -> Entries | None:
        cassette = self._cassette.load()
        if cassette is None:
            return None
        entries = list(_entries(cassette))
        self._index |= {key: item.index for key, _, item in entries}
        return {key: entry for key, entry, _ in entries}

    def run_id(self) -> str:
        return self._cassette.head().run_id

    def put(self, key: str, entry: Document) -> None:
        before = self._index.get(key)
        item = ForeignInteraction(0, _document(key, entry))
        self._index[key] = self._cassette.put(item, () if before is None else (before,))

    def close(self) -> None:
        self._cassette.close()


def _entries(
    cassette: StoredCassette,
) -> Iterator[tuple[str, Mapping[str, Json], ForeignInteraction]]:
    """The key and entry of each recording that is one."""
    for item in cassette.interactions:
        if isinstance(item, ForeignInteraction) and (entry := dspy.entry_of(item.document)):
            yield *entry, item


def _document(key: str, entry: Document) -> Document:
    try:
        return dspy.document_of(key, Fields(entry, ("entries", key)))
    except FormatFault as fault:
        raise StoreError(f"nothing was recorded: {fault}") from fault


def _replace(folder: int, name: str, text: bytes) -> None:
    draft = f".{name}.{os.getpid()}.tmp"
    with suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=folder)
    fd = durable_files.create_file(folder, draft, os.O_WRONLY)
    try:
        try:
            durable_files.write_all(fd, text)
            durable_files.sync_data(fd)
        finally:
            os.close(fd)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise
    durable_files.sync_folder(folder)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
