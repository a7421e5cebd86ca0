"""What is asked of an editor, and what it tells.

What a change depends on, so that two editors do not overwrite each other (RFC 9110 section 13).

What was answered to whom sends the same again: an append that is repeated is done once.

What a cassette's ETag says.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.errors import AdminError
from tapeway.formats.native import document

REMEMBERED = 10_000
"""Keys, over all cassettes; the oldest are forgotten first."""


@dataclass(frozen=True, slots=True)
class Reference:
    """An interaction to be superseded: by its index, and its digest in case it moved."""

    index: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Addition:
    """An interaction to be appended, under this index if that is free."""

    item: AnyInteraction
    index: int | None = None
    supersedes: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Changed:
    """What a cassette is after a change: its digest, and how many secrets were replaced in it."""

    digest: str
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class CassetteContents:
    """What a cassette says of itself, and its interactions in order, to be taken once."""

    head: CassetteHead
    items: AsyncGenerator[AnyInteraction]


@dataclass(frozen=True, slots=True)
class Condition:
    """`match` are the digests that may be replaced, None for any; `absent` allows no cassette at all."""

    match: frozenset[str] | None = None
    present: bool = False
    absent: bool = False

    @property
    def given(self) -> bool:
        return self.match is not None or self.present or self.absent

    def check(self, digest: str | None) -> None:
        """Raises AdminError (412) where what is there, None for nothing, is not what was meant."""
        if self.absent and digest is not None:
            raise _failed("it is there already")
        if self.present and digest is None:
            raise _failed("it is not there")
        if self.match is not None and digest not in self.match:
            raise _failed("it is not there" if digest is None else "it was changed meanwhile")


ANY = Condition()


def _failed(why: str) -> AdminError:
    return AdminError(
        f"{why}, so nothing was changed: read it again, and send what you want with its ETag",
        status=412,
        code="precondition_failed",
    )


@dataclass(frozen=True, slots=True)
class Appended:
    """Under which index an interaction is held, and its digest as it is held."""

    index: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Extended:
    """What an append made: the digest of what the cassette says of itself, and where each is."""

    head: str
    items: tuple[Appended, ...]


@dataclass(slots=True)
class Receipt:
    """How far one call has come; who repeats it waits for the first and goes on from there."""

    digest: str
    door: asyncio.Lock = field(default_factory=asyncio.Lock)
    done: dict[int, Appended] = field(default_factory=dict)
    head: str = ""


class IdempotencyReceipts:
    """The last calls by their keys, as long as the process lives."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._receipts: OrderedDict[tuple[str, str], Receipt] = OrderedDict()

    def of(self, name: str, key: str | None, digest: str) -> Receipt:
        """The receipt of this key, or a new one. Raises AdminError where it was another call's."""
        if key is None:
            return Receipt(digest)
        receipt = self._receipts.setdefault((name, key), Receipt(digest))
        self._receipts.move_to_end((name, key))
        if receipt.digest != digest:
            raise AdminError(
                "this Idempotency-Key was sent with another body before: take a new key for each call",
                status=422,
                code="idempotency_key_reused",
            )
        while len(self._receipts) > self._most:
            self._receipts.popitem(last=False)
        return receipt

    def forget(self, name: str) -> None:
        """A cassette is no more: what was appended to it may be appended again."""
        for at in [at for at in self._receipts if at[0] == name]:
            del self._receipts[at]


async def digest_of(stored: StoredCassette | None) -> str | None:
    """The digest of a whole cassette, None for no cassette."""
    if stored is None:
        return None

    def digest() -> str:
        return document.cassette_digest(
            document.head_digest(stored.head), map(document.interaction_digest, stored.interactions)
        )

    return await asyncio.to_thread(digest)
