"""What no recording answers: the live service is asked once, its answer taken in whole and durable
before it is handed out.
"""

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, replace

from tapeway.body_files import recalled
from tapeway.core.cassette.plan import Answer, Ask, Replay
from tapeway.core.http.content_codings import content_coding, readable_response
from tapeway.core.json_text import Json
from tapeway.core.matching.body_digest import is_looked_into
from tapeway.core.matching.key import RequestRedaction
from tapeway.core.model.control import Outcome, Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Failure, Response, ResponseHead, Verdict, failure_of_error
from tapeway.core.redaction.credentials import response_credentials
from tapeway.core.redaction.redactor import Redactor
from tapeway.core.streams.end_marks import has_no_body
from tapeway.engine.large_bodies import BodyRedaction
from tapeway.engine.memory_cassettes import MemoryCassettes
from tapeway.engine.response_buffer import ResponseBuffer, ResponseReader
from tapeway.engine.shared_cassettes import SharedCassettes
from tapeway.engine.single_flight import BROKEN_OFF, LiveCalls, Pending, settled
from tapeway.errors import (
    Draining,
    Fenced,
    StoreAway,
    TapewayError,
    UpstreamError,
    describe,
    too_large,
)
from tapeway.ports import CassetteStore, LiveAnswer, LiveResponder
from tapeway.providers.api_call import describe_call
from tapeway.providers.stream_end import ending as end_of
from tapeway.providers.usage import token_usage

log = logging.getLogger(__name__)

MIB = 1024 * 1024
_QUICKLY_READ = 128 * 1024
"""Larger answers are looked into in a thread."""
TRUNCATED = (
    "the stream ended without the mark its protocol ends with: it was passed on as it came, and not "
    "stored; --record-failures stores such streams"
)
REPORTED = (
    "the stream reported an error although its status is a success: it was passed on, and not "
    "stored; mode record stores it"
)


@dataclass(frozen=True, slots=True)
class Policy:
    """What the settings say about recording and replaying."""

    repeats: Repeats | None = None
    """None where each cassette's own rule is in force."""
    record_statuses: frozenset[int] = frozenset(range(200, 300))
    max_body: int = 64 * MIB
    record_failures: bool = False


class Recorder:
    """Asks the live service for what no recording answers, and makes what it says durable."""

    def __init__(
        self,
        cassettes: MemoryCassettes | SharedCassettes,
        calls: LiveCalls,
        responder: LiveResponder,
        store: CassetteStore,
        policy: Policy,
        redaction: RequestRedaction,
    ) -> None:
        self.responder = responder
        self._cassettes = cassettes
        self._calls = calls
        self._store = store
        self._policy = policy
        self._redaction = redaction

    async def perform(self, ask: Ask) -> Answer:
        """Ask the live service and record what it says, once for all who ask the same now.

        Raises UpstreamError or StoreError; an answer that could not be made durable is not given.
        """
        return await self._joined(ask, None).answer()

    def follow(self, ask: Ask, reader: ResponseReader) -> Pending:
        """The same for who is to have the answer as it comes, unless another one asked first.

        Raises Draining.
        """
        return self._joined(ask, reader)

    def relay(self, ask: Ask) -> AbstractAsyncContextManager[LiveAnswer]:
        """The live answer as it comes, nothing recorded. Raises Draining."""
        self._calls.refuse_when_draining()
        return self.responder.ask(ask.request)

    def _joined(self, ask: Ask, reader: ResponseReader | None) -> Pending:
        if (pending := self._calls.joined(ask)) is not None:
            if reader is not None:
                reader.close()
            return pending
        self._calls.refuse_when_draining()
        return self._calls.start(ask, self._performed(ask, reader), reader)

    async def _performed(self, ask: Ask, reader: ResponseReader | None) -> Answer | TapewayError:
        return await settled(self._answered(ask, reader))

    async def _answered(self, ask: Ask, reader: ResponseReader | None) -> Answer | TapewayError:
        while True:
            async with self._cassettes.asking(ask) as allowed:
                if isinstance(allowed, Replay):
                    return _recorded_elsewhere(allowed)
                call = LiveCall(
                    *(allowed, self.responder, self._store, self._policy, self._redaction), reader
                )
                answer = await call.run()
            # One that lost its lease asks again, unless its client has had a part already.
            if not isinstance(answer, Fenced) or (reader is not None and reader.begun):
                return answer


def scratch_of(store: CassetteStore) -> str | None:
    """A folder with room for large bodies on their way into an open store, if it has one."""
    bodies = store.capabilities.bodies
    return None if bodies is None else bodies.scratch


def _recorded_elsewhere(replay: Replay) -> Answer | TapewayError:
    item = replay.interaction
    if item.failure is not None:
        return UpstreamError(f"another instance asked, and {item.failure.message}")
    return Answer("replayed", replay.cassette.name, item.response, item.index, replay.key)


class LiveCall:
    """A call on behalf of one request, or of all equal requests at the time.

    `reader` is for a client that is to have the answer as it comes.
    """

    def __init__(
        self,
        ask: Ask,
        responder: LiveResponder,
        store: CassetteStore,
        policy: Policy,
        redaction: RequestRedaction,
        reader: ResponseReader | None = None,
    ) -> None:
        self._ask = ask
        self._responder = responder
        self._store = store
        self._policy = policy
        self._redaction = redaction
        self._reader = reader
        self._call = describe_call(ask.request.route, ask.redacted)
        self._buffer: ResponseBuffer | None = None
        self._index: int | None = None

    async def run(self) -> Answer | TapewayError:
        """The answer, or the error that all who wait for it get. Raises nothing."""
        try:
            response = await self._collect()
            answer = await self._kept(response)
            if self._reader is not None and self._buffer is not None:
                self._reader.release(self._buffer.size)
            return answer
        except TapewayError as exc:
            return exc
        except asyncio.CancelledError:
            return Draining(BROKEN_OFF)
        except Exception as exc:
            log.error("a live call failed: %s", describe(exc))
            return TapewayError("tapeway failed while recording; its log says where")

    async def _collect(self) -> Response:
        """The whole answer. One that did not come whole is recorded as such, if that is wanted."""
        now = asyncio.get_running_loop().time
        started = now()
        try:
            async with self._responder.ask(self._ask.request) as live:
                return await self._take_in(live)
        except UpstreamError as exc:
            if (trouble := self._trouble(exc)) is not None:
                await self._record(self._part((now() - started) * 1000), trouble)
            raise

    async def _take_in(self, live: LiveAnswer) -> Response:
        if (live.head.length or 0) > self._policy.max_body:
            raise too_large(self._policy.max_body)
        self._buffer = buffer = ResponseBuffer(live.head, scratch_of(self._store))
        ending = end_of(self._call, live.head)
        reader = self._begin(buffer)
        async for chunk in live.chunks(self._policy.max_body):
            buffer.add(chunk)
            if buffer.heavy:
                await buffer.spill()
            ending.feed(chunk.data)
            if reader is not None:
                reader.release(ending.releasable)
        return buffer.finish(live.elapsed_ms(), ending.finish())

    def _begin(self, buffer: ResponseBuffer) -> ResponseReader | None:
        """Let the client have the head, unless that is the whole answer and so has to wait."""
        head = buffer.head
        if self._reader is None or has_no_body(self._ask.request.method, head):
            return None
        if self._keeps(head.status):
            self._index = self._ask.cassette.reserve()
        self._reader.begin(buffer, "live" if self._index is None else "recorded", self._index)
        return self._reader

    async def _kept(self, response: Response) -> Answer:
        note = self._objection(response.verdict)
        if note or not self._keeps(response.status):
            return self._answer("live", response, note=note)
        try:
            kept = await self._record(response)
        except StoreAway as exc:
            # What cannot be asked is one thing, what was paid for and cannot be kept another.
            lost = f"{exc.message}; the live answer was not given out and is lost"
            raise StoreAway(lost, code="recording_failed") from exc
        return replace(self._answer("recorded", response, kept.index), recorded=kept)

    def _keeps(self, status: int) -> bool:
        policy = self._ask.policy
        return policy.records and (not policy.replays or status in self._policy.record_statuses)

    def _objection(self, verdict: Verdict) -> str | None:
        """Why a stream is not kept although its status is that of a success."""
        policy = self._ask.policy
        if not policy.records:
            return None
        if verdict == "truncated" and not self._policy.record_failures:
            return TRUNCATED
        return REPORTED if verdict == "error" and policy.replays else None

    def _trouble(self, error: UpstreamError) -> Failure | None:
        """The failure to record for an error, if it is one and is to be recorded."""
        head = self._buffer.head if self._buffer is not None else None
        if not (self._policy.record_failures and self._ask.policy.records):
            return None
        if head is not None and not self._keeps(head.status):
            return None
        return failure_of_error(error.code, begun=head is not None)

    def _part(self, latency_ms: float) -> Response:
        """What came before it failed."""
        if self._buffer is None:
            return Response(ResponseHead(0), latency_ms=latency_ms)
        return self._buffer.finish(latency_ms, "truncated")

    async def _record(self, response: Response, failure: Failure | None = None) -> Interaction:
        ask = self._ask
        redactor = self._redaction.redactor(
            ask.cassette.head.run_id, ask.request, response_credentials(response.headers)
        )
        guard = self._redaction.guard(ask.request)
        keeping = BodyRedaction(
            self._store, ask.cassette.name, redactor, guard, self._policy.max_body
        )
        interaction = await keeping.keep(ask.request, await self._read(response, failure, redactor))
        recording = ask.cassette.make_recording(
            interaction, ask.key, ask.take, replaces=ask.policy.replaces, index=self._index
        )
        interaction = replace(interaction, index=recording.interaction.index)
        checked = replace(recording, check=guard.check, lease=ask.lease)
        if ask.shared:
            checked = replace(
                checked, step=ask.cassette.cursor_step(interaction, ask.key, ask.take)
            )
        await self._store.append(ask.cassette.name, ask.cassette.head, checked)
        ask.cassette.add(recording, ask.key, ask.take)
        return interaction

    async def _read(
        self, response: Response, failure: Failure | None, redactor: Redactor
    ) -> Interaction:
        """The exchange looked into: a text as a whole, even where it is kept in a file."""
        if self._buffer is None or self._buffer.size <= _QUICKLY_READ:
            return self._interaction(response, failure, redactor)
        if response.file is not None and is_looked_into(response.headers, response.file.size):
            text = await recalled(response)
            read = await asyncio.to_thread(self._interaction, text, failure, redactor)
            if not content_coding(read.response.headers):
                return read
        return await asyncio.to_thread(self._interaction, response, failure, redactor)

    def _interaction(
        self, response: Response, failure: Failure | None, redactor: Redactor
    ) -> Interaction:
        ask, call = self._ask, self._call
        held = readable_response(response, ask.request.method, cut=response.verdict == "truncated")
        metadata: dict[str, Json] = {}
        tokens = None
        if call is not None:
            metadata = {"provider": call.provider, "endpoint": call.endpoint, "model": call.model}
            tokens = token_usage(call, held)
        return Interaction(
            index=0,
            request=ask.redacted,
            response=redactor.response(held),
            latency_ms=response.latency_ms,
            usage=None if tokens is None else asdict(tokens),
            metadata=metadata,
            failure=failure,
        )

    def _answer(
        self,
        outcome: Outcome,
        response: Response,
        index: int | None = None,
        *,
        note: str | None = None,
    ) -> Answer:
        return Answer(outcome, self._ask.cassette.name, response, index, self._ask.key, note)
