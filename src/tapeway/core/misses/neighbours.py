"""Finds a few recordings that may be nearest to a missed request, among any number.

The recordings of a method and path are kept in two orders. One goes by the first telling texts of the
request, the second by the last texts, backwards and without numbers. A request that differs from
a recorded request at one end stands beside it in the order by the unchanged end. A request with new
dates or identifiers stands beside it in the order without numbers. Requests with equal texts go by
size: the calls of an agent begin with the same task and end with the same tools, and grow from call
to call. The neighbours in both orders are the candidates, and the newest recordings besides.

A store keeps both orders as indexes of a database (`order_keys`); `Neighbours` has both for a
cassette in memory. Stores and memory choose equal recordings.
"""

import hashlib
import heapq
import re
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from tapeway.core.model.interaction import AnyInteraction, Interaction, exchange_of
from tapeway.core.model.messages import Request
from tapeway.core.text import escape_octets, no_pause

NEIGHBOURS = 8
"""The number of neighbours on each side of the request in each order."""

MOST_NEWEST = 32
"""The newest recordings of the method and path that are looked at besides."""

MOST_SIMILAR = 64
"""Recordings of other paths, where none has the path of the request."""

SEARCHED_PATHS = 1000
"""So many of the newest recordings of any path are searched for a similar path."""

MOST_BYTES = 8 * 1024 * 1024
"""Total size of the bodies that are looked at."""

PREFIX = 8
"""Bytes of a key that stand for method and path."""

_LONGEST_KEY = 96
_SIZE = 4
"""Bytes of a key, at its end, that have the size of the request."""

_READ = 64 * 1024
"""Bytes of a body, from either end, in which texts are looked for."""

_HEAD, _TAIL = 32, 16
_BLANKS = b" \t\r\n"
_STRUCTURE = b" \t\r\n:,{}[]"
_DIGITS = b"0123456789"
_LONGEST_NAME = 12
"""A text of letters alone tells little up to this length: most are names of fields."""

T = TypeVar("T")


class MethodAndPath(NamedTuple):
    """Method and path of a request, without the query, as columns have them."""

    method: str
    path: str


@dataclass(frozen=True, slots=True)
class SoughtRequest:
    """A missed request, prepared for the search.

    `endpoints` are the method with the path, and with the path after the rules' rewrite.
    """

    endpoints: tuple[MethodAndPath, ...]
    forward: bytes
    backward: bytes

    @property
    def places(self) -> Iterator[tuple[bytes, bytes]]:
        """Its keys in both orders, among the requests of each endpoint."""
        for endpoint in self.endpoints:
            prefix = prefix_of(endpoint)
            yield prefix + self.forward, prefix + self.backward

    def below(self, prefixes: Iterable[str]) -> "SoughtRequest":
        """The request with its paths below some prefixes too."""
        more = [
            MethodAndPath(known.method, escape_octets(prefix) + known.path)
            for prefix in prefixes
            for known in self.endpoints
        ]
        return replace(self, endpoints=tuple(dict.fromkeys([*self.endpoints, *more])))

    def is_similar(self, endpoint: MethodAndPath) -> bool:
        """Whether an endpoint differs from the sought endpoints only in an identifier or a version."""
        return any(
            endpoint.method == known.method and has_similar_path(endpoint.path, known.path)
            for known in self.endpoints
        )


@lru_cache(maxsize=1024)
def prefix_of(endpoint: MethodAndPath) -> bytes:
    """What the keys of all requests to an endpoint begin with."""
    text = f"{endpoint.method}\0{endpoint.path}".encode()
    return hashlib.blake2b(text, digest_size=PREFIX).digest()


def endpoint_of(request: Request) -> MethodAndPath:
    """The method and path of a request."""
    path = escape_octets(request.target).partition("?")[0]
    return MethodAndPath(escape_octets(request.method), path)


def sought(missed: Request, rewritten_path: str) -> SoughtRequest:
    """A missed request, prepared for the search. Rules may rewrite the path."""
    own = endpoint_of(missed)
    endpoints = dict.fromkeys([own, MethodAndPath(own.method, escape_octets(rewritten_path))])
    return SoughtRequest(tuple(endpoints), *_texts_in_order(missed))


def order_keys(request: Request) -> tuple[bytes, bytes]:
    """The keys of a recorded request in both orders."""
    prefix = prefix_of(endpoint_of(request))
    forward, backward = _texts_in_order(request)
    return prefix + forward, prefix + backward


def bounds(key: bytes) -> tuple[bytes, bytes]:
    """The bounds of all keys with the same method and path."""
    return key[:PREFIX], key[:PREFIX] + b"\xff" * (_LONGEST_KEY + 1)


def has_similar_path(one: str, other: str) -> bool:
    """Whether one segment differs or is missing, and has a digit, as identifiers and versions do."""
    shorter, longer = sorted((one.split("/"), other.split("/")), key=len)
    at = 0
    while at < len(shorter) and shorter[at] == longer[at]:
        at += 1
    after = at + 1 - (len(longer) - len(shorter))
    if after < at or shorter[after:] != longer[at + 1 :]:
        return False
    return all(
        any(map(str.isdigit, segment)) for segment in (*shorter[at:after], *longer[at : at + 1])
    )


def weight_of(interaction: Interaction) -> int | None:
    """The size of a recording's bodies; None for a recording with large bodies, which is left out."""
    request, response = interaction.request, interaction.response
    if request.file is not None or response.file is not None:
        return None
    return len(request.body) + len(response.body)


def within_budget(weighed: Iterable[tuple[T, int]]) -> list[T]:
    """The first of some weighed recordings, as far as the bodies fit the budget."""
    left, chosen = MOST_BYTES, dict[T, None]()
    for candidate, weight in weighed:
        if candidate not in chosen and weight <= left:
            left -= weight
            chosen[candidate] = None
    return list(chosen)


class Neighbours:
    """The recordings of a cassette in memory, in both orders.

    Recordings are added and removed on the event loop. A search sorts them, which takes long
    the first time. Searches run in a thread, one at a time.
    """

    def __init__(self, recordings: Iterable[AnyInteraction]) -> None:
        self._given = recordings
        self._changes: list[tuple[Interaction, bool]] = []
        self._forward: list[tuple[bytes, int]] = []
        self._backward: list[tuple[bytes, int]] = []
        self._of_endpoint: dict[MethodAndPath, list[int]] = {}
        self._indexes: list[int] = []
        self._endpoints: list[MethodAndPath] = []
        self._weights: dict[int, int] = {}

    def add(self, exchange: Interaction) -> None:
        """Add a recording, which is looked at by the next search."""
        self._changes.append((exchange, True))

    def remove(self, exchange: Interaction) -> None:
        """Leave out a recording that was replaced or removed."""
        self._changes.append((exchange, False))

    def indexes(self, asked: SoughtRequest, step: Callable[[], None] = no_pause) -> list[int]:
        """The indexes of the candidates, the likeliest first.

        `step` is called after each recording that is put in order.
        """
        self._put_in_order(step)
        same = [self._of_endpoint.get(endpoint, []) for endpoint in asked.endpoints]
        if not any(same):
            return list(islice(self._similar(asked), MOST_SIMILAR))
        indexes_beside: list[int] = []
        for forward, backward in asked.places:
            indexes_beside += _indexes_beside(self._forward, forward)
            indexes_beside += _indexes_beside(self._backward, backward)
        newest = sorted([at for places in same for at in places[-MOST_NEWEST:]], reverse=True)
        return [*indexes_beside, *newest[:MOST_NEWEST]]

    def near(
        self,
        asked: SoughtRequest,
        get: Callable[[int], AnyInteraction | None],
        step: Callable[[], None] = no_pause,
    ) -> list[AnyInteraction]:
        """The candidates from `get`, in order. Call this in a thread."""
        weighed = [(index, self._weights[index]) for index in self.indexes(asked, step)]
        # Some may have been removed since the search began.
        items = map(get, sorted(within_budget(weighed)))
        return [item for item in items if item is not None]

    def _similar(self, asked: SoughtRequest) -> Iterator[int]:
        for at in range(len(self._indexes) - 1, -1, -1)[:SEARCHED_PATHS]:
            if asked.is_similar(self._endpoints[at]):
                yield self._indexes[at]

    def _put_in_order(self, step: Callable[[], None]) -> None:
        given, self._given = self._given, ()
        changes, self._changes = self._changes, []
        added = {
            recording.index: recording
            for recording in map(exchange_of, given)
            if recording is not None
        }
        for exchange, is_there in changes:
            if is_there:
                added[exchange.index] = exchange
            elif added.pop(exchange.index, None) is None:
                self._take_out(exchange)
        forward, backward = list[tuple[bytes, int]](), list[tuple[bytes, int]]()
        for index, exchange in added.items():
            if (weight := weight_of(exchange)) is None:
                continue
            self._weights[index] = weight
            endpoint = endpoint_of(exchange.request)
            insort(self._of_endpoint.setdefault(endpoint, []), index)
            at = bisect_left(self._indexes, index)
            self._indexes.insert(at, index)
            self._endpoints.insert(at, endpoint)
            keys = order_keys(exchange.request)
            forward.append((keys[0], -index))
            backward.append((keys[1], -index))
            step()
        self._forward = _merged(self._forward, forward)
        self._backward = _merged(self._backward, backward)

    def _take_out(self, exchange: Interaction) -> None:
        index = exchange.index
        if self._weights.pop(index, None) is None:
            return
        same = self._of_endpoint[endpoint_of(exchange.request)]
        del same[bisect_left(same, index)]
        at = bisect_left(self._indexes, index)
        del self._indexes[at], self._endpoints[at]
        forward, backward = order_keys(exchange.request)
        del self._forward[bisect_left(self._forward, (forward, -index))]
        del self._backward[bisect_left(self._backward, (backward, -index))]


def _indexes_beside(ordered: Sequence[tuple[bytes, int]], key: bytes) -> list[int]:
    """The neighbours of a key in an order: those behind it, then those before it."""
    at = bisect_left(ordered, (key,))
    behind = ordered[at : at + NEIGHBOURS]
    before = ordered[max(0, at - NEIGHBOURS) : at][::-1]
    prefix = key[:PREFIX]
    return [-index for text, index in (*behind, *before) if text.startswith(prefix)]


_SORTED_AT_ONCE = 500


def _merged(
    ordered: list[tuple[bytes, int]], more: list[tuple[bytes, int]]
) -> list[tuple[bytes, int]]:
    """Both lists merged in order. Sorting blocks all threads, so large lists are sorted in parts."""
    if len(more) < MOST_NEWEST:
        for entry in more:
            insort(ordered, entry)
        return ordered
    parts = [
        sorted(more[start : start + _SORTED_AT_ONCE])
        for start in range(0, len(more), _SORTED_AT_ONCE)
    ]
    return list(heapq.merge(ordered, *parts))


def _texts_in_order(request: Request) -> tuple[bytes, bytes]:
    """The beginning of a request's telling texts, and their end, read backwards."""
    query = escape_octets(request.target).partition("?")[2].encode().split(b"&")
    first = last = _pieces(request.body[:_READ])
    if len(request.body) > _READ:
        last = _pieces(request.body[-_READ:])
    # The query comes last in both: beside a body, a query seldom tells requests apart.
    forward = _key_of_texts(map(_shortened, _telling_pieces(chain(first, query))))
    backward = _key_of_texts(
        map(_read_backwards, _telling_pieces(chain(reversed(last), reversed(query))))
    )
    # Blanks do not count: a file has the body written anew.
    size = len(request.body.translate(None, _BLANKS)).to_bytes(_SIZE, "big")
    return forward + size, backward + size


def _pieces(body: bytes) -> list[bytes]:
    return body.split(b'"') if b'"' in body else re.split(rb"[&\n]", body)


def _telling_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        text = piece.strip(_STRUCTURE)
        if text and (len(text) > _LONGEST_NAME or not text.isalpha()):
            yield text


def _shortened(text: bytes) -> bytes:
    return text if len(text) <= _HEAD + _TAIL else text[:_HEAD] + text[-_TAIL:]


def _read_backwards(text: bytes) -> bytes:
    if len(text) > _HEAD + _TAIL:
        text = text[:_TAIL] + text[-_HEAD:]
    words = [b"0" if _has_digit(part) else part for part in text.split(b" ")]
    return b" ".join(words)[::-1]


def _has_digit(word: bytes) -> bool:
    return not word.isalpha() and len(word.translate(None, _DIGITS)) < len(word)


def _key_of_texts(texts: Iterable[bytes]) -> bytes:
    """As many of the first texts as a key has room for."""
    key, most = b"", _LONGEST_KEY - _SIZE
    for text in texts:
        key += text + b"\0"
        if len(key) >= most:
            break
    return key[:most]
