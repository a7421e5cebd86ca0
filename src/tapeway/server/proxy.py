"""The hot path: read a request, let the broker decide, write the answer.

How the proxy listener behaves.

What is said about a base URL that was forgiven: once, with the right one.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

from aiohttp import web

from tapeway.body_files import check
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Answer, Ask, Incoming, Replay
from tapeway.core.http import sdk_conventions
from tapeway.core.http.request_line import origin_form, own_path
from tapeway.core.http.routing import (
    DEFAULT,
    BaseUrlFault,
    BaseUrlFaultKind,
    ProviderLookup,
    RequestAddress,
    resolve,
    with_proxy_location,
)
from tapeway.core.json_text import Json
from tapeway.core.misses.miss import Miss
from tapeway.core.model.control import Delivery, Outcome
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import BodyFile, Failure, Headers, Response, ResponseHead
from tapeway.core.streams.pacing import AT_ONCE, Pace, Schedule, scale_retry_after
from tapeway.engine.broker import Broker
from tapeway.engine.journal import Entries
from tapeway.engine.response_buffer import ResponseReader
from tapeway.errors import RequestError, TapewayError, UpstreamError
from tapeway.providers.base_url_repair import repair_address
from tapeway.server.delivery import LargeAnswer, Outgoing, Playback, ReadyAnswers, abort
from tapeway.server.drain import OpenWaits
from tapeway.server.error_responses import of_error, of_miss
from tapeway.server.exchange import Exchange, ExchangeLog
from tapeway.server.miss_explainer import Explainer
from tapeway.server.protocol import ClientConnection
from tapeway.server.wire import (
    WireResponse,
    arrived,
    authorities,
    marks,
    origin,
    read_body,
    serialise,
)

log = logging.getLogger(__name__)
_LEFT = "the client left before the answer ended"


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """What the settings say about the proxy listener; seconds and bytes."""

    max_body: int
    body_idle_s: float
    miss_status: int = 424
    rewrite_location: bool = True
    admin: str | None = None
    delivery: Delivery = "buffer"
    pace: Pace = AT_ONCE


class BaseUrlWarnings:
    """Tells of each kind of slip on each route once."""

    def __init__(self) -> None:
        self._told: set[tuple[str, BaseUrlFaultKind]] = set()

    def tell(self, route: str, slip: BaseUrlFault, root: str) -> None:
        """Warn of a slip below `root`, unless that was done. Nothing of the request is shown."""
        if (route, slip.kind) in self._told:
            return
        self._told.add((route, slip.kind))
        log.warning(
            "%s: %s, which is forgiven: give it %s, or %s if it adds the rest itself",
            *(route, slip.fault, root + slip.prefix, root),
        )


class Proxy:
    """The handler of the proxy listener."""

    def __init__(
        self,
        broker: Broker,
        journal: Entries,
        owner: ProviderLookup,
        manners: ProxyOptions,
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self._broker = broker
        self._ledger = ExchangeLog(broker, journal, clock, salt=new_id())
        self._owner = owner
        self._manners = manners
        self._clock = clock
        self._now = now
        self._new_id = new_id
        self._explainer = Explainer(broker.redaction)
        self._ready = ReadyAnswers()
        # Clients ask few paths with few sets of fields, so where they lead is remembered.
        self._where = lru_cache(maxsize=512)(self._locate)
        self._visits = 0
        self._left = asyncio.Event()
        self._waits = OpenWaits()
        self._slips = BaseUrlWarnings()
        self.draining = False

    async def __call__(self, raw: web.BaseRequest) -> web.StreamResponse:
        visit = Exchange(raw, self._new_id(), self._now(), self._clock(), self._broker.active)
        self._visits += 1
        try:
            return await self._serve(visit)
        except TapewayError as error:
            return self._refuse(visit, error)
        finally:
            self._visits -= 1
            self._left.set()

    @property
    def visits(self) -> int:
        """Requests under way."""
        return self._visits

    async def empty(self) -> None:
        """Wait until no request is under way."""
        while self._visits:
            self._left.clear()
            await self._left.wait()

    def break_off(self) -> None:
        """End what waits for a client's body or relays an answer; those told nothing get an error."""
        self._waits.break_off()

    def _locate(
        self, method: str, target: str, version: tuple[int, int], headers: Headers
    ) -> RequestAddress:
        path = origin_form(method, target, version, headers)
        routes = self._broker.routes
        address = repair_address(resolve(routes, self._owner, path, headers), routes)
        tried = sdk_conventions.attempt_number(headers)
        return replace(address, attempt=tried) if tried else address

    async def _serve(self, visit: Exchange) -> WireResponse:
        broker, raw = self._broker, visit.raw
        address = self._address(visit)
        mode = broker.mode_of(visit.cassette)
        body: bytes | BodyFile | None = arrived(raw, self._manners.max_body)
        if body is None:
            body = await self._read(raw)
        written = address.slip.written if address.slip is not None else None
        incoming = Incoming(visit.request(address, body), address.guessed, mode, written)
        cassette, plan = await broker.decide(visit.cassette, incoming)
        visit.note = None if isinstance(plan, Miss) else plan.note
        visit.key, visit.path = plan.key, plan.target
        if not isinstance(plan, Replay):
            return await self._carry_out(visit, cassette, plan)
        if (file := plan.interaction.response.file) is not None:
            check(file)
        if self._manners.pace != AT_ONCE or plan.interaction.failure is not None:
            return await self._play(visit, plan.interaction)
        return self._replay(visit, plan.interaction)

    def _address(self, visit: Exchange) -> RequestAddress:
        raw, target = visit.raw, visit.raw.raw_path
        if not target.startswith("/"):
            target = own_path(target, authorities(raw))
        visit.address = address = self._where(raw.method, target, raw.version, raw.raw_headers)
        if (slip := address.slip) is not None:
            self._slips.tell(address.route.name, slip, f"{origin(raw)}{address.prefix}")
        visit.cassette = address.cassette or self._broker.active
        return address

    async def _read(self, raw: web.BaseRequest) -> bytes | BodyFile:
        manners = self._manners
        async with self._waits.wait():
            return await read_body(
                raw,
                max_body=manners.max_body,
                idle_s=manners.body_idle_s,
                scratch=self._broker.scratch,
            )

    async def _carry_out(
        self, visit: Exchange, cassette: CassetteIndex, plan: Ask | Miss
    ) -> WireResponse:
        """What no recording answers."""
        if isinstance(plan, Miss):
            return self._miss(visit, await self._explainer.explain(cassette, plan))
        if not plan.policy.records:
            return await self._relay(visit, plan)
        if self._manners.delivery == "stream":
            return await self._follow(visit, plan)
        return self._answer(visit, plan, await self._broker.perform(plan))

    def _replay(self, visit: Exchange, interaction: Interaction) -> WireResponse:
        self._broker.note(
            "replayed", visit.cassette, interaction=interaction, attempt=visit.attempt
        )
        response, index = interaction.response, interaction.index
        stays = self._stays(visit.raw)
        pieces = self._ready.pieces(
            interaction,
            visit.cassette,
            method=visit.raw.method,
            version=visit.raw.version,
            keep_alive=stays,
        )
        if pieces is None:
            response = replace(response, head=scale_retry_after(response.head, AT_ONCE))
            return self._reply(visit, response, "replayed", interaction.request.base, index)
        self._ledger.enter(visit, "replayed", response.status, index)
        return WireResponse(pieces, keep_alive=stays)

    def _answer(self, visit: Exchange, ask: Ask, answer: Answer) -> WireResponse:
        self._broker.note(answer.outcome, visit.cassette, attempt=visit.attempt)
        base = ask.request.base
        return self._reply(visit, answer.response, answer.outcome, base, answer.index, answer.note)

    def _miss(self, visit: Exchange, miss: Miss) -> WireResponse:
        self._broker.note("miss", visit.cassette, miss=miss, attempt=visit.attempt)
        journal = self._manners.admin and f"{self._manners.admin}/api/v1/journal?outcome=miss"
        response = of_miss(
            miss,
            status=self._manners.miss_status,
            request_id=visit.id,
            journal=journal,
            ollama=self._is_ollama(visit),
        )
        self._ledger.enter(visit, "miss", response.status, None, miss.message, miss.explanation)
        return self._write(visit, response, "miss", None)

    def _refuse(self, visit: Exchange, error: TapewayError) -> WireResponse:
        self._broker.note("error", visit.cassette, attempt=visit.attempt)
        content = visit.raw.content
        if not content.is_eof() and visit.raw.protocol is not None:
            cast(ClientConnection, visit.raw.protocol).unread = content
        response = self._page(visit, error)
        self._ledger.enter(visit, "error", response.status, None, f"{error.code}: {error.message}")
        return self._write(visit, response, "error", None)

    def _page(self, visit: Exchange, error: TapewayError) -> Response:
        tapeway: dict[str, Json] = {
            "cassette": visit.cassette,
            "method": visit.raw.method,
            "path": self._ledger.path(visit),
        }
        return of_error(error, request_id=visit.id, tapeway=tapeway, ollama=self._is_ollama(visit))

    def _reply(
        self,
        visit: Exchange,
        response: Response,
        outcome: Outcome,
        base: str,
        index: int | None,
        note: str | None = None,
    ) -> WireResponse:
        self._ledger.enter(visit, outcome, response.status, index, note)
        head = self._localised(visit, response.head, base)
        if head is not response.head:
            response = replace(response, head=head)
        return self._write(visit, response, outcome, index)

    def _write(
        self, visit: Exchange, response: Response, outcome: Outcome, index: int | None
    ) -> WireResponse:
        raw = visit.raw
        stays = self._stays(raw)
        said = marks(outcome, visit.cassette, index)
        if response.file is not None:
            return LargeAnswer(raw, response, response.file, said, keep_alive=stays)
        pieces = serialise(
            response,
            said,
            method=raw.method,
            version=raw.version,
            keep_alive=stays,
        )
        return WireResponse(pieces, keep_alive=stays)

    def _stays(self, raw: web.BaseRequest) -> bool:
        # A body that was refused unread would be taken for the next request.
        return bool(raw.keep_alive) and not self.draining and raw.content.is_eof()

    async def _relay(self, visit: Exchange, ask: Ask) -> WireResponse:
        head: ResponseHead | None = None
        try:
            async with self._waits.wait(), self._broker.relay(ask) as live:
                head = live.head
                outgoing = self._outgoing(visit, head, marks("live", visit.cassette, None), ask)
                self._broker.note("live", visit.cassette, attempt=visit.attempt)
                await outgoing.begin()
                async for piece in live.pieces():
                    await outgoing.send(piece)
        except TapewayError as error:
            if head is None:
                raise
            return self._cut(visit, error)
        except ConnectionError:
            return self._cut(visit, RequestError(_LEFT))
        self._ledger.enter(visit, "live", head.status, None)
        return outgoing.end()

    async def _follow(self, visit: Exchange, ask: Ask) -> WireResponse:
        """Pass an answer on as it comes; its end waits until the recording is durable."""
        feed = ResponseReader()
        pending = self._broker.follow(ask, feed)
        if (head := await feed.head()) is None:
            return self._answer(visit, ask, await pending.answer())
        said = marks(feed.outcome, visit.cassette, feed.index)
        outgoing = self._outgoing(visit, head, said, ask)
        left = None
        try:
            try:
                async with self._waits.wait():
                    await outgoing.begin()
                    async for piece in feed.pieces():
                        await outgoing.send(piece)
            except ConnectionError:
                left = _LEFT
            answer = await pending.answer()
        except TapewayError as error:
            self._broker.note("error", visit.cassette, attempt=visit.attempt)
            return self._cut(visit, error)
        self._broker.note(answer.outcome, visit.cassette, attempt=visit.attempt)
        self._ledger.enter(visit, answer.outcome, head.status, answer.index, left or answer.note)
        return abort(visit.raw) if left else outgoing.end()

    async def _play(self, visit: Exchange, interaction: Interaction) -> WireResponse:
        """Replay at the recorded pace, or what was no whole answer."""
        failure, head = interaction.failure, interaction.response.head
        pace = self._manners.pace
        schedule = Schedule(interaction.response, interaction.latency_ms, pace)
        playback = Playback(visit.raw, interaction, schedule)
        said = marks("replayed", visit.cassette, interaction.index)
        outgoing: Outgoing | None = None
        try:
            async with self._waits.wait():
                if failure is not None and not head.status:
                    await playback.until(schedule.end_s)
                    return self._fail(visit, interaction, failure)
                await playback.until(schedule.head_s)
                self._broker.note(
                    "replayed", visit.cassette, interaction=interaction, attempt=visit.attempt
                )
                outgoing = self._outgoing(
                    visit, scale_retry_after(playback.head, pace), said, interaction
                )
                await playback.play(outgoing)
        except ConnectionError:
            return self._cut(visit, RequestError(_LEFT))
        except TapewayError as error:
            if outgoing is None:
                raise
            return self._cut(visit, error)
        note = failure.message if failure is not None else None
        self._ledger.enter(visit, "replayed", head.status, interaction.index, note)
        return abort(visit.raw) if failure else outgoing.end()

    def _fail(self, visit: Exchange, interaction: Interaction, failure: Failure) -> WireResponse:
        """Replay a failure that came before any answer."""
        index = interaction.index
        status = 504 if failure.kind == "timeout" else 502
        self._broker.note(
            "replayed", visit.cassette, interaction=interaction, attempt=visit.attempt
        )
        self._ledger.enter(visit, "replayed", status, index, failure.message)
        if failure.kind != "timeout":
            return abort(visit.raw)
        error = UpstreamError(failure.message, status=status, code="upstream_timeout")
        return self._write(visit, self._page(visit, error), "replayed", index)

    def _outgoing(
        self, visit: Exchange, head: ResponseHead, said: Headers, asked: Ask | Interaction
    ) -> Outgoing:
        head = self._localised(visit, head, asked.request.base)
        return Outgoing(visit.raw, head, said, draining=self.draining)

    def _cut(self, visit: Exchange, error: TapewayError) -> WireResponse:
        self._ledger.enter(visit, "error", error.status, None, f"{error.code}: {error.message}")
        return abort(visit.raw)

    def _localised(self, visit: Exchange, head: ResponseHead, base: str) -> ResponseHead:
        if not self._manners.rewrite_location or visit.address is None:
            return head
        return with_proxy_location(head, visit.raw.raw_headers, base, visit.address.prefix)

    def _is_ollama(self, visit: Exchange) -> bool:
        if visit.address is None or not visit.address.target.startswith("/api/"):
            return False
        name = visit.address.route.name
        return name == "ollama" or (
            name == DEFAULT and self._owner(visit.address.target, ()) == "ollama"
        )
