"""What tells whether a cassette, or one of its interactions, is the same as it was.

It does not depend on how interactions are numbered, but on what they say and on their order.
"""

import hashlib
from collections.abc import Iterable, Mapping

from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import CassetteHead, Held
from tapeway.formats import native


def of_document(document: Mapping[str, Json]) -> str:
    """The digest of an interaction's document, its number aside."""
    plain = {name: value for name, value in document.items() if name != "index"}
    return hashlib.sha256(dump(plain)).hexdigest()


def of_item(item: Held) -> str:
    """The same for what a document says. Raises FormatFault for what none could say."""
    return of_document(native.encode(item))


def of_head(head: CassetteHead) -> str:
    """The digest of what a cassette says of itself."""
    return hashlib.sha256(dump(native.root_of(head))).hexdigest()


class Whole:
    """The digest of a whole cassette as it grows, from that of its head and of its interactions."""

    def __init__(self, head: str) -> None:
        self._found = hashlib.sha256(head.encode())

    def add(self, digest: str) -> None:
        self._found.update(b"\n" + digest.encode())

    @property
    def digest(self) -> str:
        return self._found.hexdigest()


def of_cassette(head: str, digests: Iterable[str]) -> str:
    """The same for all of them, in order."""
    whole = Whole(head)
    for each in digests:
        whole.add(each)
    return whole.digest
