"""What a cassette holds as one short text: the same for the same recordings in every store and format."""

import hashlib

from tapeway.core.json_text import dump
from tapeway.core.model.cassette import Held
from tapeway.formats.native.document import decode, encode
from tapeway.stores.shared.serialize import document_of

_MARK = 8


class Digest:
    """Taken as the interactions go by, in order; remembers eight bytes of each."""

    def __init__(self) -> None:
        self._whole = hashlib.sha256()
        self._marks = bytearray()

    @property
    def count(self) -> int:
        """How many interactions went by."""
        return len(self._marks) // _MARK

    @property
    def text(self) -> str:
        """The digest of those, in hex."""
        return self._whole.hexdigest()

    def add(self, item: Held) -> None:
        found = digest_of(item)
        self._whole.update(found.encode())
        self._marks += bytes.fromhex(found[: 2 * _MARK])

    def same(self, other: "Digest") -> bool:
        """Whether the same interactions went by."""
        return (self.count, self.text) == (other.count, other.text)

    def parting(self, other: "Digest") -> int:
        """The position of the first interaction in which the two differ."""
        most = min(self.count, other.count)
        for at in range(most):
            piece = slice(at * _MARK, (at + 1) * _MARK)
            if self._marks[piece] != other._marks[piece]:
                return at
        return most


def digest_of(item: Held) -> str:
    """The digest of one interaction, wherever it stands. Raises StoreError for one that is none."""
    # What a recording says of itself settles once it is read and written.
    document = encode(decode(document_of(item), 0))
    document.pop("index", None)
    return hashlib.sha256(dump({"index": 0, **document})).hexdigest()
