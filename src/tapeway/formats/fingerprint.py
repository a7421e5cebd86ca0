"""What tells whether a cassette, or one of its interactions, is the same as it was.

It does not depend on how interactions are numbered, but on what they say and on their order.
"""

import hashlib
from collections.abc import Iterable, Mapping

from tapeway.core.json_text import Json, dump
from tapeway.core.model import CassetteHead
from tapeway.core.shared import Held
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


def of_cassette(head: str, digests: Iterable[str]) -> str:
    """The digest of a whole cassette, from that of its head and of its interactions in order."""
    whole = hashlib.sha256(head.encode())
    for each in digests:
        whole.update(b"\n" + each.encode())
    return whole.hexdigest()
