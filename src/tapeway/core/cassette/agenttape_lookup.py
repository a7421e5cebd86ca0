"""Finds recordings made by AgentTape by the aliases of a request.

As in AgentTape, each answers once, in order. Then the repeat rule decides.
"""

from collections.abc import Iterable, Iterator, Sequence

from tapeway.core.agenttape.lookup import answers_in_order
from tapeway.core.agenttape.sdk_calls import NOT_STREAMABLE, can_answer, endpoint_of
from tapeway.core.cassette.cursors import Take
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import Interaction, exchange_of
from tapeway.core.model.messages import Request


def next_by_alias(
    cassette: CassetteIndex,
    take: Take,
    aliases: Iterable[bytes],
    asked: Request,
    repeats: Repeats | None,
    *,
    can_ask: bool = False,
) -> Interaction | None:
    """Take the next recording under the aliases that can answer the request.

    None if none is left. `repeats` is the repeat rule, None for the cassette's rule. With
    `can_ask` a recording that may be out of date does not answer.
    """
    groups = [
        answering
        for group in _groups(cassette, aliases)
        if (answering := [index for index in group if _can_answer(cassette, index, asked)])
    ]
    if not groups:
        return None
    index = _choose(take, groups, repeats or cassette.choice.repeats)
    if index is None:
        return None
    exchange = _exchange(cassette, index)
    if can_ask and exchange is not None and cassette.choice.why_asked(exchange, take) is not None:
        return None
    return cassette.use(index, take)


def used_by_alias(
    cassette: CassetteIndex, aliases: Iterable[bytes], asked: Request
) -> tuple[int, ...]:
    """The used recordings that would answer such a request otherwise."""
    indexes = dict.fromkeys(index for group in _groups(cassette, aliases) for index in group)
    return tuple([index for index in indexes if _can_answer(cassette, index, asked)])


def form_mismatch(cassette: CassetteIndex, aliases: Iterable[bytes], asked: Request) -> str | None:
    """Why no recording under these aliases can answer the request, None without a recording."""
    for group in _groups(cassette, aliases):
        for index in group:
            if not _can_answer(cassette, index, asked):
                return NOT_STREAMABLE.format(index=index, endpoint=endpoint_of(asked))
    return None


def _groups(cassette: CassetteIndex, aliases: Iterable[bytes]) -> Iterator[Sequence[int]]:
    """The indexes of the recordings with each alias, the most exact alias first."""
    for alias in aliases:
        if group := cassette.aliases.find(alias):
            yield group
            exchange = _exchange(cassette, group[0])
            if exchange is not None and answers_in_order(exchange):
                # Calls of an SDK have one order, plain requests a second.
                return


def _choose(take: Take, groups: Sequence[Sequence[int]], repeats: Repeats) -> int | None:
    if repeats != "first":
        for group in groups:
            for index in group:
                if index not in take.touched:
                    return index
    return take.repeat(groups[0], repeats)


def _can_answer(cassette: CassetteIndex, index: int, asked: Request) -> bool:
    exchange = _exchange(cassette, index)
    return exchange is not None and can_answer(exchange, asked)


def _exchange(cassette: CassetteIndex, index: int) -> Interaction | None:
    item = cassette.get(index)
    return None if item is None else exchange_of(item)
