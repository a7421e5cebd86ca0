"""The use of cassettes in a run: hits, misses, notices and savings."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Literal

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.rerecording import CHECKED_FIELD
from tapeway.core.http.headers import find_header
from tapeway.core.matching.headers.conditions import of_one_request
from tapeway.core.matching.rules import rules_of_meta
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.control import Control
from tapeway.core.model.interaction import AnyInteraction, Interaction, fingerprint
from tapeway.engine.journal import MissedCall, Tally, UnreachedRecording, UnrecordedAnswer
from tapeway.engine.report.dated import DatedRecording, dated_recordings
from tapeway.engine.report.standards import NO_LIMITS, Standards
from tapeway.ports import SharedStore
from tapeway.providers.api_call import samples
from tapeway.providers.prices import PriceTable

MOST_LISTED = 10_000
"""Further unused, duplicate and stale recordings of a shared store are not listed."""

_PAGE = 100


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """A recording as a report names it.

    `fingerprint` finds it again when its index has changed; empty where indexes are permanent. `day`
    (ISO 8601) is that of a stale one's last check, or of its recording.
    """

    index: int
    method: str
    path: str
    fingerprint: str = field(default="", compare=False)
    day: str = ""

    @property
    def title(self) -> str:
        """The recording in one line."""
        return f"#{self.index} {self.method} {self.path}" + (f", of {self.day}" if self.day else "")


@dataclass(frozen=True, slots=True)
class ModelTokens:
    """What replays of a model (`openai/gpt-4o`) would have been charged for."""

    model: str
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Savings:
    """The cost of the replays as live calls.

    `usd` is in US dollars; None where nothing that was replayed has a known price. `unpriced` are
    the models without one, `prices` says whose prices these are.
    """

    usd: float | None = None
    unpriced: tuple[ModelTokens, ...] = ()
    prices: str = ""


@dataclass(frozen=True, slots=True)
class CassetteReport:
    """One cassette's part of the report; `unused` and `duplicates` are those of the current take.

    `unmarked` are the recordings, made or replayed in this run, that are streams without their
    protocol's end mark: they may be incomplete. `stale` are those older than they may be.
    `redacted` counts the secrets that were replaced in recordings made in this run. `dated` are
    recordings of this run whose requests say when they were made.
    `elsewhere` are the origins of addresses in responses that no route leads to.
    `unrecorded` are live answers that were not stored. `repeated` are the recordings of model's
    answers that equal calls got too, in the take that made them.
    `unreached` are the replayed sessions whose tail no client reached.
    After an eject, `laggards` are the instances that have not left the take that ended.
    """

    name: str
    replayed: int
    recorded: int
    live: int
    retries: int
    misses: tuple[MissedCall, ...]
    unused: tuple[RecordingSummary, ...]
    duplicates: tuple[tuple[RecordingSummary, ...], ...]
    usage: dict[str, int]
    unmarked: tuple[RecordingSummary, ...] = ()
    stale: tuple[RecordingSummary, ...] = ()
    saved: Savings = Savings()
    redacted: int = 0
    dated: tuple[DatedRecording, ...] = ()
    elsewhere: tuple[str, ...] = ()
    unrecorded: tuple[UnrecordedAnswer, ...] = ()
    repeated: tuple[RecordingSummary, ...] = ()
    unreached: tuple[UnreachedRecording, ...] = ()
    laggards: tuple[str, ...] = ()

    @property
    def missed(self) -> int:
        """How many requests were missed."""
        return sum(each.times for each in self.misses)

    @property
    def requests(self) -> int:
        """The number of calls; a call retried by its SDK counts once."""
        return self.replayed + self.recorded + self.live + self.missed


@dataclass(frozen=True, slots=True)
class Isolation:
    """How a command was kept off the network, and who it asked for all the same.

    `network_namespace` is None where it may use the network: the hosts were reached.
    """

    network_namespace: bool | None
    bypassed: tuple[str, ...] = ()

    @property
    def kind(self) -> Literal["network namespace", "proxy variables"] | None:
        """What held, in a word or two."""
        if self.network_namespace is None:
            return None
        return "network namespace" if self.network_namespace else "proxy variables"

    @property
    def violations(self) -> tuple[str, ...]:
        """The hosts that it must not ask for, and did."""
        return () if self.network_namespace is None else self.bypassed

    @property
    def text(self) -> str:
        """What held, in a sentence."""
        if self.network_namespace is None:
            return "hosts that no route leads to, reached past the cassette"
        if self.network_namespace:
            return "offline: in a network namespace of its own"
        return "offline: by proxy variables alone; what ignores them could reach the network"


def savings(prices: PriceTable, models: Mapping[str, Sequence[int]]) -> Savings:
    """The cost of these models' replays as live calls."""
    unpriced, usd = [], []
    # A copy, since a thread makes reports while requests are counted.
    for model, counts in list(models.items()):
        used = ModelTokens(model, *counts)
        provider, _, name = model.partition("/")
        price = prices.find(provider, name)
        if price is None:
            unpriced.append(used)
        else:
            usd.append(price.of(used.prompt_tokens, used.completion_tokens))
    total = None if unpriced and not usd else round(sum(usd), 9)
    return Savings(total, tuple(unpriced), prices.origin)


def report_of_index(
    cassette: CassetteIndex, tally: Tally, standards: Standards = NO_LIMITS, today: str = ""
) -> CassetteReport:
    """The report of a cassette in memory."""
    unused = [
        RecordingSummary(each.index, each.request.method, each.request.target, fingerprint(each))
        for each in _interactions(map(cassette.get, cassette.unused()))
    ]
    duplicates = [
        [_summary(each) for each in _interactions(map(cassette.get, group))]
        for group in cassette.duplicates()
    ]
    stale: list[RecordingSummary] = []
    if (oldest := standards.oldest(today)) is not None and not _is_checked(cassette.head, oldest):
        stale = [*_stale(cassette.snapshot(), cassette.head, oldest)]
    dated: Sequence[DatedRecording] = ()
    if recorded_at := dict(tally.recorded_at):
        recorded = _interactions(map(cassette.get, recorded_at))
        dated = dated_recordings(recorded, recorded_at, cassette.rules, cassette.snapshot())
    repeated = {
        each.index: (each.request.method, each.request.target)
        for each in _interactions(map(cassette.get, [*cassette.repeated]))
        if samples(each)
    }
    listed = unused, duplicates, stale
    return _report(cassette.name, tally, standards, listed, dated, repeated)


async def report_of_store(
    store: SharedStore, control: Control, name: str, tally: Tally, standards: Standards, today: str
) -> CassetteReport:
    """The counts of this instance, and what no instance has used."""
    unused = (await store.unused(name, control.takes_of(name), MOST_LISTED)).first
    listed = (
        [RecordingSummary(each.index, each.method, each.target) for each in unused],
        await _duplicates_in_store(store, name),
        await _stale_in_store(store, name, standards.oldest(today)),
    )
    dated = await _dated_in_store(store, name, dict(tally.recorded_at))
    return _report(name, tally, standards, listed, dated)


_Listed = tuple[
    Iterable[RecordingSummary], Iterable[Iterable[RecordingSummary]], Iterable[RecordingSummary]
]
"""Unused recordings, duplicates, and stale ones."""


def _report(
    name: str,
    tally: Tally,
    standards: Standards,
    listed: _Listed,
    dated: Sequence[DatedRecording],
    repeated: Mapping[int, tuple[str, str]] = MappingProxyType({}),
) -> CassetteReport:
    unused, duplicates, stale = listed
    return CassetteReport(
        name=name,
        replayed=tally.outcomes["replayed"],
        recorded=tally.outcomes["recorded"],
        live=tally.outcomes["live"],
        retries=tally.retries,
        misses=tuple(tally.misses.values()),
        unused=tuple(unused),
        duplicates=tuple(tuple(group) for group in duplicates),
        usage=dict(tally.tokens),
        unmarked=_named(tally.unmarked),
        unrecorded=tuple(tally.unrecorded.values()),
        repeated=_named({**tally.repeated, **repeated}),
        stale=tuple(stale),
        saved=savings(standards.prices, tally.models),
        redacted=tally.redacted,
        dated=tuple(dated),
        elsewhere=tuple(tally.elsewhere),
        unreached=tuple(tally.unreached),
    )


def _named(found: Mapping[int, tuple[str, str]]) -> tuple[RecordingSummary, ...]:
    return tuple(RecordingSummary(index, *which) for index, which in sorted(found.items()))


async def _duplicates_in_store(store: SharedStore, name: str) -> list[list[RecordingSummary]]:
    """The recordings of one request: of those with one key headers may tell some apart."""
    outline, found = await store.outline(name), await store.duplicates(name, MOST_LISTED)
    ignored = () if outline is None else rules_of_meta(outline.head.meta).ignore_vary
    groups: list[list[RecordingSummary]] = []
    for titles in found:
        first = await store.get(name, titles[0].index)
        if (
            first is None
            or not isinstance(first.item, Interaction)
            or not first.item.request.varied
        ):
            # Nearly all; a job that was polled for hours is not read.
            groups.append(
                [RecordingSummary(each.index, each.method, each.target) for each in titles]
            )
            continue
        taken = [await store.get(name, each.index) for each in titles]
        items = _interactions([each.item for each in taken if each is not None])
        groups += [[*map(_summary, group)] for group in of_one_request(items, ignored)]
    return [group for group in groups if len(group) > 1]


async def _stale_in_store(
    store: SharedStore, name: str, oldest: str | None
) -> list[RecordingSummary]:
    outline = None if oldest is None else await store.outline(name)
    if oldest is None or outline is None or _is_checked(outline.head, oldest):
        return []
    found: list[RecordingSummary] = []
    async for page in _pages(store, name):
        found += _stale(page, outline.head, oldest)
        if len(found) >= MOST_LISTED:
            break
    return found[:MOST_LISTED]


async def _pages(store: SharedStore, name: str) -> AsyncIterator[list[AnyInteraction]]:
    after: int | None = None
    while page := await store.page(name, after=after, limit=_PAGE):
        yield [each.item for each in page]
        if len(page) < _PAGE:
            return
        after = page[-1].item.index


async def _dated_in_store(
    store: SharedStore, name: str, recorded_at: Mapping[int, float]
) -> Sequence[DatedRecording]:
    """Those of the recordings made here; a rule is tested on the first MOST_LISTED."""
    outline = await store.outline(name) if recorded_at else None
    if outline is None:
        return ()
    items: list[AnyInteraction] = []
    async for page in _pages(store, name):
        items += page
        if len(items) >= MOST_LISTED:
            break
    recorded = [each for each in _interactions(items) if each.index in recorded_at]
    rules = rules_of_meta(outline.head.meta)
    return await asyncio.to_thread(dated_recordings, recorded, recorded_at, rules, items)


def _is_checked(head: CassetteHead, oldest: str) -> bool:
    """Whether a cassette says that all its recordings are younger."""
    checked = head.meta.get(CHECKED_FIELD)
    return isinstance(checked, str) and checked >= oldest


def _stale(
    items: Iterable[AnyInteraction | None], head: CassetteHead, oldest: str
) -> Iterator[RecordingSummary]:
    checked = head.meta.get(CHECKED_FIELD)
    for each in _interactions(items):
        day = checked if isinstance(checked, str) else _recorded_on(each, head)
        if day < oldest:
            yield RecordingSummary(each.index, each.request.method, each.request.target, day=day)


def _recorded_on(item: Interaction, head: CassetteHead) -> str:
    """The day of its Date header (RFC 9110, section 6.6.1), else that of its cassette's beginning."""
    stated = find_header(item.response.headers, b"date") or b""
    try:
        moment = parsedate_to_datetime(stated.decode("latin-1"))
        return moment.astimezone(UTC).date().isoformat()
    except (ValueError, OverflowError):
        return head.created_at[:10]


def _interactions(items: Iterable[AnyInteraction | None]) -> Iterator[Interaction]:
    return (each for each in items if isinstance(each, Interaction))


def _summary(item: Interaction) -> RecordingSummary:
    return RecordingSummary(item.index, item.request.method, item.request.target)
