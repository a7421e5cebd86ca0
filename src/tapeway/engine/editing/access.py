"""Appends to a cassette, as the editor and the access to its store see them."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.interaction import AnyInteraction
from tapeway.engine.editing.changes import Addition, Appended, Receipt, Reference
from tapeway.engine.editing.screening import Secrets
from tapeway.formats.native import document


@dataclass(frozen=True, slots=True)
class AppendCall:
    """A call that appends interactions, with its progress."""

    additions: Sequence[Addition]
    head: CassetteHead | None
    """The metadata of a cassette created by this call."""
    secrets: Secrets
    receipt: Receipt
    with_key: bool
    """Whether it has an idempotency key."""
    again: bool
    """Whether the client repeats the call."""

    def missing(
        self, items: Sequence[AnyInteraction]
    ) -> Iterator[tuple[int, Addition, AnyInteraction]]:
        """The additions that are not stored yet: number, addition, and the item to be stored."""
        for number, (addition, item) in enumerate(zip(self.additions, items, strict=True)):
            if number not in self.receipt.appended:
                yield number, addition, item

    def stored(self, number: int, item: AnyInteraction) -> None:
        """Note that an addition is durable."""
        self.receipt.appended[number] = Appended(item.index, document.interaction_digest(item))


class AppendTarget(Protocol):
    """A cassette while something is appended to it."""

    name: str
    head: CassetteHead

    async def note_repeated(self, call: AppendCall, items: Sequence[AnyInteraction]) -> None:
        """Note in the receipt what came before, perhaps to another process."""

    async def index(self, wanted: int | None) -> int:
        """The index of the next interaction, which may come with one."""

    async def superseded(self, wanted: Sequence[Reference]) -> tuple[int, ...]:
        """The indexes of wanted interactions that still exist."""

    def added(self, recording: Recording) -> None:
        """Note that a recording is durable."""


Append = Callable[["AppendTarget"], Awaitable[None]]
"""Appends to a cassette, which is ready to be appended to."""

MakeChanged = Callable[[CassetteHead, AnyInteraction], Awaitable[AnyInteraction | None]]
"""Makes the replacement of an interaction, None to remove it. Raises AdminError (412, 422)."""
