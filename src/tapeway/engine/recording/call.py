"""One call to the upstream, from the request to the durable recording."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Literal

from tapeway.core.cassette.plan import Answer, LiveCall
from tapeway.core.http.content_codings import readable_response
from tapeway.core.http.kept_answers import BAD_REQUEST
from tapeway.core.model.control import Outcome
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Response, ResponseHead, Verdict, failure_of_error
from tapeway.core.streams.end_marks import has_no_body
from tapeway.core.streams.json_rpc import may_be_json_rpc, message_scanner
from tapeway.core.streams.open_streams import may_stay_open, may_turn_out_open
from tapeway.engine.decision import is_large
from tapeway.engine.journal import FAILURE_NOT_STORED, NOT_STORED
from tapeway.engine.open_streams import OpenStreams, PausingLines, RequestsBeside
from tapeway.engine.recording.selection import LEFT_OUT, Selection
from tapeway.engine.recording.sessions import receive_session
from tapeway.engine.recording.storing import AnswerStorage, Storing
from tapeway.engine.recording.streams import receive_more, receive_stream
from tapeway.engine.response_buffer import Arrival, ResponseBuffer, ResponseReader
from tapeway.engine.single_flight import CANCELLED, unexpected
from tapeway.errors import (
    Draining,
    RecordingEdited,
    StoreAway,
    TapewayError,
    UnprovenEnd,
    UpstreamError,
    describe,
    forget_frames,
    too_large,
)
from tapeway.ports import CassetteStore, LiveAnswer, LiveResponder, LiveTurn
from tapeway.providers.api_call import ApiCall, describe_call
from tapeway.providers.stream_end import end_detector

log = logging.getLogger(__name__)

PROVEN: tuple[Verdict, ...] = ("marked", "error")
"""The verdict of a stream received to its last event."""
UNMARKED = (
    "the stream ended in good order, but without the mark its protocol ends with: it may be "
    "incomplete; --require-marks leaves such streams unrecorded"
)
EDITED = (
    "somebody has edited or removed the recording of the session meanwhile: later messages were "
    f"passed on, and {NOT_STORED}"
)

CallState = Literal["asking", "receiving", "storing", "durable", "passed_on", "failed"]


class RunningCall:
    """One call to the upstream. `reader` is given the answer while it comes."""

    def __init__(
        self,
        live_call: LiveCall,
        responder: LiveResponder,
        storing: Storing,
        streams: OpenStreams,
        opened: Callable[[LiveCall], Awaitable[None]],
        reader: ResponseReader | None = None,
        turn: LiveTurn | None = None,
    ) -> None:
        self._asks_much = is_large(live_call.request)
        self._storage = AnswerStorage(storing, live_call, turn, asks_much=self._asks_much)
        self._selection = Selection(storing.policy, live_call.policy, live_call.redacted)
        self._responder = responder
        self._storing = storing
        self._max_body = storing.policy.max_body
        self._streams = streams
        self._opened = opened
        self._reader = reader
        self._turn = turn
        self._requests = streams.requests(
            live_call.cassette.name, live_call.take.number, live_call.request.route
        )
        self._began_with, self._answers_before = self._requests.count, self._requests.answers
        self._buffer: ResponseBuffer | None = None
        self._part_size = 0
        """How many bytes had come when the part of a session was stored."""
        self._storing_more = asyncio.Lock()
        self._write_is_noted = False
        self._received = False
        self.began: float | None = None
        """When it was sent, on the event loop's clock."""
        self.result: Answer | TapewayError | None = None
        """The result, None while the call is under way."""
        if not self._asks_much:
            self._storage.described = self._described()

    @property
    def live_call(self) -> LiveCall:
        """The request as it goes upstream, and its cassette."""
        return self._storage.live_call

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

    async def add(self, pieces: Sequence[bytes], at_ms: float) -> bool:
        """Add pieces that came together after the end; False if the answer would be too large."""
        buffer = self._buffer
        async with self._storing_more:
            if buffer is None or buffer.size + sum(map(len, pieces)) > self._max_body:
                return False
            buffer.reopen()
            buffer.add(pieces, at_ms)
            if buffer.should_spill:
                await buffer.spill()
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
                # The lease ended with the first recording.
                self._storage.without_lease()
                response = buffer.finish(before.response.latency_ms, before.response.verdict)
                if (kept := await self._storage.record(response)) is None:
                    return before
                self._storage.part = kept
                self.result = self._answer("recorded", response, kept.index, recorded=kept)
                return self.result
        except TapewayError as exc:
            return exc
        except Exception as exc:
            return unexpected(exc)

    def redacted(self, response: Response) -> Response:
        """A part of the answer as it would be stored; slow, so call it in a thread."""
        live_call = self.live_call
        issued = self._storing.redaction.issued(response.head)
        redactor = self._storing.redaction.redactor_of(
            live_call.cassette.head.run_id, (*live_call.secrets, *issued)
        )
        return redactor.response(readable_response(response, live_call.request.method, cut=True))

    async def run(self) -> Answer | TapewayError:
        """The answer, or the error for everyone who waits. Raises nothing."""
        try:
            if self._asks_much:
                self._storage.described = await asyncio.to_thread(self._described)
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
        self._storage.give_back_index()
        return result

    def _warn_of_loss(self) -> None:
        live_call = self.live_call
        if live_call.policy.records:
            log.warning(
                "cassette '%s': the recording of %s %s is lost: tapeway stopped before its answer "
                "had ended; --drain-timeout says how long it waits",
                live_call.cassette.name,
                live_call.request.method,
                live_call.redacted.target,
            )

    def _described(self) -> ApiCall | None:
        live_call = self.live_call
        read = None if live_call.read is None else live_call.read.value
        return describe_call(live_call.request.route, live_call.redacted, read)

    async def _ask_live(self) -> Response:
        """The whole answer. With `record_failures`, a failed one is recorded as a failure."""
        now = asyncio.get_running_loop().time
        started = self.began = now()
        try:
            async with (self._turn or self._responder).ask(self.live_call.request) as live:
                return await self._receive(live)
        except UpstreamError as exc:
            head = None if self._buffer is None else self._buffer.head
            if failure_of_error(exc.code, begun=self._buffer is not None) is not None:
                # It may have succeeded all the same.
                await self._written()
            if (trouble := self._selection.failure_to_record(exc, head)) is not None:
                await self._storage.record(
                    self._partial_response((now() - started) * 1000), trouble
                )
            elif self._selection.recordable_failure(exc, head) is not None:
                exc.message = f"{exc.message}; {FAILURE_NOT_STORED}"
            raise

    async def _receive(self, live: LiveAnswer) -> Response:
        if (live.head.length or 0) > self._max_body:
            raise too_large(self._max_body)
        self._buffer = buffer = ResponseBuffer(live.head, partial(scratch_of, self._storing.store))
        reader, messages = self._reader, None
        if reader is not None:
            messages = message_scanner(self.live_call.request, live.head)
            if not reader.held:
                # Who sees the head may read at once what was written.
                await self._written()
            reader = None if reader.held else self._send_head(buffer)
        turn = self._turn
        ending = end_detector(self._storage.described, live.head) if turn is None else turn.ending
        if turn is not None and not turn.shared:
            await self._let_go()
        if turn is not None and turn.is_session:
            arrival = Arrival(buffer, ending, None, None, self._send_head)
            save = self._save_part if self.live_call.policy.records else None
            return await receive_session(live, arrival, self._max_body, save)
        arrival = Arrival(buffer, ending, messages, reader, self._send_head)
        beside = RequestsBeside(self._requests, self._began_with, live.elapsed_ms)
        if not ending.expects_mark and may_stay_open(self.live_call.request.method, live.head):
            return await self._receive_open(live, arrival, beside)
        asks = may_be_json_rpc(self.live_call.request)
        lines = None
        if not ending.expects_mark and may_turn_out_open(self.live_call.request.method, live.head):
            lines = PausingLines(live.elapsed_ms)
        try:
            with beside.counting() if asks or lines is not None else nullcontext():
                while await receive_more(live, arrival, lines, self._max_body):
                    if buffer.should_spill:
                        await buffer.spill()
        except UnprovenEnd:
            if arrival.verdict() not in PROVEN:
                raise
        if lines is not None and lines.has_paused:
            arrival.hand_out()
            return await self._receive_open(live, arrival, beside)
        if asks and self._requests.answers > self._answers_before:
            # The service has asked the client something, and waited for its answer.
            self._storage.counted = beside.counted
        return buffer.finish(live.elapsed_ms(), arrival.verdict())

    async def _receive_open(
        self, live: LiveAnswer, arrival: Arrival, beside: RequestsBeside
    ) -> Response:
        """A stream that stays open: everything received until it closed."""
        self._storage.counted = beside.counted
        response, stays_open = await receive_stream(
            live,
            arrival,
            beside,
            self.live_call,
            self._streams,
            self._reader,
            opened=self._let_go,
            max_body=self._max_body,
        )
        if not stays_open:
            self._storage.counted = None
        return response

    async def _let_go(self) -> None:
        """Say that equal requests, here and on other instances, need not wait for the end."""
        await self._opened(self.live_call)
        self._storage.without_lease()

    async def _save_part(self, buffer: ResponseBuffer, at_ms: float) -> int:
        """Store what has come of a session, unless some of it lies in a file; how many bytes that was."""
        if (part := buffer.part()) is None:
            return 0
        size = buffer.size
        kept = await self._storage.record(replace(part, verdict="open", latency_ms=at_ms))
        if kept is None:
            return 0
        self._storage.part, self._part_size = kept, size
        return size

    async def _written(self) -> None:
        """Note a write that was asked live: it may have changed what there is to read.

        Raises StoreError.
        """
        live_call = self.live_call
        if not (live_call.policy.records and live_call.policy.replays) or live_call.may_be_joined:
            return
        if self._write_is_noted:
            return
        self._write_is_noted = True
        try:
            await self._storing.source.note_write(live_call)
        except StoreAway as exc:
            raise _answer_lost(exc) from exc

    def _send_head(self, buffer: ResponseBuffer) -> ResponseReader | None:
        """Give the client the head, unless the head is the whole answer and so has to wait."""
        head = buffer.head
        if self._reader is None or has_no_body(self.live_call.request.method, head):
            return None
        if head.status == BAD_REQUEST and self._selection.depends_on_error:
            # Only the body tells.
            return None
        index = self._storage.announce() if self._selection.is_recorded(head.status) else None
        self._reader.begin(buffer, "live" if index is None else "recorded", index)
        return self._reader

    async def _record_or_pass_on(self, response: Response) -> Answer:
        if not self.live_call.policy.records:
            return self._answer("live", response)
        if (note := self._selection.why_not_recorded(response)) is not None:
            return self._answer("live", response, note=note)
        part = self._storage.part
        if part is not None and (response.verdict, response.size) == ("open", self._part_size):
            # Under a new index, nobody who has read the recording could edit it.
            return self._answer("recorded", response, part.index, recorded=part)
        try:
            kept = await self._storage.record(response)
        except StoreAway as exc:
            raise _answer_lost(exc) from exc
        except RecordingEdited:
            if part is None:
                raise
            return self._answer("recorded", response, part.index, note=EDITED, recorded=part)
        if kept is None:
            return self._answer("live", response, note=LEFT_OUT)
        if self._turn is not None:
            self._storage.part = kept
            self._turn.stored(self)
        note = UNMARKED if response.verdict == "unmarked" else None
        if note is not None:
            log.warning(
                "cassette '%s' #%d, %s %s: %s",
                self.live_call.cassette.name,
                kept.index,
                kept.request.method,
                kept.request.target,
                note,
            )
        return self._answer("recorded", response, kept.index, note=note, recorded=kept)

    def _partial_response(self, latency_ms: float) -> Response:
        """The part of the answer that came before the failure."""
        if self._buffer is None:
            return Response(ResponseHead(0), latency_ms=latency_ms)
        return self._buffer.finish(latency_ms, "truncated")

    def _answer(
        self,
        outcome: Outcome,
        response: Response,
        index: int | None = None,
        *,
        note: str | None = None,
        recorded: Interaction | None = None,
    ) -> Answer:
        name, key = self.live_call.cassette.name, self.live_call.key
        return Answer(outcome, name, response, index, key, note, recorded)


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
