"""Asks the live service for what no recording answers, and makes the answer durable.

The whole answer is received, redacted and stored before the client gets its end (or, with
`--delivery buffer`, before it gets anything).
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import count

from tapeway.core.cassette.plan import Answer, LiveCall, Replay
from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.engine.cassettes.cassettes import Cassettes
from tapeway.engine.decision import READS
from tapeway.engine.hooks import Hooks
from tapeway.engine.recording.call import PROVEN, RunningCall
from tapeway.engine.recording.selection import Policy
from tapeway.engine.recording.storing import Storing
from tapeway.engine.response_buffer import ResponseReader
from tapeway.engine.single_flight import Pending, SingleFlight, unexpected
from tapeway.engine.told_apart import ToldApart
from tapeway.errors import (
    Fenced,
    StoreError,
    TapewayError,
    UnprovenEnd,
    UpstreamError,
)
from tapeway.ports import CassetteStore, LiveAnswer, LiveResponder, LiveTurn, StoredCall
from tapeway.providers.api_call import describe_call
from tapeway.providers.stream_end import end_detector

log = logging.getLogger(__name__)

_NOT_REACHED = frozenset(
    {"upstream_dns", "upstream_proxy", "upstream_reset", "upstream_timeout", "upstream_unreachable"}
)
"""The codes of errors where no connection was made, or no answer came (`upstream/faults.py`)."""


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
        hooks: Hooks,
    ) -> None:
        self.responder = responder
        self.streams = calls.streams
        self._cassettes = cassettes
        self._calls = calls
        self._storing = Storing(
            *(store, policy, redaction, cassettes.replacing, cassettes.source), hooks=hooks
        )
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

    def store_more(
        self, call: StoredCall, ended: Callable[[Answer | TapewayError], object]
    ) -> Pending:
        """Store what an answer goes on with after its end; `ended` gets the result."""

        async def store() -> Answer | TapewayError:
            answer = await call.store_more()
            ended(answer)
            return answer

        return self._calls.start(call.live_call, store(), shared=False)

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
            if ending.finish() not in PROVEN:
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
                    find = partial(_latest_answer, live_call, answer)
                    found = await self._cassettes.source.reading(live_call.cassette, find)
                    return found or answer
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
            self._storing,
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
        return self._failed or self._storing.store.facts.may_go_away

    async def _refuse_what_cannot_be_kept(self, name: str) -> None:
        """Raise StoreError before the upstream is asked, and paid, for nothing."""
        await self._storing.store.check_writes(name)
        self._failed = False


def _latest_answer(live_call: LiveCall, error: UpstreamError) -> Answer | None:
    """The last recorded answer to a read that cannot be asked anew, since the service is away."""
    cassette, request = live_call.cassette, live_call.request
    reads = live_call.policy.replays and request.method in READS
    if not reads or error.code not in _NOT_REACHED:
        return None
    take = cassette.take_now(live_call.take)
    key = live_call.key
    item = cassette.choice.latest(cassette.held(key), key, take, cassette.asked(request))
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
    name = replay.base or replay.cassette.name
    return Answer("replayed", name, item.response, item.index, replay.key, recorded=item)
