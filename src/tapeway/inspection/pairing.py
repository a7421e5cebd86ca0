"""How two cassettes compare, recording by recording.

Both cassettes are read once, and of each recording only digests are remembered. Recordings of equal
requests are paired in order, then those whose requests differ only in identifiers, then the
remaining ones of the same endpoint. Only pairs whose digests differ are read again and compared.
"""

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, NamedTuple, TypeVar

from tapeway.conversations.meaning import is_set_aside, is_stream, meaning
from tapeway.core.cassette.rerecording import reissued_ids
from tapeway.core.correlation.ids import looks_random
from tapeway.core.digests import sha256
from tapeway.core.http.routing import RouteTable, assign_route
from tapeway.core.json_text import Json, NotJson, canonical, parse
from tapeway.core.matching.credential_fields import compared_key, without_digests
from tapeway.core.matching.headers.conditions import varied_values
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.differences import Difference, difference_document, differences
from tapeway.core.misses.nearest import path_of, request_differences
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import BodyFile, Request, Response
from tapeway.core.streams.documents import documents
from tapeway.core.text import decode_utf8
from tapeway.errors import StoreError
from tapeway.inspection.summary import NamedRecording, listed, named
from tapeway.paging import CassetteRef

T = TypeVar("T")

_MAX_DIFFERENCES = 20
"""How many differences of one pair are shown."""

_NOT_COMPARED = ("index", "latency_ms", "match_key", "request")
"""Fields that differ between two recordings of a call, or are compared separately."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]{4,}")


PairState = Literal["equal", "alike", "different", "only_first", "only_second"]


@dataclass(frozen=True, slots=True)
class PairedRow:
    """Recordings of both sides in one row, by index; None where a side has none."""

    first: int | None
    second: int | None
    state: PairState

    @property
    def document(self) -> dict[str, Json]:
        return {"first": self.first, "second": self.second, "state": self.state}


@dataclass(frozen=True, slots=True)
class RecordingPair:
    """Two recordings of one call and their first differences; `more` if there are others.

    Without differences `alike` says whether they differ in identifiers and times.
    """

    first: NamedRecording
    second: NamedRecording
    differences: tuple[Difference, ...]
    more: bool = False
    alike: bool = False

    @property
    def state(self) -> PairState:
        if self.differences:
            return "different"
        return "alike" if self.alike else "equal"


@dataclass(frozen=True, slots=True)
class CassetteDiff:
    """How two cassettes compare; `alike` are equal but for identifiers and times."""

    names: tuple[str, str]
    equal: int
    alike: int
    different: tuple[RecordingPair, ...]
    only_first: tuple[NamedRecording, ...]
    only_second: tuple[NamedRecording, ...]
    rows: tuple[PairedRow, ...] = ()
    """All recordings, aligned by request, if they were asked for."""

    @property
    def same(self) -> bool:
        return not (self.different or self.only_first or self.only_second)


@dataclass(frozen=True, slots=True)
class DiffSource:
    """A cassette that is read once and then looked up by index, with a route for each recording.

    `recordings` is the cassette if the store can look up a single recording; otherwise all recordings
    by index.
    """

    head: CassetteHead
    shown: str
    """The cassette's name for people."""
    table: RouteTable
    recordings: Mapping[int, AnyInteraction] | CassetteRef

    @classmethod
    async def open(cls, cassette: CassetteRef, table: RouteTable) -> "DiffSource":
        """A cassette of an open store. Raises ConfigError if there is none, StoreError."""
        if cassette.store.shared is not None:
            return cls((await cassette.walk()).head, cassette.shown, table, cassette)
        return cls.in_memory(await cassette.load(), cassette.shown, table)

    @classmethod
    def in_memory(cls, stored: StoredCassette, shown: str, table: RouteTable) -> "DiffSource":
        """A cassette that was read as a whole."""
        recordings = {recording.index: recording for recording in stored.interactions}
        return cls(stored.head, shown, table, recordings)

    async def items(self) -> AsyncIterator[AnyInteraction]:
        """All interactions in order."""
        if isinstance(self.recordings, Mapping):
            for interaction in self.recordings.values():
                yield assign_route(interaction, self.table)
            return
        async for item in (await self.recordings.walk()).items:
            yield assign_route(item, self.table)

    async def get(self, index: int) -> AnyInteraction:
        """An interaction that `items` returned before. Raises StoreError if it was removed since."""
        if isinstance(self.recordings, Mapping):
            item: AnyInteraction | None = self.recordings[index]
        else:
            item = await self.recordings.get(index)
        if item is None:
            raise StoreError(f"{self.shown} was changed while it was read: try again")
        return assign_route(item, self.table)

    async def named(self, digests: Sequence["_Digests"]) -> tuple[NamedRecording, ...]:
        """These recordings as they are shown."""
        return tuple([named(await self.get(digest.number)) for digest in digests])


@dataclass(slots=True)
class Progress:
    """How far a comparison has come, for another thread to read."""

    step: Literal["read", "compare"] = "read"
    done: int = 0
    of: int = 0
    """How many recordings, or pairs, the step has."""

    def begin_comparing(self, pairs: int) -> None:
        """All recordings are read, and so many pairs are left."""
        self.step, self.done, self.of = "compare", 0, pairs


class _Digests(NamedTuple):
    """What is remembered of a recording. Those of one call are equal in all but the number."""

    number: int
    request: bytes
    endpoint: bytes
    response: bytes


async def compare(
    first: DiffSource,
    second: DiffSource,
    rules: Rules,
    *,
    headers: bool,
    rows: bool = False,
    progress: Progress | None = None,
) -> CassetteDiff:
    """How two cassettes compare under these rules, with `rows` in a row each. Raises StoreError."""
    progress = progress or Progress()
    left = await _all_digests(first, rules, progress, headers=headers)
    right = await _all_digests(second, rules, progress, headers=headers)
    pairs, left, right = _paired(left, right, lambda exchange: exchange.request)
    masked = {id(exchange): await _masked_digest(first, exchange, rules) for exchange in left}
    masked |= {id(exchange): await _masked_digest(second, exchange, rules) for exchange in right}
    masked_pairs, left, right = _paired(left, right, lambda exchange: masked[id(exchange)])
    others, left, right = _paired(left, right, lambda exchange: exchange.endpoint)
    pairs += masked_pairs + others
    progress.begin_comparing(len(pairs))
    equal = alike = 0
    different: list[RecordingPair] = []
    renamed: dict[str, str] = {}
    aligned: list[PairedRow] = []
    for one, other in sorted(pairs):
        state: PairState = "equal"
        if one[1:] != other[1:]:
            items = await first.get(one.number), await second.get(other.number)
            pair = _compare_pair(*items, rules, renamed, headers=headers)
            different += [pair] if pair.differences else []
            state = pair.state
        progress.done += 1
        alike += state == "alike"
        equal += state == "equal"
        if rows:
            aligned.append(PairedRow(one.number, other.number, state))
    if rows:
        aligned = _in_order(aligned, left, right)
    return CassetteDiff(
        (first.shown, second.shown),
        equal,
        alike,
        tuple(different),
        await first.named(left),
        await second.named(right),
        tuple(aligned),
    )


def compare_items(
    first: AnyInteraction, second: AnyInteraction, rules: Rules, *, headers: bool
) -> RecordingPair:
    """How two recordings compare under these rules."""
    return _compare_pair(first, second, rules, {}, headers=headers)


def diff_document(diff: CassetteDiff) -> dict[str, Json]:
    """The comparison as JSON."""
    return {
        "equal": diff.equal,
        "equal_but_for_ids_and_times": diff.alike,
        "different": [pair_document(pair) for pair in diff.different],
        "only_first": listed(diff.only_first),
        "only_second": listed(diff.only_second),
    }


def pair_document(pair: RecordingPair) -> dict[str, Json]:
    """Two recordings that differ, as JSON."""
    names = {"path": "path", "recorded": "first", "requested": "second"}
    shown: list[Json] = [
        {names[name]: value for name, value in difference_document(difference).items()}
        for difference in pair.differences
    ]
    return {
        "first": pair.first.index,
        "second": pair.second.index,
        "summary": pair.first.summary,
        "differences": shown,
        "more": pair.more,
    }


def _in_order(
    paired: Sequence[PairedRow], left: Sequence["_Digests"], right: Sequence["_Digests"]
) -> list[PairedRow]:
    """Rows in the first cassette's order; rows of the second alone follow their neighbour."""
    rows = [*paired, *[PairedRow(recording.number, None, "only_first") for recording in left]]
    rows.sort(key=lambda row: -1 if row.first is None else row.first)
    waiting = sorted([recording.number for recording in right], reverse=True)
    ordered: list[PairedRow] = []
    for row in rows:
        while waiting and row.second is not None and waiting[-1] < row.second:
            ordered.append(PairedRow(None, waiting.pop(), "only_second"))
        ordered.append(row)
    return ordered + [PairedRow(None, number, "only_second") for number in reversed(waiting)]


def _digests(item: AnyInteraction, rules: Rules, *, headers: bool) -> _Digests:
    if isinstance(item, Interaction):
        endpoint = [item.request.route, item.request.method, path_of(item.request, rules)]
        asked = without_digests(item.request)
        return _Digests(
            item.index,
            _digest(_request_key(asked, rules)),
            _digest(repr(endpoint).encode("utf-8", "backslashreplace")),
            _digest(canonical(_response(item, {"body": _body(item.response)}, headers=headers))),
        )
    kind = repr((str(item.document.get("kind")), str(item.document.get("boundary")))).encode()
    request = _digest(kind + canonical(item.document.get("request")))
    rest = _digest(canonical(_compared_members(item)))
    return _Digests(item.index, request, _digest(kind), rest)


async def _all_digests(
    source: DiffSource, rules: Rules, progress: Progress, *, headers: bool
) -> list[_Digests]:
    found: list[_Digests] = []
    async for item in source.items():
        found.append(_digests(item, rules, headers=headers))
        progress.done += 1
    return found


async def _masked_digest(source: DiffSource, digests: _Digests, rules: Rules) -> bytes:
    """The digest of a request without identifiers, needed only if no request is equal."""
    item = await source.get(digests.number)
    if not isinstance(item, Interaction):
        return digests.request
    return _digest(_request_key(without_digests(_masked(item.request)), rules))


def _request_key(request: Request, rules: Rules) -> bytes:
    """A key of equal requests, deciding headers included."""
    key = compared_key(request, rules, recorded=True)
    return key + b"\0" + varied_values(request, rules.ignore_vary)


def _masked(request: Request) -> Request:
    """The request with a number in place of each identifier that looks random."""
    numbers: dict[str, str] = {}

    def mask(word: str) -> str:
        return numbers.setdefault(word, f"id-{len(numbers)}") if looks_random(word) else word

    return _with_words(request, mask)


def _with_words(request: Request, change: Callable[[str], str]) -> Request:
    """The request with each word of its target and body changed."""

    def changed(text: str) -> str:
        return _TOKEN.sub(lambda token: change(token[0]), text)

    body = changed(request.body.decode("utf-8", "surrogateescape"))
    encoded = body.encode("utf-8", "surrogateescape")
    return replace(request, target=changed(request.target), body=encoded)


def _digest(data: bytes) -> bytes:
    return sha256(data).digest()[:16]


def _paired(
    left: Sequence[_Digests], right: Sequence[_Digests], digest_of: Callable[[_Digests], bytes]
) -> tuple[list[tuple[_Digests, _Digests]], list[_Digests], list[_Digests]]:
    """Pairs of equal digest in order, and the recordings of either side without a pair."""
    partner_of = matched(left, right, digest_of)
    paired = {*partner_of.values()}
    return (
        [(left[one], right[other]) for one, other in partner_of.items()],
        [recording for position, recording in enumerate(left) if position not in partner_of],
        [recording for position, recording in enumerate(right) if position not in paired],
    )


def matched(
    left: Sequence[T], right: Sequence[T], key_of: Callable[[T], Hashable]
) -> dict[int, int]:
    """The positions of equal values, in order, each once."""
    waiting: dict[Hashable, list[int]] = defaultdict(list)
    for position in reversed(range(len(right))):
        waiting[key_of(right[position])].append(position)
    return {
        position: places.pop()
        for position, recording in enumerate(left)
        if (places := waiting[key_of(recording)])
    }


def _compare_pair(
    first: AnyInteraction,
    second: AnyInteraction,
    rules: Rules,
    renamed: dict[str, str],
    *,
    headers: bool,
) -> RecordingPair:
    """Their differences; `renamed` has the first's identifiers by those of the second so far."""
    names = named(first), named(second)
    if isinstance(first, Interaction) and isinstance(second, Interaction):
        differing, alike = _exchange_differences(first, second, rules, renamed, headers=headers)
    else:
        differing, alike = list(_foreign_differences(first, second)), False
    more = len(differing) > _MAX_DIFFERENCES
    return RecordingPair(*names, tuple(differing[:_MAX_DIFFERENCES]), more, alike and not differing)


def _exchange_differences(
    first: Interaction,
    second: Interaction,
    rules: Rules,
    renamed: dict[str, str],
    *,
    headers: bool,
) -> tuple[list[Difference], bool]:
    """What differs, and whether anything was set aside."""
    known = second.request
    if renamed:
        known = _with_words(known, lambda word: renamed.get(word, word))
    asked = [*request_differences(first.request, known, rules)]
    differing = [
        replace(difference, steps=("request", *difference.steps))
        for difference in asked
        if not is_set_aside(difference)
    ]
    reissued = reissued_ids(first.response, second.response)
    renamed.update({new: old for old, new in reissued.items() if _TOKEN.fullmatch(new)})
    assembled = is_stream(first.response) or is_stream(second.response)
    left = _meaning(first, {}, assembled=assembled, headers=headers)
    right = _meaning(second, renamed, assembled=assembled, headers=headers)
    differing += islice(differences(left[0], right[0], _MAX_DIFFERENCES + 1), _MAX_DIFFERENCES + 1)
    alike = left[1] != right[1] or len(asked) > 0 or known != second.request
    return differing, alike


def without_varying(item: AnyInteraction) -> dict[str, Json]:
    """A recording for people: the request, and the response without identifiers and times."""
    if isinstance(item, ForeignInteraction):
        return {**_request(item), **_compared_members(item)}
    request = item.request
    asked: dict[str, Json] = {"request": f"{request.method} {request.url}"}
    if request.file is not None:
        asked["body"] = _file(request.file)
    elif request.body:
        asked["body"] = _value(request.body)
    assembled = is_stream(item.response)
    return {**asked, **_meaning(item, {}, assembled=assembled, headers=False)[0]}


def _meaning(
    item: Interaction, renamed: Mapping[str, str], *, assembled: bool, headers: bool
) -> tuple[dict[str, Json], tuple[bytes, ...]]:
    """The content of an answer, with the identifiers of the first, and the parts set aside."""
    understood = meaning(item, _body(item.response), assembled=assembled)
    content = {name: _renamed(member, renamed) for name, member in understood.said.items()}
    return _response(item, content, headers=headers), understood.aside


def _renamed(value: Json, renamed: Mapping[str, str]) -> Json:
    """The value with the identifiers in its texts renamed."""
    if not renamed:
        return value
    if isinstance(value, str):
        return _TOKEN.sub(lambda token: renamed.get(token[0], token[0]), value)
    if isinstance(value, list):
        return [_renamed(item, renamed) for item in value]
    if isinstance(value, dict):
        return {name: _renamed(member, renamed) for name, member in value.items()}
    return value


def _foreign_differences(first: AnyInteraction, second: AnyInteraction) -> Iterator[Difference]:
    budget = _MAX_DIFFERENCES + 1
    if isinstance(first, ForeignInteraction) and isinstance(second, ForeignInteraction):
        yield from differences(_request(first), _request(second), budget)
        yield from differences(_compared_members(first), _compared_members(second), budget)


def _response(item: Interaction, content: Mapping[str, Json], *, headers: bool) -> dict[str, Json]:
    """An answer, with its meaning as content."""
    response = item.response
    parts: dict[str, Json] = {"status": response.status, **content}
    if response.verdict in ("error", "truncated", "unmarked"):
        parts["verdict"] = response.verdict
    if headers:
        parts["headers"] = _headers(response)
    document: dict[str, Json] = {"response": parts}
    if item.failure is not None:
        document["failure"] = item.failure.kind
    return document


def _body(response: Response) -> Json:
    """The values of a body or of a stream's events; if they are no text, their hash."""
    if response.file is not None:
        return _file(response.file)
    values = [_value(document) for document in documents(response)]
    return values[0] if len(values) == 1 else [*values]


def _file(file: BodyFile) -> Json:
    return {"sha256": file.digest, "bytes": file.size}


def _value(data: bytes) -> Json:
    try:
        return parse(data, by_value=True)
    except NotJson:
        text = decode_utf8(data)
    if text is not None:
        return text
    return {"sha256": sha256(data).hexdigest(), "bytes": len(data)}


def _headers(response: Response) -> Json:
    fields: dict[str, list[Json]] = {}
    for name, value in response.headers:
        text = value.decode("utf-8", "backslashreplace")
        fields.setdefault(name.decode("latin-1").lower(), []).append(text)
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


def _request(item: ForeignInteraction) -> dict[str, Json]:
    return {"request": item.document.get("request")}


def _compared_members(item: ForeignInteraction) -> dict[str, Json]:
    return {name: value for name, value in item.document.items() if name not in _NOT_COMPARED}
