"""What was answered to whom sends the same again: an append that is repeated is done once."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

from tapeway.errors import AdminError

REMEMBERED = 10_000
"""Keys, over all cassettes; the oldest are forgotten first."""


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


class Receipts:
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
