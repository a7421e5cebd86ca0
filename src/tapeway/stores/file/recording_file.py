"""Recordings of a large cassette stay in its file, and are read from there on demand.

The file is held open: a process may replace or remove the file meanwhile. A change in place is
noticed by the text of each recording, which has to equal the loaded text.
"""

import os
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from weakref import finalize

import orjson

from tapeway.cooperative import Yielding
from tapeway.core.cassette.credential_index import may_hold_credentials
from tapeway.core.json_text import ReadJson
from tapeway.core.matching.key import key_of_read, request_key
from tapeway.core.matching.rules import rules_of_meta
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.core.model.messages import Request
from tapeway.errors import CassetteEdited
from tapeway.formats.native import http_exchange
from tapeway.formats.native.document import FileRecording
from tapeway.formats.native.text_lines import joined
from tapeway.stores.support.durable_files import read_error
from tapeway.stores.support.resident_recordings import ResidentRecordings

SMALLEST_FILE = 1024 * 1024
"""Smaller files are in memory as a whole."""

_HASH = 2**32 - 1


class RecordingFile:
    """The file of a loaded cassette; the last freed recording closes the file."""

    def __init__(self, fd: int, place: str, resident: ResidentRecordings) -> None:
        """It closes `fd`; `place` names the file in errors."""
        self._fd = fd
        self._place = place
        self._resident = resident
        finalize(self, _close, fd, resident)
        self._yielding = Yielding()
        self._clear()

    def _clear(self) -> None:
        self._keys: dict[int, bytes] = {}
        self._indexes: Sequence[int] = ()
        self._starts, self._sizes, self._hashes = array("Q"), array("I"), array("I")
        self._with_credentials: set[int] = set()
        self._with_conditions: set[int] = set()

    def begin(self, head: CassetteHead) -> FileRecording:
        """Make the function that files the recordings of a cassette with this head, in order.

        A second call begins anew. `end` is to be called afterwards.
        """
        rules = rules_of_meta(head.meta)
        self._clear()
        self._indexes = indexes = array("Q")

        def file(
            index: int, request: Request, read: ReadJson | None, start: int, text: bytes
        ) -> LazyInteraction:
            key = request_key(request, rules) if read is None else key_of_read(request, read)
            self._keys[index] = key
            indexes.append(index)
            self._starts.append(start)
            self._sizes.append(len(text))
            self._hashes.append(hash(text) & _HASH)
            if may_hold_credentials(request, rules, read):
                self._with_credentials.add(index)
            if request.varied:
                self._with_conditions.add(index)
            self._yielding.step()
            return LazyInteraction.at(index, self)

        return file

    def end(self) -> dict[int, bytes]:
        """The match keys of all that were filed, by index; nobody needs them twice."""
        count = len(self._indexes)
        if count and self._indexes[-1] == count - 1:
            # The indexes ascend without gaps: each index is a position.
            self._indexes = range(count)
        keys, self._keys = self._keys, {}
        return keys

    def may_hold_credentials(self, index: int) -> bool:
        return index in self._with_credentials

    def has_conditions(self, index: int) -> bool:
        return index in self._with_conditions

    def read(self, item: LazyInteraction, name: str) -> object:
        """Raises CassetteEdited where the file has another text by now, StoreError."""
        text = self._text(item.index)
        # A replay needs no request: that came from the client.
        content = http_exchange.filed_content(orjson.loads(text), request=name == "request")
        item.keep(content)
        self._resident.add(item, len(text))
        return content[name]

    def load(self, index: int) -> Interaction:
        """Raises CassetteEdited where the file has another text by now, StoreError."""
        return http_exchange.decode(joined(orjson.loads(self._text(index))), index, ())

    def _text(self, index: int) -> bytes:
        self._yielding.step()
        at = bisect_left(self._indexes, index)
        size = self._sizes[at]
        try:
            text = os.pread(self._fd, size, self._starts[at])
        except OSError as exc:
            raise read_error(exc, self._place, "read a recording") from exc
        if hash(text) & _HASH != self._hashes[at]:
            raise CassetteEdited(
                f"{self._place} was changed in place since it was loaded: eject the cassette, so "
                "that it is loaded anew; to change a file that is in use, write a new one and "
                "rename it"
            )
        return text


def _close(fd: int, resident: ResidentRecordings) -> None:
    os.close(fd)
    resident.return_file()
