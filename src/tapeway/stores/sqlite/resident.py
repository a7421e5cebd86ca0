"""Recordings of a loaded cassette that stay in a SQLite file, and are read from there on demand."""

import threading
from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import pairwise

import apsw

from tapeway.cooperative import Yielding
from tapeway.core.digests import sha256
from tapeway.core.json_text import parse, parse_as_dumped
from tapeway.core.model.cassette import CONDITIONS, CREDENTIALS
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.errors import CassetteCorrupt, CassetteEdited
from tapeway.formats.fields import Document
from tapeway.formats.native import http_exchange
from tapeway.stores.sqlite.connection import store_error
from tapeway.stores.support.resident_recordings import ResidentRecordings

_TEXT = "SELECT text, sha256 FROM documents WHERE id = ?"


class Documents:
    """Reads documents of one file, in any thread: a read waits for nobody who writes."""

    def __init__(self, place: str, connect: Callable[[], apsw.Connection]) -> None:
        """`connect` opens the file that the recordings were loaded from."""
        self.place = place
        self._connect = connect
        self._guard = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._superseded: dict[str, dict[int, tuple[bytes, bytes]]] = {}

    def keep(self, name: str, id_: int, text: bytes, digest: bytes) -> None:
        """Keep what this process has just replaced: somebody may be about to answer with it."""
        with self._guard:
            self._superseded.setdefault(name, {})[id_] = text, digest

    def forget(self, name: str) -> None:
        """Forget what was replaced in a cassette that is in use no more."""
        with self._guard:
            self._superseded.pop(name, None)

    def text(self, name: str, id_: int) -> tuple[bytes, bytes] | None:
        """A document of a cassette and its digest. Raises StoreError."""
        with self._guard:
            if (kept := self._superseded.get(name)) is not None and id_ in kept:
                return kept[id_]
            try:
                if self._connection is None:
                    self._connection = self._connect()
                return self._connection.execute(_TEXT, (id_,)).fetchone()
            except apsw.Error as exc:
                number = 0 if self._connection is None else self._connection.system_errno
                raise store_error(exc, self.place, "read a recording", number) from exc

    def close(self) -> None:
        """Close the file; the next look opens it again."""
        with self._guard:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()


class StoredRecordings:
    """The recordings of one loaded cassette."""

    def __init__(
        self,
        documents: Documents,
        file_id: str,
        name: str,
        resident: ResidentRecordings,
    ) -> None:
        """`file_id` is the identity of the file."""
        self.file_id = file_id
        self._name = name
        self._documents = documents
        self._place = f"{documents.place}, cassette '{name}'"
        self._resident = resident
        self._yielding = Yielding()
        self._keys: dict[int, bytes] = {}
        self._indexes = array("q")
        self._ids = array("q")
        self._with_credentials: set[int] = set()
        self._with_conditions: set[int] = set()

    def add(self, id_: int, index: int, key: bytes, marks: int) -> LazyInteraction:
        """A recording of the file."""
        self._keys[index] = key
        self._indexes.append(index)
        self._ids.append(id_)
        if marks:
            if marks & CREDENTIALS:
                self._with_credentials.add(index)
            if marks & CONDITIONS:
                self._with_conditions.add(index)
        return LazyInteraction.at(index, self)

    def end(self) -> Mapping[int, bytes]:
        """The match keys of all that were added, by index; nobody needs them twice."""
        indexes = self._indexes
        if any(after <= before for before, after in pairwise(indexes)):
            # A recording that took another one's place stands before its index.
            by_index = sorted(zip(indexes, self._ids, strict=True))
            self._indexes = array("q", [index for index, _ in by_index])
            self._ids = array("q", [id_ for _, id_ in by_index])
        keys, self._keys = self._keys, {}
        return keys

    def id_of(self, index: int) -> int:
        """The id of a recording in the file."""
        return self._ids[bisect_left(self._indexes, index)]

    def may_hold_credentials(self, index: int) -> bool:
        return index in self._with_credentials

    def has_conditions(self, index: int) -> bool:
        return index in self._with_conditions

    def read(self, item: LazyInteraction, name: str) -> object:
        """Raises CassetteEdited where the recording is gone by now, StoreError."""
        text = self._text(item.index)
        document = self._document(text, item.index)
        # A replay needs no request: that came from the client.
        content = http_exchange.filed_content(document, request=name == "request")
        item.keep(content)
        self._resident.add(item, len(text))
        return content[name]

    def load(self, index: int) -> Interaction:
        """Raises CassetteEdited where the recording is gone by now, StoreError."""
        text = self._text(index)
        return http_exchange.decode(self._document(text, index), index, ())

    def _text(self, index: int) -> bytes:
        self._yielding.step()
        found = self._documents.text(self._name, self.id_of(index))
        if found is None:
            raise CassetteEdited(
                f"{self._place}, interaction {index}: it was changed or removed since the cassette "
                "was loaded: eject the cassette, so that it is loaded anew"
            )
        refuse_changed(*found, f"{self._place}, interaction {index}")
        return found[0]

    def _document(self, text: bytes, index: int) -> Document:
        document = parse_as_dumped(text)
        if not isinstance(document, dict):
            document = parse(text)
        assert isinstance(document, dict)  # noqa: S101 - an interaction was encoded
        return document


def refuse_changed(text: bytes, digest: bytes, place: str) -> None:
    """Raise CassetteCorrupt for a document that is not what was recorded."""
    if sha256(text).digest() != digest:
        raise CassetteCorrupt(f"{place}: it is not what was recorded; restore it or remove it")
