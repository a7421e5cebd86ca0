"""Values that an editor gets and returns: additions, receipts, digests.

A receipt makes an append idempotent: repeated with an equal key, the append is done once.
"""

import asyncio
import os
from array import array
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

from tapeway.body_files import TemporaryFile
from tapeway.core.json_text import dump, parse
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, large_bodies, replace_large_bodies
from tapeway.core.model.messages import BodyFile
from tapeway.errors import AdminError, StoreError
from tapeway.formats.fields import Fields
from tapeway.formats.native import document

MOST_KEYS = 10_000
"""Idempotency keys that are remembered, over all cassettes; the oldest are forgotten first."""
MOST_BYTES = 16 * 1024 * 1024
"""The memory for all receipts, with index and digest of each appended interaction."""
_RECEIPT_BYTES, _APPENDED_BYTES = 1000, 300
"""As measured: a receipt without key and interactions, and the size of an interaction."""


@dataclass(frozen=True, slots=True)
class Reference:
    """An interaction to replace, by index, and by digest in case it moved."""

    index: int
    sha256: str
    required: bool = False
    """Whether nothing is appended if the interaction was changed or removed."""


@dataclass(frozen=True, slots=True)
class Addition:
    """An interaction to append, under `index` if the index is free."""

    item: AnyInteraction
    index: int | None = None
    supersedes: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Changed:
    """The digest of a cassette after a change, and how many secrets were replaced in it."""

    digest: str
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class CassetteContents:
    """A cassette's metadata, and its interactions in order, to be iterated once."""

    head: CassetteHead
    items: AsyncGenerator[AnyInteraction]


@dataclass(frozen=True, slots=True)
class Appended:
    """The index of an appended interaction, and its digest as stored."""

    index: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Extended:
    """The result of an append: the digest of the metadata, and index and digest of each item."""

    head: str
    count: int
    """How many interactions the cassette had then."""
    items: tuple[Appended, ...]


@dataclass(slots=True)
class Receipt:
    """How far one call has come; a repeated call waits for the first and goes on from there."""

    digest: str
    bytes: int
    """The approximate final size in memory."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    appended: dict[int, Appended] = field(default_factory=dict)
    head: str = ""
    count: int = 0


class IdempotencyReceipts:
    """The last calls by their idempotency keys, while the process lives."""

    def __init__(self) -> None:
        self._receipts: OrderedDict[tuple[str, str], Receipt] = OrderedDict()
        self._bytes = 0

    def of(self, name: str, key: str | None, digest: str, size: int = 1) -> Receipt:
        """The receipt of a key, or a new receipt for `size` interactions.

        Raises AdminError (422) if the key belongs to a different call.
        """
        if key is None:
            return Receipt(digest, 0)
        if (receipt := self._receipts.get((name, key))) is None:
            taken = _RECEIPT_BYTES + len(name) + len(key) + size * _APPENDED_BYTES
            receipt = self._receipts[name, key] = Receipt(digest, taken)
            self._bytes += taken
        self._receipts.move_to_end((name, key))
        if receipt.digest != digest:
            raise AdminError(
                "this Idempotency-Key was sent with another body before: take a new key for each call",
                status=422,
                code="idempotency_key_reused",
            )
        self._forget_oldest()
        return receipt

    def _forget_oldest(self) -> None:
        while len(self._receipts) > MOST_KEYS or (
            self._bytes > MOST_BYTES and len(self._receipts) > 1
        ):
            _, gone = self._receipts.popitem(last=False)
            self._bytes -= gone.bytes

    def forget(self, name: str) -> None:
        """Forget a removed cassette: a new cassette of the name may get equal appends."""
        for at in [at for at in self._receipts if at[0] == name]:
            self._bytes -= self._receipts.pop(at).bytes


def no_cassette(name: str) -> AdminError:
    """The error for a cassette that does not exist."""
    return AdminError(
        f"there is no cassette '{name}': /api/v1/cassettes lists those there are",
        status=404,
        code="no_cassette",
    )


def no_interaction(name: str, index: int) -> AdminError:
    """The error for an interaction that a cassette does not have."""
    return AdminError(
        f"cassette '{name}' has no interaction {index}", status=404, code="no_interaction"
    )


async def digest_of(stored: StoredCassette | None) -> str | None:
    """The digest of a whole cassette, None for no cassette."""
    if stored is None:
        return None

    def digest() -> str:
        return document.cassette_digest(
            document.head_digest(stored.head), map(document.interaction_digest, stored.interactions)
        )

    return await asyncio.to_thread(digest)


class SpooledInteractions(Sequence[AnyInteraction]):
    """A cassette that is too large for memory, on its way into a store: screened interactions.

    Each is a line of a temporary file. Every access reads the disk: use a thread. In memory is
    where each line begins, and where the large bodies are.
    """

    def __init__(self, folder: str | None) -> None:
        """`folder` is the folder of the file, None for the system's. Raises StoreError."""
        self.replaced = 0
        """How many secrets were replaced in them."""
        self._file = TemporaryFile(folder)
        self._ends = array("Q", [0])
        self._bodies: dict[str, BodyFile] = {}

    def add(self, items: Sequence[AnyInteraction]) -> None:
        """Add interactions at the end. Raises StoreFull, StoreError."""
        for item in items:
            line = dump(document.numbered(item.index, document.encode(item)))
            self._file.write(line)
            self._ends.append(self._ends[-1] + len(line))
            self._bodies.update({file.digest: file for file in large_bodies(item)})

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[AnyInteraction]:
        return map(self._read, range(len(self)))

    @overload
    def __getitem__(self, at: int) -> AnyInteraction: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[AnyInteraction]: ...

    def __getitem__(self, at: int | slice) -> AnyInteraction | Sequence[AnyInteraction]:
        if isinstance(at, slice):
            return [self._read(position) for position in range(*at.indices(len(self)))]
        return self._read(range(len(self))[at])

    def _read(self, at: int) -> AnyInteraction:
        start, end = self._ends[at], self._ends[at + 1]
        line = os.pread(self._file.fd, end - start, start)
        if len(line) != end - start:
            raise StoreError(
                "a temporary file was cut while it was read: see what removes its content"
            )
        fields = Fields.of(parse(line), ())
        item = document.decode(dict(fields.values), fields.integer("index", low=0, high=2**53))
        return replace_large_bodies(item, self._body)

    def _body(self, file: BodyFile) -> BodyFile:
        return file.copied_to(self._bodies[file.digest])
