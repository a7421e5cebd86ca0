"""The parts of a conversion into a store: batches of interactions, digests, and a mark.

Recordings are compared by digest: equal recordings have equal digests in every store and format. A
cassette that lacks recordings has the mark `unfinished_conversion` in the head.
"""

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from tapeway.body_files import body_pieces
from tapeway.cli.terminal import progress
from tapeway.core.json_text import dump
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import BodyFile
from tapeway.errors import StoreError
from tapeway.formats.native.document import decode, encode
from tapeway.paging import CassetteRef, bytes_of_bodies
from tapeway.stores.support.serialize import document_of

_PREFIX = 8
"""How many bytes of each interaction's digest are remembered."""
_UNFINISHED = "unfinished_conversion"
MAX_ITEMS = 500
_MAX_BYTES = 4 * 1024 * 1024


class CassetteDigest:
    """The digest of the interactions added so far, in order."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._prefixes = bytearray()

    @property
    def count(self) -> int:
        """How many interactions were added."""
        return len(self._prefixes) // _PREFIX

    @property
    def text(self) -> str:
        """The digest of all of them, in hex."""
        return self._sha256.hexdigest()

    def add(self, item: AnyInteraction) -> None:
        digest = digest_of(item)
        self._sha256.update(digest.encode())
        self._prefixes += bytes.fromhex(digest[: 2 * _PREFIX])

    def same(self, other: "CassetteDigest") -> bool:
        """Whether the same interactions were added to both."""
        return (self.count, self.text) == (other.count, other.text)

    def first_difference(self, other: "CassetteDigest") -> int:
        """The position of the first interaction in which the two differ."""
        shorter = min(self.count, other.count)
        for position in range(shorter):
            prefix = slice(position * _PREFIX, (position + 1) * _PREFIX)
            if self._prefixes[prefix] != other._prefixes[prefix]:
                return position
        return shorter


def digest_of(item: AnyInteraction) -> str:
    """The digest of one interaction, whatever the index. Raises StoreError if it is no JSON."""
    # The document of a recording settles once it was written and read.
    document = encode(decode(document_of(item), 0))
    document.pop("index", None)
    return hashlib.sha256(dump({"index": 0, **document})).hexdigest()


def mark_unfinished(head: CassetteHead) -> CassetteHead:
    """The head with the mark."""
    return replace(head, meta={**head.meta, _UNFINISHED: True})


def is_unfinished(head: CassetteHead) -> bool:
    """Whether recordings are missing: a conversion into this cassette did not come to its end."""
    return _UNFINISHED in head.meta


def check_same(wanted: CassetteDigest, digest: CassetteDigest, shown: str) -> None:
    """Raise StoreError if what was read back is not what was written."""
    if not digest.same(wanted):
        raise StoreError(
            f"{shown}: interactions[{wanted.first_difference(digest)}] does not read back as it was "
            "written: nothing was converted"
        )


async def read_back(wanted: CassetteDigest, to: CassetteRef) -> CassetteDigest:
    """The digest of the cassette in the store. Raises StoreError for another digest than `wanted`."""
    walk, copied = await to.walk(), CassetteDigest()
    with progress("checking", walk.count) as step:
        async for item in walk.items:
            copied.add(item)
            step(1)
    check_same(wanted, copied, to.shown)
    return copied


async def batches(
    items: AsyncIterator[AnyInteraction], to: CassetteRef, done: CassetteDigest
) -> AsyncIterator[list[AnyInteraction]]:
    """The items in batches, numbered and added to `done`, their large bodies already in the store."""
    batch: list[AnyInteraction] = []
    size = 0
    async for item in items:
        batch.append(item)
        size += bytes_of_bodies(item)
        if len(batch) == MAX_ITEMS or size >= _MAX_BYTES:
            yield await _ready(batch, to, done)
            batch, size = [], 0
    if batch:
        yield await _ready(batch, to, done)


async def _ready(
    batch: Sequence[AnyInteraction], to: CassetteRef, done: CassetteDigest
) -> list[AnyInteraction]:
    start = done.count
    for item in batch:
        done.add(item)
    copied = [await with_copied_bodies(to, item) for item in batch]
    return [replace(item, index=start + position) for position, item in enumerate(copied)]


async def with_copied_bodies(to: CassetteRef, item: AnyInteraction) -> AnyInteraction:
    """The interaction, with its large bodies copied to the store. Raises StoreError."""
    if not isinstance(item, Interaction) or not item.has_large_bodies:
        return item
    request, response = item.request, item.response
    if request.file is not None:
        request = replace(request, file=await _copy_body(to, request.file))
    if response.file is not None:
        response = replace(response, file=await _copy_body(to, response.file))
    return replace(item, request=request, response=response)


async def _copy_body(to: CassetteRef, file: BodyFile) -> BodyFile:
    copy = await to.store.keep(to.name, body_pieces(file))
    if copy.digest != file.digest:
        raise StoreError(f"{file.path} was changed since it was recorded: restore it")
    return file.copied_to(copy)
