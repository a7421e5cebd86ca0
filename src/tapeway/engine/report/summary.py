"""The use of cassettes in a run: hits, misses, notices and savings."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal, Protocol

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.rerecording import CHECKED_FIELD
from tapeway.core.http.headers import find_header
from tapeway.core.matching.rules import Rules, rules_of_meta
from tapeway.core.misses.dated_requests import FoundMoment, found_moment
from tapeway.core.misses.suggestion import confused_recordings, refusal_text, rules_text
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction, Interaction, fingerprint
from tapeway.engine.faulted_calls import FaultedCall
from tapeway.engine.journal import MissedCall, Tally, UnreachedRecording, UnrecordedAnswer
from tapeway.engine.report.standards import NO_LIMITS, Standards
from tapeway.ports import SharedStore
from tapeway.providers.prices import PriceTable

MOST_LISTED = 10_000
"""Further unused, duplicate and stale recordings of a shared store are not listed."""

_PAGE = 100


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """A recording as a report names it.

    `fingerprint` finds the recording after a change of its index; empty where indexes are permanent.
    `day` (ISO 8601) is the day of a stale recording's last check, or of the recording itself.
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
class DatedRecording:
    """A recording whose request has the day (or else the time of day) it was made at.

    `advice` names the rule, or says why none is suggested.
    """

    index: int
    method: str
    path: str
    kind: Literal["date", "time", "path"]
    advice: str

    @property
    def title(self) -> str:
        """The recording in one line."""
        return f"#{self.index} {self.method} {self.path}"


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

    `usd` is in US dollars; None where no replay has a known price. `unpriced` are models without a
    price, `prices` names the source of the prices.
    """

    usd: float | None = None
    unpriced: tuple[ModelTokens, ...] = ()
    prices: str = ""


@dataclass(frozen=True, slots=True)
class CassetteReport:
    """One cassette's part of the report; `unused` and `duplicates` are those of the current take.

    `unmarked` are streams of this run without the protocol's end mark: they may be incomplete.
    `stale` recordings are too old. `redacted_kinds` counts the secrets that were replaced in new
    recordings, by the labels of their placeholders. `dated` are new recordings whose requests state the time of recording.
    `elsewhere` are the origins of addresses in responses that no route leads to.
    `unrecorded` are live answers that were not stored. `repeated` are a model's recorded answers
    that equal calls of the same take got too.
    `told_apart` are the rules that have headers count which told equal requests of a take apart.
    `failed` counts the calls answered with an error of tapeway, by code.
    `unreached` are the replayed sessions whose tail no client reached. `faulted` are the calls that
    faults were laid over.
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
    redacted_kinds: Mapping[str, int] = field(default_factory=dict)
    dated: tuple[DatedRecording, ...] = ()
    elsewhere: tuple[str, ...] = ()
    unrecorded: tuple[UnrecordedAnswer, ...] = ()
    repeated: tuple[RecordingSummary, ...] = ()
    told_apart: tuple[str, ...] = ()
    unreached: tuple[UnreachedRecording, ...] = ()
    failed: Mapping[str, int] = field(default_factory=dict)
    faulted: tuple[FaultedCall, ...] = ()

    @property
    def redacted(self) -> int:
        """How many secrets were replaced in new recordings."""
        return sum(self.redacted_kinds.values())

    @property
    def missed(self) -> int:
        """How many requests were missed."""
        return sum(miss.times for miss in self.misses)

    @property
    def requests(self) -> int:
        """The number of calls; a call retried by its SDK counts once."""
        return self.replayed + self.recorded + self.live + self.missed + self.failures

    @property
    def failures(self) -> int:
        """How many calls got an error of tapeway, for example for an upstream that is down."""
        return sum(self.failed.values())


@dataclass(frozen=True, slots=True)
class Isolation:
    """How a command was kept off the network, and which hosts the command asked for all the same.

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


class ReportedRecordings(Protocol):
    """The recordings of a cassette, as a report asks for them."""

    name: str

    async def head(self) -> CassetteHead | None:
        """The head, None where the store has no cassette."""

    async def unused(self) -> Sequence[RecordingSummary]:
        """The recordings that the take in force has not used."""

    async def duplicates(self, head: CassetteHead) -> Sequence[Sequence[RecordingSummary]]:
        """Groups of recordings of one request."""

    def pages(self) -> AsyncIterator[Sequence[AnyInteraction]]:
        """All recordings, in order."""


class RecordingsInMemory(ReportedRecordings):
    """The recordings of a loaded cassette. Threads read them, since there may be very many."""

    def __init__(self, cassette: CassetteIndex) -> None:
        self.name = cassette.name
        self._cassette = cassette

    async def head(self) -> CassetteHead:
        return self._cassette.head

    async def unused(self) -> Sequence[RecordingSummary]:
        def titles() -> list[RecordingSummary]:
            unused = _interactions(map(self._cassette.get, self._cassette.unused()))
            return [_summary(item, fingerprint(item)) for item in unused]

        return await asyncio.to_thread(titles)

    async def duplicates(self, head: CassetteHead) -> Sequence[Sequence[RecordingSummary]]:
        def titles() -> list[list[RecordingSummary]]:
            return [
                [_summary(item) for item in _interactions(map(self._cassette.get, group))]
                for group in self._cassette.duplicates()
            ]

        return await asyncio.to_thread(titles)

    async def pages(self) -> AsyncIterator[Sequence[AnyInteraction]]:
        yield self._cassette.snapshot()


class RecordingsInStore(ReportedRecordings):
    """The recordings in a shared store; those are unused that no instance has used."""

    def __init__(self, store: SharedStore, cassette: CassetteIndex, takes: Sequence[int]) -> None:
        """`cassette` is the index of the recordings, and `takes` are those in force."""
        self.name = cassette.name
        self._store = store
        self._cassette = cassette
        self._takes = takes

    async def head(self) -> CassetteHead | None:
        return self._cassette.head

    async def unused(self) -> Sequence[RecordingSummary]:
        used = await self._store.used(self.name, self._takes)
        return await self._titled(self._cassette.unused(used)[:MOST_LISTED])

    async def duplicates(self, head: CassetteHead) -> Sequence[Sequence[RecordingSummary]]:
        groups = await asyncio.to_thread(self._cassette.duplicates)
        listed = [index for group in groups for index in group][:MOST_LISTED]
        titled = {summary.index: summary for summary in await self._titled(listed)}
        named = [[titled[index] for index in group if index in titled] for group in groups]
        return [group for group in named if len(group) > 1]

    async def _titled(self, indexes: Sequence[int]) -> list[RecordingSummary]:
        """The names of recordings, whose documents are not read."""
        titles = await self._store.titles(self.name, indexes)
        return [RecordingSummary(title.index, title.method, title.target) for title in titles]

    async def pages(self) -> AsyncIterator[Sequence[AnyInteraction]]:
        after: int | None = None
        while page := await self._store.page(self.name, after=after, limit=_PAGE):
            yield [recording.item for recording in page]
            if len(page) < _PAGE:
                return
            after = page[-1].item.index


async def report_of(
    recordings: ReportedRecordings, tally: Tally, standards: Standards = NO_LIMITS, today: str = ""
) -> CassetteReport:
    """The counts of this process, and what there is to say about the recordings.

    Raises StoreError.
    """
    head = await recordings.head()
    unused = await recordings.unused()
    stale, dated = await _stale_and_dated(recordings, head, tally, standards.oldest(today))
    return CassetteReport(
        name=recordings.name,
        replayed=tally.outcomes["replayed"],
        recorded=tally.outcomes["recorded"],
        live=tally.outcomes["live"],
        retries=tally.retries,
        misses=tuple(tally.misses.values()),
        unused=tuple(unused),
        duplicates=() if head is None else tuple(map(tuple, await recordings.duplicates(head))),
        usage=dict(tally.tokens),
        unmarked=_named(tally.unmarked),
        unrecorded=tuple(tally.unrecorded.values()),
        repeated=_named(tally.repeated),
        told_apart=tuple(
            [f"{method} {path}: {rule}" for rule, (method, path) in tally.told_apart.items()]
        ),
        stale=stale,
        saved=savings(standards.prices, tally.models),
        redacted_kinds=dict(sorted(tally.redacted.items())),
        dated=dated,
        elsewhere=tuple(tally.elsewhere),
        unreached=tuple(tally.unreached),
        failed={code: count for code, count in sorted(tally.failed.items()) if count > 0},
        faulted=tuple(tally.faulted.calls),
    )


async def _stale_and_dated(
    recordings: ReportedRecordings, head: CassetteHead | None, tally: Tally, oldest: str | None
) -> tuple[tuple[RecordingSummary, ...], tuple[DatedRecording, ...]]:
    """The stale recordings, and new recordings that state the time of recording.

    Reading a store ends at MOST_LISTED: a rule is tested on the first recordings.
    """
    recorded_at = dict(tally.recorded_at)
    if head is None or (oldest is not None and _is_checked(head, oldest)):
        oldest = None
    if head is None or (oldest is None and not recorded_at):
        return (), ()
    stale: list[RecordingSummary] = []
    read: list[AnyInteraction] = []
    async for page in recordings.pages():
        if oldest is not None and len(stale) < MOST_LISTED:
            stale += await asyncio.to_thread(_stale, page, head, oldest)
        if recorded_at and len(read) < MOST_LISTED:
            read += page
        if (oldest is None or len(stale) >= MOST_LISTED) and (
            not recorded_at or len(read) >= MOST_LISTED
        ):
            break
    recorded = [item for item in _interactions(read) if item.index in recorded_at]
    rules = rules_of_meta(head.meta)
    return tuple(stale), await asyncio.to_thread(
        dated_recordings, recorded, recorded_at, rules, read
    )


def _named(recordings: Mapping[int, tuple[str, str]]) -> tuple[RecordingSummary, ...]:
    return tuple(RecordingSummary(index, *request) for index, request in sorted(recordings.items()))


def _is_checked(head: CassetteHead, oldest: str) -> bool:
    """Whether a cassette says that all its recordings are younger."""
    checked = head.meta.get(CHECKED_FIELD)
    return isinstance(checked, str) and checked >= oldest


def _stale(
    items: Iterable[AnyInteraction], head: CassetteHead, oldest: str
) -> list[RecordingSummary]:
    checked = head.meta.get(CHECKED_FIELD)
    stale: list[RecordingSummary] = []
    for item in _interactions(items):
        day = checked if isinstance(checked, str) else _recorded_on(item, head)
        if day < oldest:
            stale.append(_summary(item, day=day))
    return stale


def _recorded_on(item: Interaction, head: CassetteHead) -> str:
    """The day of the Date header (RFC 9110, section 6.6.1), else the cassette's first day."""
    stated = find_header(item.response.headers, b"date") or b""
    try:
        moment = parsedate_to_datetime(stated.decode("latin-1"))
        return moment.astimezone(UTC).date().isoformat()
    except (ValueError, OverflowError):
        return head.created_at[:10]


def _interactions(items: Iterable[AnyInteraction | None]) -> Iterator[Interaction]:
    return (item for item in items if isinstance(item, Interaction))


def _summary(item: Interaction, fingerprint: str = "", day: str = "") -> RecordingSummary:
    return RecordingSummary(item.index, item.request.method, item.request.target, fingerprint, day)


_MINUTE_S = 60

_WHEN = {
    "date": ("today's date", "tomorrow"),
    "time": ("the time of day", "later"),
    "path": ("a temporary path", "in the next run"),
}
"""What a recording contains of its run, and when it misses therefore."""


def dated_recordings(
    recordings: Iterable[Interaction],
    recorded_at: Mapping[int, float],
    rules: Rules,
    everything: Sequence[AnyInteraction],
) -> tuple[DatedRecording, ...]:
    """New recordings that state the time of recording; `everything` is the cassette."""
    dated = [
        (recording, moment)
        for recording in recordings
        if (
            moment := found_moment(recording.request, rules, _moments(recorded_at[recording.index]))
        )
        is not None
    ]
    advice = {moment: _advice(moment, rules, everything, recorded_at) for _, moment in dated}
    return tuple(
        DatedRecording(
            *(
                interaction.index,
                interaction.request.method,
                interaction.request.target,
                moment.kind,
                advice[moment],
            )
        )
        for interaction, moment in dated
    )


def dated_notices(dated: Iterable[DatedRecording]) -> Iterator[str]:
    """What there is to say of them, in a line for each rule."""
    for (kind, advice), count in Counter(
        [(recording.kind, recording.advice) for recording in dated]
    ).items():
        many, says = ("recordings", "contain") if count > 1 else ("recording", "contains")
        when = _WHEN[kind]
        yield f"{count} {many} {says} {when[0]} and will miss {when[1]}; {advice}"


def _moments(at: float) -> list[datetime]:
    """The minute of a recording and the one before, as clocks here and in UTC show them."""
    return [
        datetime.fromtimestamp(seconds, zone)
        for seconds in (at, at - _MINUTE_S)
        for zone in (None, UTC)
    ]


def _advice(
    moment: FoundMoment,
    rules: Rules,
    everything: Sequence[AnyInteraction],
    recorded: Container[int],
) -> str:
    added = Rules(normalise=moment.normalisers)
    if (confused := confused_recordings(everything, rules, added, replacing=recorded)) is not None:
        return refusal_text(added, confused)
    return f"rule: {rules_text(added)}"
