"""The request handler of the proxy: read the request, let the broker decide, write the response."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from uuid import uuid4

from tapeway.body_files import check_body_file, with_body_in_memory
from tapeway.core.cassette.plan import Answer, Incoming, LiveCall, Replay
from tapeway.core.http.connection_logins import LOGIN_FIELDS, logs_in
from tapeway.core.http.cors import (
    for_origin,
    is_preflight,
    preflight_response,
    private_network_permission,
)
from tapeway.core.http.foreign import ForeignGuard
from tapeway.core.http.request_line import asks_for_websocket, own_path
from tapeway.core.http.routing import (
    DEFAULT_ROUTE,
    BaseUrlFault,
    ProviderLookup,
    RequestAddress,
)
from tapeway.core.http.sdk_conventions import attempt_number
from tapeway.core.json_text import Json
from tapeway.core.matching.rules import NO_RULES
from tapeway.core.matching.templates import Filling, TemplateFault, filled
from tapeway.core.misses.miss import NO_EXPLANATION, Miss
from tapeway.core.model.control import Delivery, Outcome
from tapeway.core.model.faults import STATUSES
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    WEBSOCKET,
    BodyFile,
    Failure,
    Headers,
    Request,
    Response,
    ResponseHead,
    Verdict,
)
from tapeway.core.model.request_fields import EDITION
from tapeway.core.streams.faults import LaidFault, lay
from tapeway.core.streams.json_rpc import may_be_json_rpc
from tapeway.core.streams.open_streams import may_stay_open, may_turn_out_open
from tapeway.core.streams.pacing import AT_ONCE, Pace, Schedule, scale_retry_after
from tapeway.core.way_back.addresses import WaysBack
from tapeway.core.way_back.cookies import has_expiry, with_later_expiry
from tapeway.engine.broker import Broker
from tapeway.engine.decision import is_large
from tapeway.engine.faults import FaultsOfRequest, chosen, faults_of, still_fitting
from tapeway.engine.journal import (
    NO_MODEL,
    ClientTexts,
    RequestIds,
    SentThroughSlot,
    ServedAnswer,
    ServedRequest,
    ServedRequests,
    UnreachedTail,
    charged_tokens,
)
from tapeway.engine.kept_calls import CallKeeper, RelayedBody
from tapeway.engine.open_streams import Signal
from tapeway.engine.record_command import RecordCommands
from tapeway.engine.request_log import FailedCall, FailureLog, log_miss
from tapeway.engine.response_buffer import ResponseReader
from tapeway.errors import (
    ClientLeft,
    Foreign,
    NoRoute,
    NoSlot,
    RequestError,
    StoreError,
    TapewayError,
    TemplateFailed,
    UpstreamError,
)
from tapeway.loop_guard import LoopGuard
from tapeway.ports import Dial
from tapeway.providers.base_urls import fault_without_route
from tapeway.providers.error_forms import error_answer, error_event
from tapeway.providers.hosts import HostRoutes, RoutedHost
from tapeway.providers.request_addresses import RequestAddresses
from tapeway.server.answers import outcome_headers, serialise
from tapeway.server.delivery import (
    LargeAnswer,
    OpenPlayback,
    Outgoing,
    Playback,
    pause,
    while_connected,
)
from tapeway.server.drain import OpenWaits
from tapeway.server.error_responses import (
    ERROR_OUTCOME,
    error_response,
    foreign_response,
    miss_response,
)
from tapeway.server.faulted import FaultEnds, FaultyOutgoing, until_left
from tapeway.server.hits import Hits
from tapeway.server.messages import (
    ClientRequest,
    Exchange,
    Handle,
    WireResponse,
    abort,
    authorities,
    buffered_body,
    interim_sender,
    origin,
    read_body,
)
from tapeway.server.miss_explainer import Explainer
from tapeway.server.way_back import ResponsesBack
from tapeway.server.websocket.upgrades import Upgrades

log = logging.getLogger(__name__)
_MOST_FOREIGN = 1000
"""Refused pages and names to remember; beyond that, all are forgotten and logged again."""
_DISCONNECTED = "the client left before the answer ended"
_PERMITTED = "no recording answers this preflight, so tapeway permitted what it asked for"


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """The settings of the proxy listener; times in seconds, sizes in bytes."""

    max_body: int
    body_idle_s: float
    miss_status: int = 400
    scheme: str = "http"
    """`https` where the listener speaks TLS."""
    rewrite: bool = True
    """Whether addresses of an upstream in responses lead to the proxy instead."""
    admin: str | None = None
    page: str | None = None
    """The URL of the page that shows misses, up to the fragment."""
    admin_token: bool = False
    """Whether the admin API asks for a token."""
    record_command: str | None = None
    """The command that records what was missed; without one, the admin API switches the mode."""
    delivery: Delivery = "buffer"
    pace: Pace = AT_ONCE
    websocket: bool = True
    guard: ForeignGuard = field(default_factory=partial(ForeignGuard.of_listener, "127.0.0.1"))
    """Decides which pages may call the listener, and under which names."""


class Proxy:
    """The handler of the proxy listener; `journal` gets an entry for each request."""

    def __init__(
        self,
        broker: Broker,
        journal: ServedRequests,
        owner: ProviderLookup,
        options: ProxyOptions,
        loops: LoopGuard,
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
        ids: RequestIds,
        dial: Dial | None = None,
    ) -> None:
        """Without `dial`, no WebSocket connection is opened to an upstream."""
        self._broker = broker
        self._recorder = broker.recorder
        self._journal = journal
        self._owner = owner
        self._options = options
        self._loops = loops
        self._clock = clock
        self._now = now
        self._new_id, self._salt = ids.new, ids.new()
        self._explainer = Explainer(broker.redaction, broker.store, broker.cassettes.neighbours)
        self._commands = RecordCommands(
            *(broker, self._salt),
            configured=options.record_command,
            admin=options.admin,
            token=options.admin_token,
        )
        self._addresses = RequestAddresses(broker.routes, owner)
        self._keeper = CallKeeper(broker.redaction, self._salt)
        self._in_flight = 0
        self._request_ended = asyncio.Event()
        ways_back = WaysBack(broker.routes, owner) if options.rewrite else None
        self._back = ResponsesBack(ways_back, options.scheme)
        self.hits: Hits | None = None
        """None where no request can be answered at once."""
        if options.pace == AT_ONCE and broker.hooks.before_replay is None:
            self.hits = Hits(
                *(broker, journal, self._addresses, options.guard),
                clock=clock,
                now=now,
                ids=ids,
                ended=self._request_ended.set,
                scheme=options.scheme,
                ways_back=ways_back,
            )
        self._guard = options.guard
        self._named_foreign: set[str] = set()
        self.failures = FailureLog()
        self._open_waits = OpenWaits()
        self._stopping = Signal()
        self._upgrades = Upgrades(
            *(broker, self._explainer, self._commands, dial, self._stopping),
            max_message=options.max_body,
            enabled=options.websocket,
            delivery=options.delivery,
            pace=options.pace,
            page=options.page,
            begun=self._turn,
            ended=self._ended,
            refused=self._refused_upgrade,
        )
        self.draining = False
        self.own_answers: dict[str, bytes] = {}
        """JSON documents that the proxy itself answers with, by target."""

    def serving_for(self, host: RoutedHost, hosts: HostRoutes) -> Handle:
        """The handler of connections of clients that call this host, one of those of the routes."""
        guard = self._guard.at_route(
            host.host, lambda name: hosts.find(name, host.port) is not None
        )
        return partial(self.__call__, host=host, guard=guard)

    async def __call__(
        self,
        raw: ClientRequest,
        host: RoutedHost | None = None,
        guard: ForeignGuard | None = None,
    ) -> WireResponse:
        """The answer to a request. `host` is the host that was called by name, `guard` the guard there."""
        exchange = Exchange(raw, self._new_id(), self._now(), self._clock(), host=host)
        self._in_flight += 1
        try:
            (guard or self._guard).check(raw.target, raw.fields)
            if (own := self.own_answers.get(raw.target)) is not None:
                head = ResponseHead(HTTPStatus.OK, "OK", ((b"Content-Type", b"application/json"),))
                return self._write(exchange, Response(head, own), "replayed", None)
            return await self._serve(exchange)
        except Foreign as error:
            return self._turn_away(exchange, error)
        except TapewayError as error:
            return self._refuse(exchange, error)
        finally:
            self._in_flight -= 1
            self._request_ended.set()

    @property
    def in_flight(self) -> int:
        """Requests in flight."""
        return self._in_flight + (self.hits.counting if self.hits else 0)

    async def wait_until_idle(self) -> None:
        """Wait until no request is in flight."""
        while self.in_flight:
            self._request_ended.clear()
            await self._request_ended.wait()

    def refused(self, error: RequestError, client_address: str) -> str:
        """Enter invalid input in the journal. Returns the id of the entry."""
        id = self._new_id()
        served = ServedRequest(
            id=id,
            at=self._now(),
            cassette=self._broker.active,
            route="",
            method="",
            texts=ClientTexts(""),
            answer=ServedAnswer("error", error.status),
            duration_ms=0.0,
            key=None,
            message=f"{error.code}: {error.message}",
            client_address=client_address,
        )
        self._journal.add(served)
        return id

    def drain(self) -> None:
        """Close each connection after its next answer."""
        self.draining = True
        self._stopping.set()
        if self.hits is not None:
            self.hits.open = False

    def break_off(self) -> None:
        """Abort requests that wait for a body or relay an answer; an error response where none began."""
        self._open_waits.break_off()

    # Request.

    async def _serve(self, exchange: Exchange) -> WireResponse:
        broker, raw = self._broker, exchange.raw
        address = self._address(exchange)
        if not LOGIN_FIELDS.isdisjoint(raw.fields.first) and logs_in(raw.raw_headers):
            raw.connection.login.begin()
        await broker.confirm()
        if asks_for_websocket(raw.fields):
            return await self._upgrades.serve(exchange, address)
        exchange.cassette, mode, exchange.take = broker.in_force(address.cassette, address.slot)
        take = broker.arrival_take(exchange.cassette, mode, exchange.take)
        body: bytes | BodyFile | None = buffered_body(raw, self._options.max_body)
        if body is None:
            body = await self._read(raw)
        request = Request(
            address.route.name,
            raw.own_method,
            address.target,
            raw.raw_headers,
            body if isinstance(body, bytes) else b"",
            address.route.url or "",
            None if isinstance(body, bytes) else body,
            edition=EDITION,
            login=raw.connection.login,
            read=raw.fields,
        )
        exchange.request = request
        if address.slot is not None and exchange.take is not None:
            sent = SentThroughSlot(address.slot, exchange.take, exchange.id, request)
            broker.journal.sent.add(sent)
        if raw.uncounted is not None:
            raise raw.uncounted
        wanted = faults_of(broker.source.control, address.slot, exchange.cassette, request)
        if wanted.faults:
            incoming = Incoming(request, address.guessed, mode, take=take, keyed=raw.keyed)
            if (faulted := await self._faulted(exchange, incoming, wanted)) is not None:
                return faulted
        keyed = raw.keyed
        if keyed is None and (hits := self._hits_for(exchange, request)) is not None:
            replay = hits.replay(
                *(request, address, exchange.cassette, mode),
                started=exchange.started,
                client_address=raw.connection.client_address,
                entry=(exchange.id, exchange.at),
            )
            if isinstance(replay, bytes):
                return WireResponse((replay,), keep_alive=True)
            keyed = replay
        incoming = Incoming(request, address.guessed, mode, take=take, keyed=keyed)
        try:
            plan = await broker.decide(exchange.cassette, incoming)
        except NoRoute:
            # A recording of any service may answer before.
            self._check_base_url(raw, address, fault_without_route(address))
            raise
        exchange.key, exchange.shown = plan.key, plan.target
        if isinstance(plan, Replay):
            exchange.note, exchange.base = plan.note, plan.base
            return await self._replay(exchange, plan)
        if isinstance(plan, Miss):
            if is_preflight(raw.method, raw.raw_headers):
                return self._permit(exchange)
            explained = await self._explainer.explain(plan)
            await broker.hooks.missed(explained.request, explained.explanation.nearest)
            return self._miss(exchange, self._commands.told(explained, address.slot))
        exchange.note = plan.note
        if self._loops.leads_elsewhere(plan.request):
            return await self._ask(exchange, plan)
        with self._loops.passing(plan.request, interim_sender(raw)) as exchange.passage:
            joins = plan.may_be_joined and plan.policy.records
            async with self._open_waits.wait():
                await self._loops.search(exchange.passage, joins=joins)
            return await self._ask(exchange, plan)

    def _turn(self, opened: Exchange) -> Exchange:
        """The exchange of a turn on a WebSocket connection."""
        turn = Exchange(opened.raw, self._new_id(), self._now(), self._clock())
        turn.method, turn.cassette, turn.address = WEBSOCKET, opened.cassette, opened.address
        return turn

    async def _refused_upgrade(
        self, exchange: Exchange, response: Response, base: str
    ) -> WireResponse:
        """Pass on what an upstream answered in place of a WebSocket connection."""
        response = await self._back.lead(exchange, response, base, NO_RULES)
        self._ended(exchange, "live", response.status, size=response.size, response=response)
        return self._write(exchange, response, "live", None)

    def _address(self, exchange: Exchange) -> RequestAddress:
        raw, host = exchange.raw, exchange.host
        target = raw.target
        if host is not None:
            target = own_path(target, "https", (host.host, f"{host.host}:{host.port}"))
            exchange.address = self._addresses.find_at(
                host, raw.method, target, raw.version, raw.fields
            )
            return exchange.address
        if not target.startswith("/"):
            scheme = self._options.scheme
            target = own_path(target, scheme, authorities(raw, scheme))
        address = self._addresses.find(raw.method, target, raw.version, raw.fields)
        exchange.address = address
        self._check_base_url(raw, address, address.base_url_fault)
        return address

    def _check_base_url(
        self, raw: ClientRequest, address: RequestAddress, fault: BaseUrlFault | None
    ) -> None:
        """Raise RequestError for a mistake in the client's base URL; names nothing of the request."""
        if fault is not None:
            root = f"{origin(raw, self._options.scheme)}{address.prefix}"
            message = fault.message(address.route.name, root)
            raise RequestError(message, status=HTTPStatus.NOT_FOUND, code="base_url")

    def _hits_for(self, exchange: Exchange, request: Request) -> Hits | None:
        """What may answer a request at once; None for one whose answer takes more."""
        raw = exchange.raw
        is_usual = (
            raw.version == (1, 1)
            and exchange.host is None
            and raw.method != "HEAD"
            and not is_preflight(raw.method, raw.raw_headers)
            and not raw.connection.login.id
        )
        return self.hits if is_usual and self._keeps_alive(raw) and not is_large(request) else None

    async def _read(self, raw: ClientRequest) -> bytes | BodyFile:
        options = self._options
        async with self._open_waits.wait():
            return await read_body(
                raw,
                max_body=options.max_body,
                idle_s=options.body_idle_s,
                scratch=self._broker.scratch,
            )

    # Replay.

    async def _replay(self, exchange: Exchange, replay: Replay) -> WireResponse:
        return await self._play(exchange, await self._as_sent(exchange, replay))

    async def _as_sent(self, exchange: Exchange, replay: Replay) -> Interaction:
        """The recording with the answer as this client gets it."""
        interaction = await self._as_given(exchange, replay)
        response, rules = interaction.response, replay.cassette.rules
        if self._options.rewrite and has_expiry(response.headers):
            first_day = replay.cassette.head.created_at
            head = with_later_expiry(response.head, first_day, self._now())
            response = replace(response, head=head)
            interaction = replace(interaction, response=response)
        if response.file is not None:
            check_body_file(response.file)
        led = await self._back.lead(exchange, response, interaction.request.base, rules)
        return interaction if led is response else replace(interaction, response=led)

    async def _play(self, exchange: Exchange, interaction: Interaction) -> WireResponse:
        response, index = interaction.response, interaction.index
        if response.verdict == "open" or response.after_requests:
            return await self._play_open(exchange, interaction)
        if self._options.pace != AT_ONCE or interaction.failure is not None:
            return await self._replay_timed(exchange, interaction)
        self._ended(exchange, "replayed", response.status, index, interaction=interaction)
        response = replace(response, head=scale_retry_after(response.head, AT_ONCE))
        return self._write(exchange, response, "replayed", index)

    async def _as_given(self, exchange: Exchange, replay: Replay) -> Interaction:
        """The recording for this client: a template filled, and changed by a hook.

        Raises HookFailed, TemplateFailed.
        """
        interaction, broker = replay.interaction, self._broker
        request = exchange.request
        if interaction.response.template and request is not None:
            filling = Filling(request, self._now(), lambda: str(uuid4()))
            try:
                response = filled(interaction.response, filling)
            except TemplateFault as exc:
                raise TemplateFailed(
                    f"cassette '{replay.base or replay.cassette.name}' #{interaction.index}: its answer "
                    f"is a template, but {exc}"
                ) from exc
            interaction = replace(interaction, response=response)
        if broker.hooks.before_replay is not None and request is not None:
            shown = broker.redaction.redact(replay.cassette.head.run_id, request)
            interaction = await broker.hooks.replayed(shown, interaction)
        return _for_origin(interaction, exchange.raw.raw_headers)

    async def _faulted(
        self, exchange: Exchange, incoming: Incoming, wanted: FaultsOfRequest
    ) -> WireResponse | None:
        """The answer with one of these faults; None where none of them happens to it."""
        broker = self._broker
        replay = await broker.would_replay(exchange.cassette, incoming)
        if replay is None or not (wanted := still_fitting(wanted, replay, incoming.take)).faults:
            return None
        interaction = await self._as_sent(exchange, replay)
        if interaction.failure is not None:
            return None
        sent = await with_body_in_memory(interaction.response)
        event_of = partial(error_event, incoming.request)
        at = partial(lay, head=sent.head, body=sent.body, error_event=event_of)
        laid = await chosen(broker.source, incoming, replay, wanted, at)
        if laid is None:
            return None
        fault, index = laid.fault, interaction.index
        exchange.lay(fault, replay)
        if fault.do in STATUSES:
            response = error_answer(incoming.request, int(fault.do), fault.retry_after)
            self._ended(exchange, "replayed", response.status, index)
            return self._write(exchange, response, "replayed", index)
        if sent.after_requests:
            # Its events wait for as many requests as when it was recorded, with its own.
            requests = broker.requests(exchange.cassette, incoming.request.route, exchange.take)
            requests.add(incoming.request.method, incoming.request.body)
        # Now: its client may come again before it has ended.
        self._ended(exchange, "replayed", sent.status, index, size=laid.at or 0)
        return await self._play_faulted(exchange, interaction, laid)

    async def _play_faulted(
        self, exchange: Exchange, interaction: Interaction, laid: LaidFault
    ) -> WireResponse:
        raw, outgoing = exchange.raw, None
        playback = self._playback(exchange, interaction)
        asked, index = exchange.cassette, interaction.index
        told = outcome_headers("replayed", asked, index, exchange.base, laid.fault)
        try:
            async with self._open_waits.wait():
                if laid.at is None:
                    await pause(raw, laid.wait_s)
                if laid.at is not None or laid.then == "on":
                    await playback.until(playback.head_s)
                    head = laid.head(playback.head, interaction.response.size)
                    outgoing = FaultyOutgoing(raw, head, told, laid, draining=self.draining)
                    with suppress(FaultEnds):
                        await playback.play(outgoing)
        except (ConnectionError, TapewayError):
            return abort(raw)
        if laid.then == "hang":
            await until_left(raw, self._stopping, laid.fault.seconds)
        if laid.then in ("reset", "hang"):
            return abort(raw, reset=True)
        return WireResponse((), keep_alive=False) if outgoing is None else outgoing.end()

    def _playback(self, exchange: Exchange, interaction: Interaction) -> Playback:
        """Plays a recording as its own times and the requests beside it say."""
        raw, response, broker = exchange.raw, interaction.response, self._broker
        schedule = Schedule(response, interaction.latency_ms, self._options.pace)
        if response.verdict != "open" and not response.after_requests:
            return Playback(raw, interaction, schedule)
        route = exchange.address.route.name if exchange.address else ""
        return OpenPlayback(
            *(raw, interaction, schedule),
            *(broker.requests(exchange.cassette, route, exchange.take), self._stopping),
            alone=broker.store.shared is None,
        )

    async def _play_open(self, exchange: Exchange, interaction: Interaction) -> WireResponse:
        """Replay a stream whose events wait for requests, and which may stay open."""
        raw, index = exchange.raw, interaction.index
        playback = self._playback(exchange, interaction)
        headers = outcome_headers("replayed", exchange.cassette, index, exchange.base)
        head = interaction.response.head
        if head.framing == "length":
            head = playback.head
        outgoing = Outgoing(raw, head, headers, draining=self.draining)
        # The wait must not end before somebody listens.
        status = interaction.response.status
        self._ended(exchange, "replayed", status, index, interaction=interaction)
        exchange.outgoing = outgoing
        try:
            async with self._open_waits.wait():
                await playback.play(outgoing)
        except (ConnectionError, TapewayError):
            return abort(raw)
        is_whole = interaction.response.verdict == "open" or not self._stopping.is_set
        return outgoing.end() if is_whole else abort(raw)

    async def _replay_timed(self, exchange: Exchange, interaction: Interaction) -> WireResponse:
        """Replay at the recorded pace, or replay an answer that failed."""
        failure, head = interaction.failure, interaction.response.head
        index, pace = interaction.index, self._options.pace
        playback = self._playback(exchange, interaction)
        headers = outcome_headers("replayed", exchange.cassette, index, exchange.base)
        outgoing: Outgoing | None = None
        try:
            async with self._open_waits.wait():
                if failure is not None and not head.status:
                    await playback.until(playback.end_s)
                    return self._fail(exchange, interaction, failure)
                await playback.until(playback.head_s)
                head = scale_retry_after(playback.head, pace)
                outgoing = Outgoing(exchange.raw, head, headers, draining=self.draining)
                exchange.outgoing = outgoing
                await playback.play(outgoing)
        except ConnectionError:
            return self._abort(exchange, ClientLeft(_DISCONNECTED))
        except TapewayError as error:
            if outgoing is None:
                raise
            return self._abort(exchange, error)
        note = failure.message if failure is not None else None
        self._ended(exchange, "replayed", head.status, index, note, interaction=interaction)
        return abort(exchange.raw) if failure else outgoing.end()

    def _fail(self, exchange: Exchange, interaction: Interaction, failure: Failure) -> WireResponse:
        """Replay a failure before any answer: close the connection, or send 504 for a timeout."""
        index = interaction.index
        status = 504 if failure.kind == "timeout" else 502
        self._ended(exchange, "replayed", status, index, failure.message, interaction=interaction)
        if failure.kind != "timeout":
            return abort(exchange.raw)
        error = UpstreamError(failure.message, status=status, code="upstream_timeout")
        return self._write(exchange, self._error_response(exchange, error), "replayed", index)

    # Live answer.

    async def _ask(self, exchange: Exchange, live_call: LiveCall) -> WireResponse:
        exchange.live_call = live_call
        if not live_call.policy.records:
            return await self._relay(exchange, live_call)
        if self._options.delivery == "stream":
            return await self._follow(exchange, live_call, ResponseReader())
        if may_be_json_rpc(live_call.request) or live_call.request.method == "GET":
            return await self._follow(exchange, live_call, ResponseReader(held=True))
        return await self._answer(exchange, live_call, await self._recorder.perform(live_call))

    async def _answer(
        self, exchange: Exchange, live_call: LiveCall, answer: Answer
    ) -> WireResponse:
        response, base, rules = answer.response, live_call.request.base, live_call.cassette.rules
        led = await self._back.lead(exchange, response, base, rules)
        self._ended(
            *(exchange, answer.outcome, response.status, answer.index, answer.note),
            size=response.size,
            verdict=response.verdict,
            redacted=answer.redacted,
            response=response,
        )
        return self._write(exchange, led, answer.outcome, answer.index)

    async def _relay(self, exchange: Exchange, live_call: LiveCall) -> WireResponse:
        """Pass on an answer without recording."""
        relayed: RelayedBody | None = None
        try:
            async with self._open_waits.wait(), self._recorder.relay(live_call) as live:
                head = live.head
                relayed = RelayedBody(head)
                headers = outcome_headers("live", exchange.cassette, None)
                outgoing = self._outgoing(exchange, head, headers, live_call)
                await outgoing.begin()
                method = live_call.request.method
                stays = may_stay_open(method, head) or may_turn_out_open(method, head)
                async with while_connected(exchange.raw) if stays else nullcontext():
                    async for piece in self._recorder.pieces(live_call, live):
                        relayed.add(piece, live.elapsed_ms())
                        await outgoing.send(piece)
                await outgoing.complete()
        except TapewayError as error:
            if exchange.outgoing is None or not exchange.outgoing.begun:
                raise
            return self._abort(exchange, error, relayed)
        except ConnectionError:
            return self._abort(exchange, ClientLeft(_DISCONNECTED), relayed)
        self._ended(exchange, "live", head.status, response=relayed.response("complete"))
        return outgoing.end()

    async def _follow(
        self, exchange: Exchange, live_call: LiveCall, reader: ResponseReader
    ) -> WireResponse:
        """Pass on an answer as it arrives. The end waits until the recording is durable."""
        if live_call.request.method != "GET":
            return await self._follow_to_end(exchange, live_call, reader)
        with exchange.raw.connection.left.listening(reader.leave):
            return await self._follow_to_end(exchange, live_call, reader)

    async def _follow_to_end(
        self, exchange: Exchange, live_call: LiveCall, reader: ResponseReader
    ) -> WireResponse:
        pending = self._recorder.follow(live_call, reader)
        if (head := await reader.head()) is None:
            return await self._answer(exchange, live_call, await pending.answer())
        headers = outcome_headers(reader.outcome, exchange.cassette, reader.index)
        outgoing = self._outgoing(exchange, head, headers, live_call)
        disconnected = None
        try:
            try:
                async with self._open_waits.wait():
                    await outgoing.begin()
                    async for pieces in reader.pieces():
                        for piece in pieces:
                            await outgoing.send(piece)
            except ConnectionError:
                disconnected = _DISCONNECTED
                reader.leave()
            answer = await pending.answer()
            if disconnected is None:
                await outgoing.complete()
        except ConnectionError:
            disconnected = _DISCONNECTED
        except TapewayError as error:
            if not outgoing.begun:
                raise
            return self._abort(exchange, error)
        self._ended(
            *(exchange, answer.outcome, head.status, answer.index, disconnected or answer.note),
            verdict=answer.response.verdict,
            redacted=answer.redacted,
            response=answer.response,
        )
        return abort(exchange.raw) if disconnected else outgoing.end()

    # Misses and errors.

    def _permit(self, exchange: Exchange) -> WireResponse:
        """Answer a preflight that no recording answers."""
        response = preflight_response(exchange.raw.raw_headers, exchange.id)
        self._ended(exchange, "replayed", response.status, None, _PERMITTED)
        return self._write(exchange, response, "replayed", None)

    def _miss(self, exchange: Exchange, miss: Miss) -> WireResponse:
        admin = self._options.admin
        log_miss(miss, exchange.id, self._options.page)
        response = miss_response(
            miss,
            exchange.raw.raw_headers,
            status=self._options.miss_status,
            request_id=exchange.id,
            admin=admin,
            page=self._options.page,
            ollama=self._is_ollama(exchange.address),
        )
        self._ended(
            *(exchange, "miss", response.status, None, miss.message),
            miss=miss,
            size=response.size,
            response=response,
        )
        return self._write(exchange, response, "miss", None)

    def _refuse(self, exchange: Exchange, error: TapewayError) -> WireResponse:
        raw = exchange.raw
        if not exchange.cassette:
            exchange.cassette = self._named_cassette(exchange)
        response = self._error_response(exchange, error)
        permitted = isinstance(error, RequestError | UpstreamError)
        if permitted and is_preflight(raw.method, raw.raw_headers):
            # The browser then sends the real request, and the page reads the error.
            response = preflight_response(raw.raw_headers, exchange.id)
        self._ended(
            *(exchange, "error", response.status),
            error=error,
            size=response.size,
            response=response,
        )
        return self._write(exchange, response, "error", None)

    def _turn_away(self, exchange: Exchange, error: Foreign) -> WireResponse:
        """Refuse a request that this listener does not serve; nothing is said of what it serves."""
        raw = exchange.raw
        self._warn_of(error)
        exchange.cassette = self._broker.active
        try:
            ollama = self._is_ollama(self._address(exchange))
        except TapewayError:
            ollama = False
        # Neither cassette nor route were asked.
        exchange.address = None
        response = foreign_response(error, request_id=exchange.id, ollama=ollama)
        self._ended(exchange, "error", response.status, error=error, size=response.size)
        keep_alive = self._keeps_alive(raw) and not asks_for_websocket(raw.fields)
        pieces = serialise(
            *(response, ERROR_OUTCOME),
            method=raw.method,
            version=raw.version,
            keep_alive=keep_alive,
        )
        return WireResponse(pieces, keep_alive=keep_alive)

    def _warn_of(self, error: Foreign) -> None:
        """Log each page and each name that is refused, once."""
        if error.asker in self._named_foreign:
            return
        if len(self._named_foreign) >= _MOST_FOREIGN:
            self._named_foreign.clear()
        self._named_foreign.add(error.asker)
        served = "" if error.option is None else f"; {error.option} serves it"
        log.warning("%s was refused (%d %s)%s", error.asker, error.status, error.code, served)

    def _named_cassette(self, exchange: Exchange) -> str:
        """The cassette a refused request would have gone to."""
        address = exchange.address
        try:
            named = self._broker.in_force(address.cassette, address.slot) if address else None
        except NoSlot:
            named = None
        if named is None:
            return self._broker.active
        exchange.take = named[2]
        return named[0]

    def _abort(
        self, exchange: Exchange, error: TapewayError, relayed: RelayedBody | None = None
    ) -> WireResponse:
        """Break off an answer that has begun."""
        response = None if relayed is None else relayed.response("truncated")
        self._ended(exchange, "error", error.status, error=error, response=response)
        return abort(exchange.raw)

    def _error_response(self, exchange: Exchange, error: TapewayError) -> Response:
        tapeway: dict[str, Json] = {
            "cassette": exchange.cassette,
            "method": exchange.raw.method,
            "path": self._path(exchange),
        }
        ollama = self._is_ollama(exchange.address)
        return error_response(
            *(error, exchange.raw.raw_headers),
            request_id=exchange.id,
            tapeway=tapeway,
            ollama=ollama,
        )

    def _is_ollama(self, address: RequestAddress | None) -> bool:
        if address is None or not address.target.startswith("/api/"):
            return False
        name = address.route.name
        return name == "ollama" or (
            name == DEFAULT_ROUTE and self._owner(address.target, ()) == "ollama"
        )

    # Shared by all outcomes.

    def _ended(
        self,
        exchange: Exchange,
        outcome: Outcome,
        status: int,
        index: int | None = None,
        message: str | None = None,
        *,
        miss: Miss | None = None,
        interaction: Interaction | None = None,
        verdict: Verdict = "",
        redacted: Sequence[str] = (),
        size: int = 0,
        error: TapewayError | None = None,
        response: Response | None = None,
        tail: UnreachedTail | None = None,
    ) -> None:
        """Report how a request ended, with the size of a whole body; counts and reports follow.

        `response` is the client's answer, as far as known.
        """
        address = exchange.address
        if error is not None:
            message = f"{error.code}: {error.message}"
        if exchange.note is not None:
            message = f"{message}; {exchange.note}" if message else exchange.note
        if exchange.elsewhere:
            self._back.warn_of(exchange, partial(self._path, exchange))
        if error is not None and error.is_failure:
            self._log_failure(exchange, error)
        explanation = NO_EXPLANATION if miss is None else miss.explanation
        tokens: tuple[int, ...] = ()
        model = NO_MODEL
        if interaction is not None and exchange.fault is None:
            tokens, model = charged_tokens(interaction)
            verdict, size = interaction.response.verdict, interaction.response.size
        kept = None
        if outcome not in ("replayed", "recorded"):
            call = miss or exchange.live_call or self._request_as_read(exchange)
            kept = self._keeper.keep(call, response)
        answer = ServedAnswer(
            outcome=outcome,
            status=status,
            interaction=index,
            tokens=tokens,
            model=model,
            unmarked=verdict == "unmarked",
            sent=exchange.outgoing.sent if exchange.outgoing else size,
            redacted=redacted,
        )
        self._journal.add(
            ServedRequest(
                id=exchange.id,
                at=exchange.at,
                cassette=exchange.cassette,
                route=address.route.name if address else "",
                method=exchange.method or exchange.raw.method,
                texts=self._texts(exchange),
                answer=answer,
                duration_ms=(self._clock() - exchange.started) * 1000,
                key=exchange.key,
                message=message,
                nearest=explanation.nearest,
                suggestion=explanation.suggestion,
                attempt=attempt_number(exchange.raw.fields.first),
                slot=address.slot if address else None,
                take=exchange.take,
                store_failed=isinstance(error, StoreError),
                kept=kept,
                elsewhere=tuple(exchange.elsewhere),
                client_address=exchange.raw.connection.client_address,
                tail=tail,
                record_command=None if miss is None else miss.record_command,
                base=exchange.base,
                fault=exchange.fault,
                asked=self._asked(exchange),
            )
        )

    def _asked(self, exchange: Exchange) -> bytes:
        """The body of a request where it may tell what a client does after a fault."""
        journal = self._broker.journal
        journal.follows_faults = journal.follows_faults or exchange.fault is not None
        followed = exchange.request if journal.follows_faults else None
        return b"" if followed is None else followed.body

    def _log_failure(self, exchange: Exchange, error: TapewayError) -> None:
        address, texts = exchange.address, self._texts(exchange)
        shown = texts if isinstance(texts, ClientTexts) else texts()
        call = FailedCall(
            cassette=exchange.cassette,
            route=address.route.name if address else "",
            method=exchange.method or exchange.raw.method,
            path=shown.path,
            status=error.status,
            code=error.code,
            message=error.message,
            id=exchange.id,
            request_id=shown.request_id or exchange.id,
        )
        self.failures.add(call)

    def _request_as_read(self, exchange: Exchange) -> Request:
        """The request. Of a request refused early, only the parts that were read."""
        raw, address = exchange.raw, exchange.address
        route, method = address.route.name if address else "", exchange.method or raw.method
        # A target may be an absolute URL with a password.
        return exchange.request or Request(
            route, method, self._path(exchange), raw.raw_headers, read=raw.fields
        )

    def _texts(self, exchange: Exchange) -> ClientTexts | Callable[[], ClientTexts]:
        """The client's texts, redacted for the journal, or a function that makes them."""
        traced = self._broker.redaction.traced(self._salt, exchange.raw.fields)
        shown = exchange.shown or self._path(exchange)
        if isinstance(shown, str):
            return ClientTexts(shown, *traced)
        return lambda: ClientTexts(shown(), *traced)

    def _path(self, exchange: Exchange) -> str:
        """The redacted target, also of a request on which the broker did not decide."""
        if exchange.shown is None:
            raw = exchange.raw
            target = exchange.address.target if exchange.address else raw.target
            if not target.startswith("/"):
                # An absolute URL or an authority, which may have a password before the host.
                target = target.rpartition("@")[2]
            route = exchange.address.route.name if exchange.address else ""
            request = Request(route, raw.method, target, raw.raw_headers, read=raw.fields)
            exchange.shown = self._broker.redaction.target(self._salt, request)
        return exchange.shown if isinstance(exchange.shown, str) else exchange.shown()

    def _write(
        self,
        exchange: Exchange,
        response: Response,
        outcome: Outcome,
        index: int | None,
    ) -> WireResponse:
        """A whole answer."""
        raw = exchange.raw
        # A client that expected a WebSocket would not send HTTP next.
        keep_alive = self._keeps_alive(raw) and not asks_for_websocket(raw.fields)
        permission = private_network_permission(raw.fields, response.head)
        told = outcome_headers(outcome, exchange.cassette, index, exchange.base, exchange.fault)
        headers = (*told, *permission)
        if response.file is not None:
            broken = partial(self._log_failure, exchange)
            return LargeAnswer(raw, response, response.file, headers, broken, keep_alive=keep_alive)
        pieces = serialise(
            response, headers, method=raw.method, version=raw.version, keep_alive=keep_alive
        )
        return WireResponse(pieces, keep_alive=keep_alive)

    def _outgoing(
        self, exchange: Exchange, head: ResponseHead, headers: Headers, live_call: LiveCall
    ) -> Outgoing:
        """Writes a live response as it arrives."""
        if exchange.passage is not None:
            exchange.passage.end()
        permission = private_network_permission(exchange.raw.fields, head)
        headers = (*headers, *permission)
        exchange.outgoing = outgoing = self._back.outgoing(
            exchange, head, headers, live_call, draining=self.draining
        )
        return outgoing

    def _keeps_alive(self, raw: ClientRequest) -> bool:
        # The unread rest of a refused body would be parsed as the next request.
        return bool(raw.keep_alive) and not self.draining and raw.content.is_eof()


def _for_origin(interaction: Interaction, asked: Headers) -> Interaction:
    """The recording, with the request's origin in place of the origin that the service echoed."""
    response = interaction.response
    if not response.head.value(b"access-control-allow-origin"):
        return interaction
    head = for_origin(response.head, interaction.request.headers, asked)
    if head is response.head:
        return interaction
    return replace(interaction, response=replace(response, head=head))
