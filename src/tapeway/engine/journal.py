"""The journal of requests: counts per outcome and cassette, and each of the newest requests.

All of it is bounded, and no entry contains a secret.
"""

import asyncio
import itertools
import secrets
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple, Protocol

from tapeway.core.json_text import Json
from tapeway.core.matching.key import key_text
from tapeway.core.misses.miss import NearestRecording
from tapeway.core.model.control import Outcome
from tapeway.core.model.faults import Fault
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request
from tapeway.engine.faulted_calls import FaultedCalls
from tapeway.engine.kept_calls import MOST_KEPT_BYTES, KeptCall, KeptCalls

MOST_MISSES = 10_000
"""Misses named per cassette: a client that goes on missing must not fill the memory."""

MOST_EXPLAINED_MISSES = 1000
"""Misses per cassette whose nearest recordings are kept too."""

MOST_ELSEWHERE = 1000
"""Origins named per cassette that no route leads to."""

MOST_SENT_BYTES = 64 * 1024 * 1024
"""For the requests that came through slots."""
_OVERHEAD = 1024

MOST_EMPTY = 1000
"""Cassettes without recordings of which anything is known: their counts and their misses."""

NOT_STORED = "not stored"
"""In the message of a live answer that a mode that records has not stored: why, and what stores it."""

FAILURE_NOT_STORED = "--record-failures stores such failures"
"""In the message of a live call that failed, and whose failure was not stored."""

REPEATED = (
    "an equal call to a model got this answer before in this take; with --repeats miss, or in mode "
    "record, the model is asked each time"
)
"""The message of the first replay of an answer that a model would have given otherwise."""

TOLD_APART = "an equal request of this take got another answer, and a header tells them apart: "
"""Begins what an answer's message says of a header; the rule that has the header count follows."""

TOKENS = ("prompt_tokens", "completion_tokens", "total_tokens")

MOST_MODELS = 1000
"""Models per cassette whose tokens are counted apart; those of others count as NO_MODEL's."""

NO_MODEL = "unknown/unknown"

MOST_ATTEMPTS = 1024
"""Attempts that are remembered for a retry to follow; beyond that, the oldest are forgotten."""

BUCKETS_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000)
"""The bounds by which durations are counted; a duration on a bound is within it."""

MAX_NAMED = 100
"""Cassettes whose requests are measured apart: the first ones. Those of others count as OTHERS'."""

OTHERS = "(others)"
"""No cassette can have this name."""

_AT_ONCE = 16
"""So many requests are counted together: of more, the first ones have left the processor's cache."""

_MOST_UNREAD = 1000
"""Entries a slow follower may lag behind before it is cut off."""


class RequestIds:
    """Makes ids of requests: `PREFIX-1`, `PREFIX-2` and so on."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._next_number = itertools.count(1).__next__

    def new(self) -> str:
        return f"{self._prefix}-{self._next_number()}"


class ClientTexts(NamedTuple):
    """What a client wrote of a request, redacted."""

    path: str
    """The target."""
    request_id: str | None = None
    """The client's own id of the request."""
    trace_id: str | None = None
    """The id of the trace that the request belongs to."""


@dataclass(frozen=True, slots=True)
class UnreachedTail:
    """The messages of a recorded session that a replay did not come to; `count` is 0 for none."""

    first: int = 0
    """The place of the first of them in the recording."""
    count: int = 0
    waited_for: str | None = None
    """The message of the client that the recording waited for."""

    @property
    def text(self) -> str:
        """The tail in a sentence."""
        text = (
            f"the session ended before {self.count} of its messages, from message {self.first} on"
        )
        return text if self.waited_for is None else f"{text}; it waited for {self.waited_for}"


@dataclass(frozen=True, slots=True)
class UnreachedRecording:
    """A recording of a session whose tail no replay reached."""

    index: int
    method: str
    path: str
    first: int
    count: int
    message: str

    @property
    def title(self) -> str:
        """The recording and its tail in one line."""
        return f"#{self.index} {self.method} {self.path}: {self.message}"


class ServedAnswer(NamedTuple):
    """The answer to a request: one value for all replays of a recording.

    `tokens` are those that the upstream would have charged for a replay, in the order of `TOKENS`.
    """

    outcome: Outcome
    status: int
    interaction: int | None = None
    tokens: tuple[int, ...] = ()
    model: str = NO_MODEL
    """Provider and model of a replay that has tokens: `openai/gpt-4o`."""
    unmarked: bool = False
    """Whether the recording is a stream without the protocol's end mark."""
    sent: int = 0
    """Bytes of the response's body that went to the client."""
    redacted: Sequence[str] = ()
    """The kinds of the secrets that were replaced in the recording that was made."""


class ServedRequest(NamedTuple):
    """One proxied request. `at` is in seconds since the epoch.

    `attempt` counts the attempts of one call from 1, None where the SDK does not number them.
    `slot` is the slot of the request, and `take` the slot's take.
    """

    id: str
    at: float
    cassette: str
    route: str
    method: str
    texts: ClientTexts | Callable[[], ClientTexts]
    """What the client wrote. Few entries are ever looked at: theirs are redacted when they are."""
    answer: ServedAnswer
    duration_ms: float
    key: bytes | None
    message: str | None = None
    nearest: tuple[NearestRecording, ...] = ()
    suggestion: str | None = None
    attempt: int | None = None
    slot: str | None = None
    take: int | None = None
    store_failed: bool = False
    """Whether it failed because of the store."""
    kept: KeptCall | None = None
    """The call, if no recording holds it; the journal keeps such calls apart."""
    elsewhere: tuple[str, ...] = ()
    """Origins of addresses in the response that no route leads to."""
    client_address: str = ""
    tail: UnreachedTail | None = None
    """Of a replayed session: what of its recording was not reached."""
    record_command: str | None = None
    """The command that records a missed request."""
    base: str = ""
    """The base of the cassette that the recording is in, if it is not in the cassette itself."""
    fault: Fault | None = None
    """What was laid over the recorded answer."""
    asked: bytes = b""
    """The body, where it may tell what a client did after a fault. The entry does not keep it."""

    @property
    def holder(self) -> str:
        """The cassette that holds the recording: the base, or the addressed cassette."""
        return self.base or self.cassette

    @property
    def outcome(self) -> Outcome:
        return self.answer.outcome

    @property
    def status(self) -> int:
        return self.answer.status

    @property
    def interaction(self) -> int | None:
        return self.answer.interaction

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.answer.tokens

    @property
    def path(self) -> str:
        """The target, redacted."""
        return self.client_texts.path

    @property
    def request_id(self) -> str:
        """The client's own id of the request, or else tapeway's."""
        return self.client_texts.request_id or self.id

    @property
    def trace_id(self) -> str | None:
        return self.client_texts.trace_id

    @property
    def client_texts(self) -> ClientTexts:
        """What the client wrote, redacted now if that was put off."""
        return self.texts if isinstance(self.texts, ClientTexts) else self.texts()

    @property
    def match_key(self) -> str | None:
        return key_text(self.key) if self.key else None

    @property
    def code(self) -> str | None:
        """The code of tapeway's error, with which the message begins; None without an error."""
        if self.outcome != "error":
            return None
        return (self.message or "").partition(":")[0]

    def written(self) -> "ServedRequest":
        """The entry with all of it redacted and as values, to be read several times."""
        kept = None if self.kept is None else self.kept.redacted()
        return self._replace(texts=self.client_texts, kept=kept)


EntryQueue = asyncio.Queue[ServedRequest | None]
"""New entries, oldest first, and None after the last."""


def tokens_of(usage: Mapping[str, Json]) -> tuple[int, ...]:
    """The tokens a recorded call was charged for, in the order of `TOKENS`."""
    prompt, completion, total = map(usage.get, TOKENS)
    # People edit usage by hand, and `true` is an int too.
    return (
        prompt if type(prompt) is int else 0,
        completion if type(completion) is int else 0,
        total if type(total) is int else 0,
    )


def charged_tokens(interaction: Interaction) -> tuple[tuple[int, ...], str]:
    """The tokens a recorded call was charged for, and its model: `openai/gpt-4o`."""
    if interaction.usage is None:
        return (), NO_MODEL
    named = interaction.metadata.get
    model = f"{named('provider') or 'unknown'}/{named('model') or 'unknown'}"
    return tokens_of(interaction.usage), model


class ServedRequests(Protocol):
    """Takes an entry for each served request."""

    def add(self, served: ServedRequest) -> None:
        """Enter a request, before its answer goes out: whoever has the answer may ask for the entry."""


class Attempts:
    """The ends of past attempts, by which a retry is told from a new call."""

    def __init__(self) -> None:
        self._ended: deque[tuple[bytes, int, Outcome, str]] = deque(maxlen=MOST_ATTEMPTS)

    def add(
        self, key: bytes, number: int, outcome: Outcome, code: str = ""
    ) -> tuple[Outcome, str] | None:
        """Remember an attempt; returns the end of the one it retries, None for a new call.

        An attempt ends with an outcome, and with a `code` where that is an error.
        """
        # Retries are few, so retries do the searching.
        retried = self._take(key, number - 1) if number > 1 else None
        self._ended.append((key, number, outcome, code))
        return retried

    def _take(self, key: bytes, number: int) -> tuple[Outcome, str] | None:
        for at in range(len(self._ended) - 1, -1, -1):
            if self._ended[at][:2] == (key, number):
                _, _, outcome, code = self._ended[at]
                del self._ended[at]
                return outcome, code
        return None


RequestKind = tuple[str, str, Outcome, int]
"""Cassette, or OTHERS; route, or "" where none was found; outcome; status // 100."""


@dataclass(slots=True)
class Measure:
    """Sums over the requests of one kind.

    `within` counts them by duration: one count up to each of BUCKETS_MS, and a last count for
    longer times.
    """

    within: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_MS) + 1))
    ms: float = 0.0
    sent: int = 0


@dataclass(frozen=True, slots=True)
class MissedCall:
    """A missed request with the number of misses; the rest describes the first miss."""

    method: str
    path: str
    message: str
    nearest: tuple[NearestRecording, ...] = ()
    suggestion: str | None = None
    times: int = 1
    record_command: str | None = None


@dataclass(frozen=True, slots=True)
class UnrecordedAnswer:
    """A live answer that a recording mode did not store, with the number of times.

    `reason` also names the option that stores it.
    """

    method: str
    path: str
    status: int
    reason: str
    times: int = 1


@dataclass(slots=True)
class Tally:
    """Counts for a cassette since the load.

    A retried call counts once, with the outcome of the last attempt. A miss stays listed after later
    attempts.
    """

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    """Calls answered with an error of tapeway, by code."""
    retries: int = 0
    misses: dict[tuple[str, str, bytes | None], MissedCall] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOKENS, 0))
    attempts: Attempts = field(default_factory=Attempts)
    unmarked: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Method and path of each recording, replayed or made, without the protocol's end mark."""
    unrecorded: dict[tuple[str, str, int, str], UnrecordedAnswer] = field(default_factory=dict)
    repeated: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Method and path of each model's answer that equal calls of the recording's take got too.
    """
    told_apart: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Method and path of a request that a header told apart from an equal one, by the rule to add."""
    models: dict[str, list[int]] = field(default_factory=dict)
    """Calls, prompt tokens and completion tokens of the replays by provider and model."""
    tails: dict[int, tuple[str, str, UnreachedTail]] = field(default_factory=dict)
    """Method and path of each replayed session, and the shortest tail that a replay left."""
    faulted: FaultedCalls = field(default_factory=FaultedCalls)
    redacted: Counter[str] = field(default_factory=Counter)
    recorded_at: dict[int, float] = field(default_factory=dict)
    """When each recording was asked for, in seconds since the epoch."""
    elsewhere: dict[str, None] = field(default_factory=dict)
    """Origins that responses handed out and that no route leads to."""

    def add(self, served: ServedRequest) -> None:
        """Count a request, and for a replay the tokens the upstream would have charged for it."""
        answer = served.answer
        outcome, index = answer.outcome, answer.interaction
        code = (served.code or "") if outcome == "error" else ""
        before = None
        if served.key is not None:
            # Some SDKs number their attempts from the second one on.
            before = self.attempts.add(served.key, served.attempt or 1, outcome, code)
        if before is not None:
            self.retries += 1
            self._count(*before, -1)
        self._count(outcome, code, 1)
        if outcome == "miss" and (before is None or before[0] != "miss"):
            self._add_miss(served)
        if served.message is not None:
            self._add_message(served, served.message)
        if answer.redacted:
            self.redacted.update(answer.redacted)
        if outcome == "recorded" and index is not None:
            self.recorded_at[index] = served.at
            if len(self.recorded_at) > MOST_MISSES:
                del self.recorded_at[next(iter(self.recorded_at))]
        for origin in served.elsewhere:
            if len(self.elsewhere) < MOST_ELSEWHERE:
                self.elsewhere[origin] = None
        if answer.unmarked and index is not None and len(self.unmarked) < MOST_MISSES:
            self.unmarked[index] = (served.method, served.path)
        if served.tail is not None and index is not None:
            self._add_tail(served, index, served.tail)
        if answer.tokens:
            self._add_tokens(answer)
        if served.fault is not None or self.faulted:
            self._follow(served)

    def _follow(self, served: ServedRequest) -> None:
        """Note a fault, and what a client did after an earlier one."""
        caller = served.key, served.slot
        self.faulted.follow(caller, served.at, served.asked)
        if served.fault is not None:
            answered_at = served.at + served.duration_ms / 1000
            call = served.method, served.path
            self.faulted.add(served.fault, call, caller, answered_at, served.asked)

    @property
    def unreached(self) -> Iterator[UnreachedRecording]:
        """The recorded sessions whose tail no replay reached, by index."""
        for index, (method, path, tail) in sorted(self.tails.items()):
            if tail.count:
                yield UnreachedRecording(index, method, path, tail.first, tail.count, tail.text)

    def _count(self, outcome: Outcome, code: str, calls: int) -> None:
        self.outcomes[outcome] += calls
        if outcome == "error":
            self.failed[code or "error"] += calls

    def _add_tail(self, served: ServedRequest, index: int, tail: UnreachedTail) -> None:
        known = self.tails.get(index)
        if known is None and len(self.tails) >= MOST_MISSES:
            return
        if known is None or tail.count < known[2].count:
            self.tails[index] = (served.method, served.path, tail)

    def _add_tokens(self, answer: ServedAnswer) -> None:
        """Count the tokens that the upstream would have charged for a replay."""
        prompt, completion, total = answer.tokens
        tokens = self.tokens
        tokens["prompt_tokens"] += prompt
        tokens["completion_tokens"] += completion
        tokens["total_tokens"] += total
        counts = self.models.get(answer.model)
        if counts is None:
            known = len(self.models) < MOST_MODELS
            counts = self.models.setdefault(answer.model if known else NO_MODEL, [0, 0, 0])
        counts[0] += 1
        counts[1] += prompt
        counts[2] += completion

    def _add_message(self, served: ServedRequest, message: str) -> None:
        """Note what the report says once of an answer."""
        outcome, index = served.outcome, served.interaction
        told = message.partition(TOLD_APART)[2] if outcome == "recorded" else ""
        if told and len(self.told_apart) < MOST_MISSES:
            self.told_apart.setdefault(told, (served.method, served.path))
        if outcome == "replayed" and index is not None and REPEATED in message:
            if len(self.repeated) < MOST_MISSES:
                self.repeated[index] = (served.method, served.path)
        elif outcome in ("live", "recorded") and NOT_STORED in message:
            self._add_unrecorded(served, message.partition("; ")[0])
        elif outcome == "error" and FAILURE_NOT_STORED in message:
            self._add_unrecorded(served, message.partition(": ")[2])

    def _add_unrecorded(self, served: ServedRequest, reason: str) -> None:
        kind = (served.method, served.path, served.status, reason)
        if (known := self.unrecorded.get(kind)) is not None:
            self.unrecorded[kind] = replace(known, times=known.times + 1)
        elif len(self.unrecorded) < MOST_MISSES:
            self.unrecorded[kind] = UnrecordedAnswer(*kind)

    def _add_miss(self, served: ServedRequest) -> None:
        key = (served.method, served.path, served.key)
        if (known := self.misses.get(key)) is not None:
            self.misses[key] = replace(known, times=known.times + 1)
        elif (count := len(self.misses)) < MOST_MISSES:
            message = served.message or f"{served.method} {served.path}"
            explained = count < MOST_EXPLAINED_MISSES
            self.misses[key] = MissedCall(
                *(served.method, served.path, message),
                served.nearest if explained else (),
                served.suggestion if explained else None,
                record_command=served.record_command,
            )


class SentThroughSlot(NamedTuple):
    """A request that came through a slot, the slot's take, and the request's id in the journal."""

    slot: str
    take: int
    id: str
    request: Request


class SentRequests:
    """The newest requests through slots, whole, for assertions in tests.

    Held in memory with secrets; `salt` makes the placeholders when requests are shown.
    """

    def __init__(self, most_bytes: int) -> None:
        self.salt = secrets.token_hex(16)
        self._most_bytes = most_bytes
        self._bytes = 0
        self._requests: deque[SentThroughSlot] = deque()

    def add(self, sent: SentThroughSlot) -> None:
        """Keep a request; the oldest ones make room."""
        self._requests.append(sent)
        self._bytes += _size(sent.request)
        while self._bytes > self._most_bytes:
            self._bytes -= _size(self._requests.popleft().request)

    def of_slot(self, slot: str) -> Iterator[SentThroughSlot]:
        """The requests that came through a slot, oldest first."""
        return (request for request in self._requests if request.slot == slot)


class EmptyNames:
    """The names asked for under which nothing is recorded: the last ones, as names can be made up."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def add(self, name: str) -> list[str]:
        """Note one that was asked for; returns those to be forgotten."""
        self._names.pop(name, None)
        self._names[name] = None
        forgotten = list(islice(self._names, max(0, len(self._names) - MOST_EMPTY)))
        for old_name in forgotten:
            del self._names[old_name]
        return forgotten


class RequestJournal(ServedRequests):
    """Counts requests, keeps the newest `size` requests, and sends new requests to followers.

    Requests are counted some at a time, or when somebody looks.
    """

    def __init__(self, size: int) -> None:
        self._store_errors = 0
        self._measures: dict[RequestKind, Measure] = {}
        self._tallies: dict[str, Tally] = {}
        self._new: list[ServedRequest] = []
        self._named: set[str] = set()
        self.follows_faults = False
        """Whether a fault has happened: requests are to be entered with their bodies."""
        self.sent = SentRequests(MOST_SENT_BYTES if size else 0)
        self.kept = KeptCalls(size, MOST_KEPT_BYTES)
        self._entries: deque[ServedRequest] = deque(maxlen=size)
        self._followers: set[EntryQueue] = set()
        self._closed = False

    def __iter__(self) -> Iterator[ServedRequest]:
        self._add_all()
        return reversed(self._entries)

    def __len__(self) -> int:
        self._add_all()
        return len(self._entries)

    @property
    def measures(self) -> Mapping[RequestKind, Measure]:
        """What the requests of each kind add up to, in order of the kinds."""
        self._add_all()
        return dict(sorted(self._measures.items()))

    @property
    def store_errors(self) -> int:
        """How many requests the store failed."""
        self._add_all()
        return self._store_errors

    @property
    def tallies(self) -> dict[str, Tally]:
        """A tally for each loaded cassette."""
        self._add_all()
        return self._tallies

    @property
    def counts(self) -> Counter[Outcome]:
        """How many requests ended in each way."""
        counts: Counter[Outcome] = Counter()
        for (_, _, outcome, _), measure in self.measures.items():
            counts[outcome] += sum(measure.within)
        return counts

    def add(self, served: ServedRequest) -> None:
        self._new.append(served)
        if self._followers or len(self._new) >= _AT_ONCE:
            self._add_all()

    def move(self, id: str, interaction: int) -> None:
        """Name the recording that took the place of a request's recording."""
        self._add_all()
        # Nearly always one of the newest.
        for index in range(len(self._entries) - 1, -1, -1):
            if (entry := self._entries[index]).id == id:
                self._entries[index] = entry._replace(
                    answer=entry.answer._replace(interaction=interaction)
                )
                return

    def _add_all(self) -> None:
        if self._new:
            new, self._new = self._new, []
            for entry in new:
                self._add(entry)

    def _add(self, served: ServedRequest) -> None:
        self._count(served)
        if served.kept is not None:
            self.kept.add(served.id, served.kept)
            served = served._replace(kept=None)
        if served.asked:
            served = served._replace(asked=b"")
        self._entries.append(served)
        if self._followers:
            self._publish(served)

    def _count(self, served: ServedRequest) -> None:
        ms, answer = served.duration_ms, served.answer
        kind = (served.cassette, served.route, answer.outcome, answer.status // 100)
        measure = self._measures.get(kind) or self._measure(kind)
        measure.within[0 if ms <= BUCKETS_MS[0] else bisect_left(BUCKETS_MS, ms)] += 1
        measure.ms += ms
        measure.sent += answer.sent
        if served.store_failed:
            self._store_errors += 1
        if (tally := self._tallies.get(served.cassette)) is not None:
            tally.add(served)

    def clear(self) -> None:
        self._add_all()
        self._entries.clear()
        self.kept.clear()

    def close(self) -> None:
        """End every follower; later followers end at once."""
        self._closed = True
        for follower in list(self._followers):
            self._end(follower)

    @contextmanager
    def follow(self) -> Iterator[EntryQueue]:
        """Receive entries from now on, and None when the journal closes or the reader is too slow."""
        self._add_all()
        follower: EntryQueue = asyncio.Queue(_MOST_UNREAD)
        self._followers.add(follower)
        try:
            if self._closed:
                self._end(follower)
            yield follower
        finally:
            self._followers.discard(follower)

    def _measure(self, kind: RequestKind) -> Measure:
        """The measure of a new kind."""
        cassette, route, outcome, status_class = kind
        if cassette not in self._named:
            if len(self._named) >= MAX_NAMED:
                cassette = OTHERS
            else:
                self._named.add(cassette)
        return self._measures.setdefault((cassette, route, outcome, status_class), Measure())

    def _publish(self, entry: ServedRequest) -> None:
        for follower in list(self._followers):
            try:
                follower.put_nowait(entry)
            except asyncio.QueueFull:
                self._end(follower)

    def _end(self, follower: EntryQueue) -> None:
        self._followers.discard(follower)
        if follower.full():
            follower.get_nowait()
        follower.put_nowait(None)


def _size(request: Request) -> int:
    headers = sum([len(name) + len(value) for name, value in request.headers])
    return len(request.body) + len(request.target) + headers + _OVERHEAD
