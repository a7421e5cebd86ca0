"""Asks the live service for what no recording answers, and makes the answer durable.

The whole answer is received, redacted and stored before the client gets its end (or, with
`--delivery buffer`, before it gets anything).
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Literal, cast

from tapeway.body_files import with_body_in_memory
from tapeway.core.cassette.plan import Answer, LiveCall, Replay
from tapeway.core.cassette.rerecording import Replacement, is_unchanged
from tapeway.core.http.content_codings import content_coding, keeps_coding, readable_response
from tapeway.core.http.kept_answers import BAD_REQUEST, error_of_the_caller, kept_statuses
from tapeway.core.http.volatile_headers import minimal
from tapeway.core.json_text import Json
from tapeway.core.matching.body_digest import is_parsed
from tapeway.core.matching.key import request_key
from tapeway.core.matching.request_redaction import RequestRedaction, with_answers_fields
from tapeway.core.model.cassette import NOT_READ, LeakCheck, ReadBodies, Recording
from tapeway.core.model.control import Outcome, Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    CUT,
    LARGE_BODY,
    Failure,
    Request,
    Response,
    ResponseHead,
    Verdict,
    failure_of_error,
)
from tapeway.core.redaction.credentials import Secret, issued_credentials, response_credentials
from tapeway.core.redaction.redactor import Redactor
from tapeway.core.streams.documents import json_value
from tapeway.core.streams.end_marks import has_no_body
from tapeway.core.streams.json_rpc import may_be_json_rpc, message_scanner
from tapeway.core.streams.open_streams import (
    may_stay_open,
    may_turn_out_open,
    requests_by_event,
)
from tapeway.engine.cassettes.cassettes import Cassettes
from tapeway.engine.decision import READS, is_large
from tapeway.engine.journal import FAILURE_NOT_STORED, NOT_STORED
from tapeway.engine.large_bodies import (
    LargeBodyStorage,
    has_large_body,
    taught_by_large_answer,
    warn_stored_plain,
)
from tapeway.engine.open_streams import OpenStream, OpenStreams, PausingLines, RequestsBeside
from tapeway.engine.response_buffer import Arrival, ResponseBuffer, ResponseReader
from tapeway.engine.single_flight import CANCELLED, Pending, SingleFlight, unexpected
from tapeway.engine.told_apart import ToldApart
from tapeway.errors import (
    Draining,
    Fenced,
    RecordingEdited,
    StoreAway,
    StoreError,
    TapewayError,
    UnprovenEnd,
    UpstreamError,
    describe,
    forget_frames,
    too_large,
)
from tapeway.ports import CassetteStore, LiveAnswer, LiveResponder, LiveTurn, StoredCall
from tapeway.providers.api_call import ApiCall, calls_model, describe_call
from tapeway.providers.stream_end import end_detector
from tapeway.providers.usage import token_usage

log = logging.getLogger(__name__)

MIB = 1024 * 1024
_PROVEN: tuple[Verdict, ...] = ("marked", "error")
"""The verdict of a stream received to its last event."""
_NOT_REACHED = frozenset(
    {"upstream_dns", "upstream_proxy", "upstream_reset", "upstream_timeout", "upstream_unreachable"}
)
"""The codes of errors where no connection was made, or no answer came (`upstream/faults.py`)."""
MANY_REPEATS = 1000
"""The log tells of a request that was asked so often for the same answer."""
_PAUSE_S = 0.1
"""After a pause of this length, what has come of a session is stored."""
_SAVED_AT_ONCE = 64 * 1024
"""So much of a session is stored before a pause too."""
_READ_AT_ONCE = 128 * 1024
"""Larger answers are decoded and redacted in a thread."""
TRUNCATED = (
    "the stream ended without the mark its protocol ends with: it was passed on as it came, and "
    f"{NOT_STORED}: --record-failures stores such streams"
)
UNMARKED = (
    "the stream ended in good order, but without the mark its protocol ends with: it may be "
    "incomplete; --require-marks leaves such streams unrecorded"
)
NOT_RECORDED_UNMARKED = (
    "the stream ended in good order, but without the mark its protocol ends with: it was passed on "
    f"as it came, and {NOT_STORED}, as --require-marks says"
)
ERROR_IN_STREAM = (
    "the stream reported an error although its status is a success: it was passed on, and "
    f"{NOT_STORED}: mode record stores it"
)
STATUS_NOT_RECORDED = (
    f"its status is {{status}}: it was passed on, and {NOT_STORED}: mode record stores it, and so does "
    "--record-statuses {statuses}"
)
CALLER_NOT_RECORDED = (
    f"its error {{kind}} is about credentials, a signature or throttling: it was passed on, and "
    f"{NOT_STORED}: mode record stores it"
)
EDITED = (
    "somebody has edited or removed the recording of the session meanwhile: later messages were "
    f"passed on, and {NOT_STORED}"
)


CallState = Literal["asking", "receiving", "storing", "durable", "passed_on", "failed"]

Replacing = Callable[[LiveCall, Interaction], AbstractAsyncContextManager[Replacement] | None]
"""Holds what a new answer replaces while that answer is made durable; None where it is nothing."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of recording and replaying."""

    repeats: Repeats | None = None
    """None: the rule in each cassette's `meta` is in force."""
    record_statuses: frozenset[int] | None = None
    """None: the statuses of `core/http/kept_answers.py`."""
    max_body: int = 80 * MIB
    record_failures: bool = False
    require_marks: bool = False
    minimal_headers: bool = False


class Recorder:
    """Performs what the broker decided to ask: once for all who ask the same at the time."""

    def __init__(
        self,
        cassettes: Cassettes,
        calls: SingleFlight,
        responder: LiveResponder,
        store: CassetteStore,
        policy: Policy,
        redaction: RequestRedaction,
    ) -> None:
        self.responder = responder
        self.streams = calls.streams
        self._cassettes = cassettes
        self._calls = calls
        self._store = store
        self._policy = policy
        self._redaction = redaction
        self._failed = False
        """Whether the last recording could not be stored."""
        self._numbers = count(1)
        self._told_apart = ToldApart()
        self.under_way: dict[int, RunningCall] = {}
        """The calls that are asked or recorded now, by their number."""

    async def perform(self, live_call: LiveCall) -> Answer:
        """The live answer, recorded where the mode and the settings say so.

        The call is made in the current task, which must not be cancelled as its client leaves.
        Raises UpstreamError or StoreError; an answer that could not be made durable is not given.
        """
        if (pending := self._calls.join(live_call, self._again)) is not None:
            return await pending.answer()
        self._calls.refuse_when_draining()
        return await self._calls.run(live_call, self._call(live_call, None))

    def follow(
        self, live_call: LiveCall, reader: ResponseReader | None, turn: LiveTurn | None = None
    ) -> Pending:
        """Like `perform`, with the arriving answer in `reader`; joins an equal call under way.

        A `turn` uses its connection. Raises Draining.
        """
        return self._join(live_call, reader, turn)

    def relay(self, live_call: LiveCall) -> AbstractAsyncContextManager[LiveAnswer]:
        """The live answer as it comes, not recorded. Raises Draining."""
        self._calls.refuse_when_draining()
        return self.responder.ask(live_call.request)

    def store_more(self, call: StoredCall) -> Pending:
        """Store an answer that has ended, as a call for which clients wait."""
        return self._calls.start(call.live_call, call.store_more(), shared=False)

    async def pieces(self, live_call: LiveCall, live: LiveAnswer) -> AsyncIterator[bytes]:
        """The body of a relayed answer. Raises UpstreamError where it is cut."""
        if live.head.framing != "close":
            async for piece in live.pieces():
                yield piece
            return
        ending = end_detector(describe_call(live_call.request.route, live_call.redacted), live.head)
        try:
            async for piece in live.pieces():
                ending.feed(piece)
                yield piece
        except UnprovenEnd:
            if ending.finish() not in _PROVEN:
                raise

    def _join(
        self, live_call: LiveCall, reader: ResponseReader | None, turn: LiveTurn | None = None
    ) -> Pending:
        def again(live_call: LiveCall) -> Pending:
            """Ask anew, since the answer of the call that was joined is for other header fields."""
            return self._join(live_call, None, turn)

        shared = turn is None or turn.shared
        if shared and (pending := self._calls.join(live_call, again, reader)) is not None:
            return pending
        self._calls.refuse_when_draining()
        call = self._call(live_call, reader, turn)
        return self._calls.start(live_call, call, reader, shared=shared)

    def _again(self, live_call: LiveCall) -> Pending:
        return self._join(live_call, None)

    async def _call(
        self, live_call: LiveCall, reader: ResponseReader | None, turn: LiveTurn | None = None
    ) -> Answer | TapewayError:
        """The result of a call. Raises nothing: an error would cancel the group's other tasks."""
        try:
            while True:
                asking = self._cassettes.asking(live_call)
                if asking is None:
                    answer = await self._ask(live_call, reader, turn)
                else:
                    async with asking as allowed:
                        if isinstance(allowed, Replay):
                            return _answer_of_replay(allowed)
                        answer = await self._ask(allowed, reader, turn)
                # A call without its lease is repeated, unless the client has a part of the answer, or
                # the call belongs to a connection.
                begun = turn is not None or (reader is not None and reader.begun)
                if isinstance(answer, UpstreamError) and not begun:
                    return _latest_answer(live_call, answer) or answer
                if not isinstance(answer, Fenced) or begun:
                    return answer
        except TapewayError as exc:
            return exc
        except Exception as exc:
            return unexpected(exc)
        finally:
            if turn is not None:
                turn.drop()

    async def _ask(
        self, live_call: LiveCall, reader: ResponseReader | None, turn: LiveTurn | None
    ) -> Answer | TapewayError:
        """Raises StoreError where the answer could not be kept, before it is asked for."""
        if live_call.policy.records and self._is_doubtful:
            await self._refuse_what_cannot_be_kept(live_call.cassette.name)
        call = RunningCall(
            live_call,
            self.responder,
            self._store,
            self._policy,
            self._redaction,
            self._cassettes.replacing,
            self._cassettes.source.note_write,
            self._cassettes.source.reserve,
            self._cassettes.source.going_on,
            self.streams,
            partial(self._opened, live_call),
            reader,
            turn,
        )
        self.under_way[number := next(self._numbers)] = call
        try:
            answer = await call.run()
        finally:
            del self.under_way[number]
        self._failed = self._failed or isinstance(answer, StoreError)
        if turn is None and isinstance(answer, Answer) and answer.outcome == "recorded":
            return self._told_apart.noted(live_call, answer)
        return answer

    async def _opened(self, live_call: LiveCall, again: LiveCall) -> None:
        """An answer is a stream that stays open: equal requests get streams of their own meanwhile."""
        self._calls.part(live_call, self._call)
        await self._cassettes.source.let_go(again)

    @property
    def _is_doubtful(self) -> bool:
        """Whether a recording might not be stored."""
        return self._failed or self._store.facts.may_go_away

    async def _refuse_what_cannot_be_kept(self, name: str) -> None:
        """Raise StoreError before the upstream is asked, and paid, for nothing."""
        await self._store.check_writes(name)
        self._failed = False


def ranges_text(statuses: Iterable[int]) -> str:
    """Statuses as --record-statuses takes them: `200-299,404`."""
    ranges: list[list[int]] = []
    for status in sorted(statuses):
        if ranges and ranges[-1][1] == status - 1:
            ranges[-1][1] = status
        else:
            ranges.append([status, status])
    return ",".join([f"{a}" if a == b else f"{a}-{b}" for a, b in ranges])


def _answer_lost(exc: StoreAway) -> StoreAway:
    """The error of a call whose upstream has answered, and may have charged for it."""
    lost = f"{exc.message}; the live answer was not given out and is lost"
    return StoreAway(lost, code="recording_failed")


def scratch_of(store: CassetteStore) -> str | None:
    """A folder on the store's disk for large bodies on their way in, None where it has none."""
    path = store.facts.folder or store.facts.file
    for folder in () if path is None else (path, *path.parents):
        if folder.is_dir():
            return str(folder) if os.access(folder, os.W_OK) else None
    return None


async def _with_requests(
    interaction: Interaction, counted: Sequence[tuple[float, int]]
) -> Interaction:
    """The recording of an event stream with how many requests came before each of its events."""
    response = interaction.response
    whole = response if response.file is None else await with_body_in_memory(response)
    requests = requests_by_event(whole, counted)
    if response.verdict != "open" and requests[-1] == requests[0]:
        # The stream ended by itself, and no request came meanwhile.
        return interaction
    return replace(interaction, response=replace(response, after_requests=requests))


def _latest_answer(live_call: LiveCall, error: UpstreamError) -> Answer | None:
    """The last recorded answer to a read that cannot be asked anew, since the service is away."""
    cassette, request = live_call.cassette, live_call.request
    reads = live_call.policy.replays and request.method in READS
    if not reads or error.code not in _NOT_REACHED:
        return None
    item = cassette.latest(live_call.key, cassette.asked(request))
    if item is None:
        return None
    cassette.touch(item.index, live_call.take)
    note = f"the service cannot be reached: #{item.index} answers, and may be out of date"
    log.warning("%s %s in cassette '%s': %s", request.method, live_call.target, cassette.name, note)
    return Answer(
        "replayed", cassette.name, item.response, item.index, live_call.key, note, recorded=item
    )


def _answer_of_replay(replay: Replay) -> Answer | TapewayError:
    item = replay.interaction
    if item.failure is not None:
        return UpstreamError(f"another instance asked, and {item.failure.message}")
    name = replay.cassette.name
    return Answer("replayed", name, item.response, item.index, replay.key, recorded=item)


class RunningCall:
    """One call to the upstream, from the request to the durable recording.

    `reader` is given the answer while it comes.
    """

    def __init__(
        self,
        live_call: LiveCall,
        responder: LiveResponder,
        store: CassetteStore,
        policy: Policy,
        redaction: RequestRedaction,
        replacing: Replacing,
        note_write: Callable[[LiveCall], Awaitable[None]],
        reserve: Callable[[LiveCall], Awaitable[int]],
        going_on: Callable[[LiveCall, int], AbstractAsyncContextManager[None]],
        streams: OpenStreams,
        opened: Callable[[LiveCall], Awaitable[None]],
        reader: ResponseReader | None = None,
        turn: LiveTurn | None = None,
    ) -> None:
        self._live_call = live_call
        self._turn = turn
        self._note_write = note_write
        self._reserve = reserve
        self._going_on = going_on
        self._part: Interaction | None = None
        """The recording of the part of a session, or of a turn, that has come so far."""
        self._part_size = 0
        """How many bytes had come when the part of a session was stored."""
        self._streams = streams
        self._opened = opened
        self._requests = streams.requests(
            live_call.cassette.name, live_call.take.number, live_call.request.route
        )
        self._began_with, self._answers_before = self._requests.count, self._requests.answers
        self._counted: Sequence[tuple[float, int]] | None = None
        """The number of requests of the route by time, where the answer depends on them."""
        self._replacing = replacing
        self._responder = responder
        self._store = store
        self._policy = policy
        self._redaction = redaction
        self._reader = reader
        self._asks_much = is_large(live_call.request)
        self._call = None if self._asks_much else self._described()
        self._buffer: ResponseBuffer | None = None
        # In the order of requests, not of answers.
        self._index = live_call.cassette.reserve() if live_call.policy.records else None
        self._index_is_used = False
        self._read = NOT_READ
        self._storing_more = asyncio.Lock()
        self._write_is_noted = False
        self._received = False
        self.began: float | None = None
        """When it was sent, on the event loop's clock."""
        self.result: Answer | TapewayError | None = None
        """The result, None while the call is under way."""

    @property
    def live_call(self) -> LiveCall:
        """The request as it goes upstream, and its cassette."""
        return self._live_call

    @property
    def state(self) -> CallState:
        """How far it is; `passed_on` is an answer that is not recorded."""
        if self.result is not None:
            if isinstance(self.result, TapewayError):
                return "failed"
            return "durable" if self.result.outcome == "recorded" else "passed_on"
        if self._buffer is None:
            return "asking"
        return "storing" if self._received else "receiving"

    @property
    def buffer(self) -> ResponseBuffer | None:
        """The received part of the answer, None before the head."""
        return self._buffer

    @property
    def size(self) -> int:
        """How many bytes of the answer have come."""
        return 0 if self._buffer is None else self._buffer.size

    def add(self, pieces: Sequence[bytes], at_ms: float) -> bool:
        """Add pieces that came together after the end; False if the answer would be too large."""
        buffer = self._buffer
        if buffer is None or buffer.size + sum(map(len, pieces)) > self._policy.max_body:
            return False
        buffer.reopen()
        buffer.add(pieces, at_ms)
        return True

    async def store_more(self) -> Answer | TapewayError:
        """Store what has come since the end, in place of what was stored before. Raises nothing."""
        buffer = self._buffer
        try:
            async with self._storing_more:
                before = self.result
                if buffer is None or not isinstance(before, Answer):
                    return TapewayError("no answer is stored that could go on")
                if buffer.size == before.response.size:
                    return before
                if buffer.should_spill:
                    await buffer.spill()
                # The lease ended with the first recording.
                self._live_call = self._live_call._replace(lease=None)
                response = buffer.finish(before.response.latency_ms, before.response.verdict)
                kept = self._part = await self._record(response)
                self.result = self._answer("recorded", response, kept.index, recorded=kept)
                return self.result
        except TapewayError as exc:
            return exc
        except Exception as exc:
            return unexpected(exc)

    def redacted(self, response: Response) -> Response:
        """A part of the answer as it would be stored; slow, so call it in a thread."""
        live_call = self._live_call
        issued = response_credentials(response.headers)
        redactor = self._redaction.redactor_of(
            live_call.cassette.head.run_id, (*live_call.secrets, *issued)
        )
        return redactor.response(readable_response(response, live_call.request.method, cut=True))

    async def run(self) -> Answer | TapewayError:
        """The answer, or the error for everyone who waits. Raises nothing."""
        try:
            if self._asks_much:
                self._call = await asyncio.to_thread(self._described)
            response = await self._ask_live()
            self._received = True
            await self._written()
            result: Answer | TapewayError = await self._record_or_pass_on(response)
            if self._reader is not None and self._buffer is not None:
                # At once: whoever has the last byte finds the request in the journal.
                self._reader.release(self._buffer.size)
                self._reader.close()
        except TapewayError as exc:
            result = exc
            forget_frames(exc)
        except asyncio.CancelledError:
            result = Draining(CANCELLED)
            self._warn_of_loss()
        except Exception as exc:
            log.error("a live call failed: %s", describe(exc))
            result = TapewayError("tapeway failed while recording; its log says where")
        self.result = result
        if self._index is not None and not self._index_is_used:
            self._live_call.cassette.give_back(self._index)
        return result

    def _warn_of_loss(self) -> None:
        live_call = self._live_call
        if live_call.policy.records:
            log.warning(
                "cassette '%s': the recording of %s %s is lost: tapeway stopped before its answer "
                "had ended; --drain-timeout says how long it waits",
                *(live_call.cassette.name, live_call.request.method, live_call.redacted.target),
            )

    def _described(self) -> ApiCall | None:
        live_call = self._live_call
        read = None if live_call.read is None else live_call.read.value
        return describe_call(live_call.request.route, live_call.redacted, read)

    async def _ask_live(self) -> Response:
        """The whole answer. With `record_failures`, a failed one is recorded as a failure."""
        now = asyncio.get_running_loop().time
        started = self.began = now()
        try:
            async with (self._turn or self._responder).ask(self._live_call.request) as live:
                return await self._receive(live)
        except UpstreamError as exc:
            if failure_of_error(exc.code, begun=self._buffer is not None) is not None:
                # It may have succeeded all the same.
                await self._written()
            if (trouble := self._failure_to_record(exc)) is not None:
                await self._record(self._partial_response((now() - started) * 1000), trouble)
            elif self._recordable_failure(exc) is not None:
                exc.message = f"{exc.message}; {FAILURE_NOT_STORED}"
            raise

    async def _receive(self, live: LiveAnswer) -> Response:
        if (live.head.length or 0) > self._policy.max_body:
            raise too_large(self._policy.max_body)
        self._buffer = buffer = ResponseBuffer(live.head, partial(scratch_of, self._store))
        reader, messages = self._reader, None
        if reader is not None:
            messages = message_scanner(self._live_call.request, live.head)
            if not reader.held:
                # Who sees the head may read at once what was written.
                await self._written()
            reader = None if reader.held else self._send_head(buffer)
        turn = self._turn
        ending = end_detector(self._call, live.head) if turn is None else turn.ending
        if turn is not None and not turn.shared:
            # Other instances do not wait for the end of the stream.
            await self._opened(self._live_call)
            self._live_call = self._live_call._replace(lease=None)
        if turn is not None and turn.is_session:
            arrival = Arrival(buffer, ending, None, None, self._send_head)
            return await self._receive_session(live, arrival)
        arrival = Arrival(buffer, ending, messages, reader, self._send_head)
        beside = RequestsBeside(self._requests, self._began_with, live.elapsed_ms)
        if not ending.expects_mark and may_stay_open(self._live_call.request.method, live.head):
            return await self._receive_stream(live, arrival, beside)
        asks = may_be_json_rpc(self._live_call.request)
        lines = None
        if not ending.expects_mark and may_turn_out_open(self._live_call.request.method, live.head):
            lines = PausingLines(live.elapsed_ms)
        try:
            with beside.counting() if asks or lines is not None else nullcontext():
                while await self._receive_more(live, arrival, lines):
                    if buffer.should_spill:
                        await buffer.spill()
        except UnprovenEnd:
            if arrival.verdict() not in _PROVEN:
                raise
        if lines is not None and lines.has_paused:
            arrival.hand_out()
            return await self._receive_stream(live, arrival, beside)
        if asks and self._requests.answers > self._answers_before:
            # The service has asked the client something, and waited for its answer.
            self._counted = beside.counted
        return buffer.finish(live.elapsed_ms(), arrival.verdict())

    async def _receive_more(
        self, live: LiveAnswer, arrival: Arrival, lines: PausingLines | None
    ) -> bool:
        """Receive; whether there is more of an answer that ends. False too once lines pause."""
        if lines is None or not lines.may_pause:
            return await live.receive(self._policy.max_body, arrival.add)

        def add(pieces: Sequence[bytes], at_ms: float) -> bool:
            lines.add(pieces)
            return arrival.add(pieces, at_ms)

        goes_on = True
        async with lines.until_pause():
            goes_on = await live.receive(self._policy.max_body, add)
        return goes_on and not lines.has_paused

    async def _receive_session(self, live: LiveAnswer, arrival: Arrival) -> Response:
        """What a connection says until it ends; what has come is stored after each pause."""
        buffer, saved, spent, goes_on = arrival.buffer, 0, 0, True

        def add(pieces: Sequence[bytes], at_ms: float) -> bool:
            should_spill, waits = (
                arrival.add(pieces, at_ms),
                buffer.size - sum(map(len, pieces)) > saved,
            )
            # The first piece after what is stored begins the wait for a pause.
            return should_spill or not waits or buffer.size > max(2 * saved, _SAVED_AT_ONCE)

        while goes_on:
            # Each time all of it is written anew: in total a few times what there is.
            may_save = self._live_call.policy.records and spent <= 3 * buffer.size + LARGE_BODY
            waits = may_save and buffer.size > saved
            was_pause = False
            try:
                async with asyncio.timeout(_PAUSE_S) if waits else nullcontext():
                    goes_on = await live.receive(self._policy.max_body, add)
            except TimeoutError:
                was_pause = True
            if goes_on and may_save and (was_pause or buffer.size > max(2 * saved, _SAVED_AT_ONCE)):
                try:
                    spent += await self._save_part(buffer, live.elapsed_ms())
                except RecordingEdited:
                    # The relay goes on without the recorder.
                    return buffer.finish(live.elapsed_ms(), "open")
                saved = buffer.size
            if buffer.should_spill:
                await buffer.spill()
        return buffer.finish(live.elapsed_ms(), arrival.verdict())

    async def _save_part(self, buffer: ResponseBuffer, at_ms: float) -> int:
        """Store what has come of a session, unless some of it lies in a file; how many bytes that was."""
        if (part := buffer.part()) is None:
            return 0
        size = buffer.size
        self._part = await self._record(replace(part, verdict="open", latency_ms=at_ms))
        self._part_size = size
        return size

    async def _receive_stream(
        self, live: LiveAnswer, arrival: Arrival, beside: RequestsBeside
    ) -> Response:
        """A stream that stays open: everything received until it closed."""
        live_call, buffer, clock_ms = self._live_call, arrival.buffer, live.elapsed_ms
        name, take = live_call.cassette.name, live_call.take.number
        arrival.stay_open()
        stream, self._counted = OpenStream(name, take, beside, clock_ms), beside.counted

        def add(pieces: Sequence[bytes], at_ms: float) -> bool:
            stream.add(b"".join(pieces))
            return arrival.add(pieces, at_ms)

        if self._reader is not None:
            self._reader.on_leave(stream.close)
        with self._streams.registered(stream):
            await self._opened(live_call)
            # Nobody else waits for this recording.
            self._live_call = live_call._replace(lease=None)
            try:
                async with stream.while_open(arrival.hand_out):
                    while await live.receive(self._policy.max_body, add):
                        if buffer.should_spill:
                            await buffer.spill()
            except UpstreamError as exc:
                if exc.code != "upstream_timeout":
                    raise
                # That nothing comes is no fault of such a stream.
                stream.close()
        verdict = arrival.verdict()
        if stream.closed and verdict != "error":
            verdict = "open"
        elif not may_stay_open(live_call.request.method, live.head):
            # Lines that ended are an answer like any other.
            self._counted = None
        return buffer.finish(clock_ms(), verdict)

    async def _written(self) -> None:
        """Note a write that was asked live: it may have changed what there is to read.

        Raises StoreError.
        """
        live_call = self._live_call
        if not (live_call.policy.records and live_call.policy.replays) or live_call.may_be_joined:
            return
        if self._write_is_noted:
            return
        self._write_is_noted = True
        try:
            await self._note_write(live_call)
        except StoreAway as exc:
            raise _answer_lost(exc) from exc

    def _send_head(self, buffer: ResponseBuffer) -> ResponseReader | None:
        """Give the client the head, unless the head is the whole answer and so has to wait."""
        head = buffer.head
        if self._reader is None or has_no_body(self._live_call.request.method, head):
            return None
        if head.status == BAD_REQUEST and self._depends_on_error:
            # Only the body tells.
            return None
        index = self._index if self._is_recorded(head.status) else None
        self._index_is_used = index is not None
        self._reader.begin(buffer, "live" if index is None else "recorded", index)
        return self._reader

    async def _record_or_pass_on(self, response: Response) -> Answer:
        if not self._live_call.policy.records:
            return self._answer("live", response)
        if (note := self._why_not_recorded(response)) is not None:
            return self._answer("live", response, note=note)
        part = self._part
        if part is not None and (response.verdict, response.size) == ("open", self._part_size):
            # Under a new index, nobody who has read the recording could edit it.
            return self._answer("recorded", response, part.index, recorded=part)
        try:
            kept = await self._record(response)
        except StoreAway as exc:
            raise _answer_lost(exc) from exc
        except RecordingEdited:
            if part is None:
                raise
            return self._answer("recorded", response, part.index, note=EDITED, recorded=part)
        if self._turn is not None:
            self._part = kept
            self._turn.stored(self)
        note = UNMARKED if response.verdict == "unmarked" else None
        if note is not None:
            log.warning(
                "cassette '%s' #%d, %s %s: %s",
                *(
                    self._live_call.cassette.name,
                    kept.index,
                    kept.request.method,
                    kept.request.target,
                ),
                note,
            )
        return self._answer("recorded", response, kept.index, note=note, recorded=kept)

    def _is_recorded(self, status: int) -> bool:
        policy = self._live_call.policy
        if not policy.records or not policy.replays:
            return policy.records
        return status in self._recorded_statuses

    @property
    def _recorded_statuses(self) -> frozenset[int]:
        """The statuses of answers that a mode that replays records too."""
        if (chosen := self._policy.record_statuses) is not None:
            return chosen
        return kept_statuses(calls_model=calls_model(self._live_call.redacted))

    @property
    def _depends_on_error(self) -> bool:
        """Whether the type of an error decides if the answer is recorded."""
        policy = self._live_call.policy
        return policy.records and policy.replays and self._policy.record_statuses is None

    def _why_not_recorded(self, response: Response) -> str | None:
        """Why an answer is not recorded in a mode that records; None where it is."""
        policy, status, verdict = self._live_call.policy, response.status, response.verdict
        if not self._is_recorded(status):
            statuses = ranges_text(self._recorded_statuses | {status})
            return STATUS_NOT_RECORDED.format(status=status, statuses=statuses)
        if status == BAD_REQUEST and self._depends_on_error:
            plain = readable_response(response, self._live_call.request.method)
            if (kind := error_of_the_caller(plain)) is not None:
                return CALLER_NOT_RECORDED.format(kind=kind)
        if verdict == "truncated" and not self._policy.record_failures:
            return TRUNCATED
        if verdict == "unmarked" and self._policy.require_marks:
            return NOT_RECORDED_UNMARKED
        return ERROR_IN_STREAM if verdict == "error" and policy.replays else None

    def _failure_to_record(self, error: UpstreamError) -> Failure | None:
        """The failure that is recorded for an error, None where nothing is."""
        if not self._policy.record_failures:
            return None
        return self._recordable_failure(error)

    def _recordable_failure(self, error: UpstreamError) -> Failure | None:
        """The failure that --record-failures stores for an error, None where that is nothing."""
        head = self._buffer.head if self._buffer is not None else None
        if not self._live_call.policy.records or (
            head is not None and not self._is_recorded(head.status)
        ):
            return None
        return failure_of_error(error.code, begun=head is not None)

    def _partial_response(self, latency_ms: float) -> Response:
        """The part of the answer that came before the failure."""
        if self._buffer is None:
            return Response(ResponseHead(0), latency_ms=latency_ms)
        return self._buffer.finish(latency_ms, "truncated")

    async def _record(self, response: Response, failure: Failure | None = None) -> Interaction:
        live_call, salt = self._live_call, self._live_call.cassette.head.run_id
        issued = issued_credentials(response.head)
        redactor = self._redaction.redactor_of(salt, (*live_call.secrets, *issued))
        taught = await self._taught_by_file(response, redactor)
        redactor = redactor.learning(taught)
        guard = self._redaction.guard_of(salt, live_call.secrets)
        interaction = await self._to_interaction(response, failure, redactor, taught)
        # The answer may have taught a secret that the request shows.
        live_call = self._live_call
        if self._counted is not None:
            interaction = await _with_requests(interaction, self._counted)
        if has_large_body(interaction):
            # With what the answer has taught, a body of the request may be another one.
            redactor = self._redaction.redactor_of(salt, (*live_call.secrets, *issued, *taught))
            large_bodies = LargeBodyStorage(
                self._store, live_call.cassette.name, redactor, guard, self._policy.max_body
            )
            interaction = await large_bodies.keep(live_call.request, interaction)
            live_call = self._with_stored_body(interaction.request)
        if self._part is not None:
            async with self._going_on(live_call, self._part.index):
                return await self._append(interaction, Replacement(live_call.cassette), guard.check)
        if not live_call.policy.replaces:
            if (repeated := await self._repeat(interaction, guard.check)) is not None:
                return repeated
            return await self._append(interaction, Replacement(live_call.cassette), guard.check)
        replacing = self._replacing(live_call, interaction)
        if replacing is None:
            return await self._append(
                interaction, Replacement(live_call.cassette, is_new=True), guard.check
            )
        async with replacing as replacement:
            if replacement.unchanged is not None:
                return replacement.unchanged
            return await self._append(interaction, replacement, guard.check)

    async def _repeat(self, interaction: Interaction, check: LeakCheck) -> Interaction | None:
        """Count an answer that equals the recording before it there; None for any other answer.

        A poll or a health check that is asked again and again takes a few bytes each time.
        """
        live_call, cassette = self._live_call, self._live_call.cassette
        if self._turn is not None or interaction.response.verdict == "open":
            return None
        before = cassette.before(interaction, live_call.key)
        if before is None or not is_unchanged(before, interaction):
            return None
        try:
            async with self._going_on(live_call, before.index):
                before = cassette.before(interaction, live_call.key)
                if before is None or not is_unchanged(before, interaction):
                    return None
                kept = await self._append(interaction, Replacement(cassette), check, before)
        except RecordingEdited:
            return None
        if kept.again == MANY_REPEATS:
            log.warning(
                "cassette '%s': %s %s got the same answer %d times; a rule reuse = [\"%s %s\"] "
                "answers it from the recording",
                *(cassette.name, kept.request.method, kept.request.target, kept.again),
                *(kept.request.method, kept.request.target.partition("?")[0]),
            )
        return kept

    async def _append(
        self,
        interaction: Interaction,
        replacement: Replacement,
        check: LeakCheck,
        repeats: Interaction | None = None,
    ) -> Interaction:
        """Store a recording; one that `repeats` another is counted there."""
        live_call, cassette, part = self._live_call, replacement.cassette, self._part
        announced, self._index_is_used = self._index_is_used, True
        if repeats is not None:
            # In `stream` the client has the new index already.
            index = self._index if announced and self._index is not None else repeats.index
            self._index_is_used = announced
            again = replace(repeats, index=index, again=repeats.again + 1)
            recording = Recording(again, (repeats.index,))
        elif part is None:
            recording = cassette.make_recording(
                interaction,
                live_call.key,
                live_call.take,
                replaces=live_call.policy.replaces and not replacement.is_new,
                index=self._index,
                instead=replacement.instead,
            )
        else:
            # It takes the place of the part that was stored before.
            self._index = await self._reserve(live_call)
            recording = Recording(replace(interaction, index=self._index), (part.index,))
        interaction, step = cast(Interaction, recording.interaction), None
        goes_on = part is not None
        if live_call.shared:
            step = cassette.cursor_step(
                *(
                    interaction,
                    live_call.key,
                    live_call.take,
                    live_call.variant,
                    live_call.mark,
                ),
                goes_on=goes_on,
            )
        # They may be many times as large as the text of a recording that waits.
        read, self._read = self._read, NOT_READ
        checked = Recording(
            *(interaction, recording.supersedes, check, live_call.lease, step, read),
            goes_on=repeats or part,
        )
        await self._store.append(cassette.name, cassette.head, checked)
        cassette.add(
            *(recording, live_call.key, live_call.take, live_call.variant, live_call.mark),
            goes_on=goes_on,
        )
        return interaction

    async def _taught_by_file(self, response: Response, redactor: Redactor) -> list[Secret]:
        """What a large body of the answer teaches that is not read as a whole. Raises StoreError."""
        if response.file is None or is_parsed(response.headers, response.file.size):
            return []
        method, limit = self._live_call.request.method, self._policy.max_body
        return await taught_by_large_answer(response, method, redactor, limit)

    def _with_stored_body(self, stored: Request) -> LiveCall:
        """The live call with the key of the request as it is stored, if its body lies in a file."""
        if stored.file is not None:
            key = request_key(stored, self._live_call.cassette.rules)
            self._live_call = self._live_call._replace(redacted=stored, key=key)
        return self._live_call

    async def _to_interaction(
        self,
        response: Response,
        failure: Failure | None,
        redactor: Redactor,
        found: Sequence[Secret],
    ) -> Interaction:
        """The exchange decoded and redacted: a text as a whole, even where it lies in a file."""
        small = response.size <= _READ_AT_ONCE
        if small and not self._asks_much:
            return self._redacted_interaction(response, failure, redactor, found)
        if response.file is not None and is_parsed(response.headers, response.file.size):
            text = await with_body_in_memory(response)
            read = await asyncio.to_thread(
                self._redacted_interaction, text, failure, redactor, found
            )
            if not content_coding(read.response.headers):
                return read
            if read.response.body is text.body:
                coded = replace(read.response, body=b"", file=response.file)
                return replace(read, response=coded)
        return await asyncio.to_thread(
            self._redacted_interaction, response, failure, redactor, found
        )

    def _redacted_interaction(
        self,
        response: Response,
        failure: Failure | None,
        redactor: Redactor,
        found: Sequence[Secret],
    ) -> Interaction:
        """`found` is what a body in a file teaches."""
        live_call, call = self._live_call, self._call
        held = readable_response(response, live_call.request.method, cut=response.verdict in CUT)
        stored, taught = redactor.response_and_secrets(held)
        taught = [*found, *taught]
        if held is not response and keeps_coding(live_call.request.headers, response.head):
            stored = self._still_coded(response, held, stored, redactor)
        elif content_coding(held.headers) and not content_coding(stored.headers):
            warn_stored_plain(live_call.cassette.name, live_call.redacted, held.headers)
        salt, rules = live_call.cassette.head.run_id, live_call.cassette.rules
        self._redaction.learn(salt, (*live_call.secrets, *taught))
        if self._policy.minimal_headers:
            head = replace(stored.head, headers=minimal(stored.headers))
            stored = replace(stored, head=head)
        value = json_value(held)
        self._read = ReadBodies(live_call.read, value if stored.body is held.body else None)
        metadata: dict[str, Json] = {}
        tokens = None
        if call is not None:
            metadata = {"provider": call.provider, "endpoint": call.endpoint, "model": call.model}
            tokens = token_usage(call, held, value)
        asked = with_answers_fields(
            live_call.redacted, live_call.request.headers, response.headers, redactor
        )
        again = self._redaction.redact_again(salt, asked, taught)
        if again is not asked:
            asked = again
            self._live_call = live_call._replace(
                redacted=asked, key=request_key(asked, rules), read=None
            )
            self._read = ReadBodies(None, self._read.response)
        if self._turn is not None:
            metadata |= self._turn.metadata
        return Interaction(
            index=self._index or 0,
            request=asked,
            response=stored,
            latency_ms=response.latency_ms,
            usage=None if tokens is None else tokens.fields(),
            metadata=metadata,
            failure=failure,
        )

    def _still_coded(
        self, response: Response, held: Response, stored: Response, redactor: Redactor
    ) -> Response:
        """A coded response for storing: unchanged bytes, unless they hold a secret."""
        if stored.body != held.body:
            warn_stored_plain(
                self._live_call.cassette.name, self._live_call.redacted, response.headers
            )
            return stored
        return replace(response, head=redactor.response(Response(response.head)).head)

    def _answer(
        self,
        outcome: Outcome,
        response: Response,
        index: int | None = None,
        *,
        note: str | None = None,
        recorded: Interaction | None = None,
    ) -> Answer:
        name, key = self._live_call.cassette.name, self._live_call.key
        return Answer(outcome, name, response, index, key, note, recorded)
