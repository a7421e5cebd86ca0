"""Recording anew: the effect of a new answer on the recordings of earlier takes.

An unchanged answer leaves a recording alone. A changed answer replaces the recording, and
the new identifiers stand for the old ones from then on: a later request with new identifiers
is the recorded request with the old ones.
"""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from tapeway.core.cassette.cursors import Take
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.recording_keys import recording_key
from tapeway.core.correlation.ids import ids_by_field, looks_random
from tapeway.core.correlation.unify import IdBindings
from tapeway.core.http.volatile_headers import same_headers
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction, exchange_of
from tapeway.core.model.messages import Request, Response
from tapeway.core.model.values import value_class

CHECKED_FIELD = "checked_at"
"""In a cassette's `meta`: the day of the last comparison with new answers."""

MOST_WORDS = 10_000
"""Of more words in a request, some are not looked at."""

MOST_IDS = 50
"""Identifiers of one answer that are followed: an answer that lists more is no turn of anything."""

# A whole string of JSON, or a word in a path, a query or a text.
_STRING = re.compile(rb'"([!#-\[\]-~]{1,16384})"')
_WORD = re.compile(rb"[A-Za-z0-9_-]{8,}")


@value_class
class Replacement:
    """The recordings that a new answer replaces.

    `instead` are recordings of the request with other identifiers. With `unchanged` nothing is
    replaced: the recording has the answer already. `is_new` says that earlier takes have no recording
    of the request.
    """

    cassette: CassetteIndex
    instead: tuple[int, ...] = ()
    unchanged: Interaction | None = None
    is_new: bool = False


def head_checked(head: CassetteHead, day: str) -> CassetteHead:
    """The head of a cassette whose recordings were compared on this day; the same object if known."""
    if head.meta.get(CHECKED_FIELD) == day:
        return head
    return replace(head, meta={**head.meta, CHECKED_FIELD: day})


def head_checked_like(head: CassetteHead, other: CassetteHead) -> CassetteHead:
    """The head with the day of the last check taken from `other`, if any."""
    day = other.meta.get(CHECKED_FIELD)
    return head_checked(head, day) if isinstance(day, str) else head


def pruned(cassette: CassetteIndex) -> StoredCassette:
    """The cassette without the recordings that the take did not use, for a store to save.

    A new recording of the take takes the place of an unused recording of equal method and path:
    a changed request changes one place of the file.
    """
    kept = cassette.stored(touched_only=True)
    indexes = {interaction.index for interaction in kept.interactions}
    left: dict[tuple[str, str], deque[int]] = {}
    for interaction in cassette:
        if interaction.index not in indexes:
            left.setdefault(_endpoint(interaction), deque()).append(
                cassette.place_of(interaction.index)
            )
    places: dict[int, int] = {}
    for interaction in kept.interactions:
        position = places[interaction.index] = cassette.place_of(interaction.index)
        # A recording that replaced an earlier one has the earlier place already.
        free = left.get(_endpoint(interaction)) if position == interaction.index else None
        if free and cassette.take_of(interaction.index) == cassette.take.number:
            places[interaction.index] = free.popleft()
    ordered = sorted(kept.interactions, key=lambda recording: places[recording.index])
    return StoredCassette(kept.head, tuple(ordered))


def _endpoint(item: AnyInteraction) -> tuple[str, str]:
    if (exchange := exchange_of(item)) is None:
        return "", ""
    return exchange.request.method, exchange.request.target.partition("?")[0]


def first_earlier(cassette: CassetteIndex, indexes: Sequence[int]) -> Interaction | None:
    """The first of these recordings."""
    interaction = cassette.get(indexes[0]) if indexes else None
    return None if interaction is None else exchange_of(interaction)


def earlier_under(
    cassette: CassetteIndex, interaction: Interaction, request: Request, take: Take
) -> tuple[int, ...]:
    """The recordings of earlier takes that a new recording of a request would replace."""
    other = replace(interaction, request=request)
    return cassette.earlier(other, recording_key(other, cassette.rules), take)


def is_unchanged(earlier: Interaction, new: Interaction) -> bool:
    """Whether a new answer, in stored form, equals the recorded one.

    Times, chunk bounds and volatile headers do not count.
    A recording that does not name the headers that decide the answer is replaced.
    """
    left, right = earlier.response, new.response
    kinds = [
        exchange.failure.kind if exchange.failure is not None else "" for exchange in (earlier, new)
    ]
    return (
        (left.status, left.head.framing, kinds[0]) == (right.status, right.head.framing, kinds[1])
        and earlier.request.varied == new.request.varied
        and _content(left) == _content(right)
        and same_headers(left.headers, right.headers)
    )


def reissued_ids(earlier: Response, new: Response) -> dict[str, str]:
    """The identifiers of an earlier answer, each with the new answer's identifier in its place."""
    renamed: dict[str, str] = {}
    after = ids_by_field(new)
    for field, before in ids_by_field(earlier).items():
        now = after.get(field, [])
        if len(now) == len(before):
            renamed |= {old: young for old, young in zip(before, now, strict=True) if old != young}
    return renamed if len(renamed) <= MOST_IDS else {}


def random_words(request: Request) -> set[str]:
    """The words of a request that look like identifiers."""
    words = {*_STRING.findall(request.body)}
    for octets in (request.body, _octets(request.target)):
        words.update(_WORD.findall(octets))
    return {text for word in islice(words, MOST_WORDS) if looks_random(text := word.decode())}


def with_earlier_ids(request: Request, bindings: IdBindings) -> Request:
    """The request with an earlier take's identifiers in place of this take's."""
    if not bindings:
        return request

    def named(text: bytes) -> bytes:
        return (bindings.recorded_of(text.decode()) or text.decode()).encode()

    def renamed(octets: bytes) -> bytes:
        whole = _STRING.sub(lambda string: b'"%b"' % named(string[1]), octets)
        return _WORD.sub(lambda word: named(word[0]), whole)

    target = renamed(_octets(request.target)).decode("utf-8", "surrogateescape")
    return replace(request, target=target, body=renamed(request.body))


def _content(response: Response) -> bytes:
    return response.body if response.file is None else response.file.digest.encode()


def _octets(target: str) -> bytes:
    return target.encode("utf-8", "surrogateescape")
