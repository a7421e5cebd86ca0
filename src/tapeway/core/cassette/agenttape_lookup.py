"""The recording of AgentTape's that a request means, found under one of its further names."""

from collections.abc import Iterable, Iterator, Sequence

from tapeway.core.agenttape.lookup import answers_in_order
from tapeway.core.agenttape.sdk_calls import NOT_STREAMABLE, can_answer, endpoint_of
from tapeway.core.cassette.cursors import Take
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import Interaction, exchange_of
from tapeway.core.model.messages import Request


def next_by_alias(
    cassette: CassetteIndex, names: Iterable[bytes], asked: Request, repeats: Repeats | None = None
) -> Interaction | None:
    """The recording with one of these names whose turn it is, used up from then on.

    As in AgentTape, each answers once and in order; what comes after the last is the repeat rule's
    business. None where there is none (left) that can answer such a request.
    """
    found = [
        [index for index in indexes if _fits(cassette, index, asked)]
        for indexes in _found(cassette, names)
    ]
    index = _turn(cassette.take, [each for each in found if each], repeats or cassette.repeats)
    return None if index is None else cassette.use(index)


def used_by_alias(
    cassette: CassetteIndex, names: Iterable[bytes], asked: Request
) -> tuple[int, ...]:
    """Those that would answer such a request, had they not done so already."""
    found = dict.fromkeys(each for indexes in _found(cassette, names) for each in indexes)
    return tuple([index for index in found if _fits(cassette, index, asked)])


def form_mismatch(cassette: CassetteIndex, names: Iterable[bytes], asked: Request) -> str | None:
    """Why what was found under these names cannot answer such a request."""
    for indexes in _found(cassette, names):
        for index in indexes:
            if not _fits(cassette, index, asked):
                return NOT_STREAMABLE.format(index=index, endpoint=endpoint_of(asked))
    return None


def _found(cassette: CassetteIndex, names: Iterable[bytes]) -> Iterator[Sequence[int]]:
    for name in names:
        if indexes := cassette.aliases.found([name]):
            yield indexes
            if _is_ordered(cassette, indexes[0]):
                # Calls of an SDK and other requests each have an order of their own.
                return


def _is_ordered(cassette: CassetteIndex, index: int) -> bool:
    exchange = _exchange(cassette, index)
    return exchange is not None and answers_in_order(exchange)


def _fits(cassette: CassetteIndex, index: int, asked: Request) -> bool:
    exchange = _exchange(cassette, index)
    return exchange is not None and can_answer(exchange, asked)


def _exchange(cassette: CassetteIndex, index: int) -> Interaction | None:
    item = cassette.get(index)
    return None if item is None else exchange_of(item)


def _turn(take: Take, found: Sequence[Sequence[int]], repeats: Repeats) -> int | None:
    if not found:
        return None
    if repeats != "first":
        for indexes in found:
            if unused := [each for each in indexes if each not in take.touched]:
                return unused[0]
    match repeats:
        case "miss":
            return None
        case "first":
            return found[0][0]
        case "cycle":
            again = min(found[0], key=lambda each: take.again[each])
            take.again[again] += 1
            return again
        case "last":
            return found[0][-1]
