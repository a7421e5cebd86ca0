"""Values that an editor gets and returns: additions, receipts, digests.

A receipt makes an append idempotent: repeated with the same key, it is done once.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.errors import AdminError
from tapeway.formats.native import document

MOST_KEYS = 10_000
"""Idempotency keys that are remembered, over all cassettes; the oldest are forgotten first."""
MOST_BYTES = 16 * 1024 * 1024
"""What these take in memory together, with the index and digest of each interaction appended."""
_RECEIPT_BYTES, _APPENDED_BYTES = 1000, 300
"""As measured: a receipt without its key and interactions, and what an interaction adds."""


@dataclass(frozen=True, slots=True)
class Reference:
    """An interaction to replace, by index, and by digest in case it moved."""

    index: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Addition:
    """An interaction to append, under this index if it is free."""

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


class IdempotencyReceipts:
    """The last calls by their idempotency keys, while the process lives."""

    def __init__(self) -> None:
        self._receipts: OrderedDict[tuple[str, str], Receipt] = OrderedDict()
        self._bytes = 0

    def of(self, name: str, key: str | None, digest: str, size: int = 1) -> Receipt:
        """The receipt of this key, or a new one for `size` interactions.

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


async def digest_of(stored: StoredCassette | None) -> str | None:
    """The digest of a whole cassette, None for no cassette."""
    if stored is None:
        return None

    def digest() -> str:
        return document.cassette_digest(
            document.head_digest(stored.head), map(document.interaction_digest, stored.interactions)
        )

    return await asyncio.to_thread(digest)
