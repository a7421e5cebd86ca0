"""The recorded calls of LLMs as conversations: each message once, in order.

An agent sends its whole history with each call. What of it a call before had said is not told
again; what it left out, changed or put in between is told where that came up.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.providers.kept import kept
from tapeway.providers.message import Message
from tapeway.providers.spoken import Unread, recorded, spoken
from tapeway.providers.threads import Threads


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A call that holds a conversation and could not be read."""

    interaction: int
    reason: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """All messages of a cassette, one conversation after the other, and what could not be read."""

    messages: tuple[Message, ...]
    left_out: tuple[LeftOut, ...] = ()


def transcript(interactions: Iterable[Interaction | ForeignInteraction]) -> Transcript:
    """The conversations of these calls in the order they come in, behind them an own history."""
    items = list(interactions)
    threads = Threads()
    left_out: list[LeftOut] = []
    for each in items:
        try:
            call = recorded(each) if isinstance(each, ForeignInteraction) else spoken(each)
        except Unread as exc:
            left_out.append(LeftOut(each.index, str(exc)))
            continue
        if call is not None:
            threads.add(call)
    said = list(threads.messages())
    said += _history(items, max((each.conversation for each in said), default=-1) + 1)
    return Transcript(tuple(said), tuple(left_out))


def _history(
    items: Iterable[Interaction | ForeignInteraction], conversation: int
) -> Iterator[Message]:
    for each in items:
        if isinstance(each, ForeignInteraction):
            yield from kept(each, conversation)
