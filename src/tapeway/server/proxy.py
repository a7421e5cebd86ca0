"""The hot path: read a request, let the broker decide, write the answer."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from aiohttp import web

from tapeway.broker import Broker
from tapeway.core import attempts
from tapeway.core.attempts import Attempt
from tapeway.core.headers import find
from tapeway.core.json_text import Json
from tapeway.core.miss import NOTHING, Explanation, Miss
from tapeway.core.model import Headers, Interaction, Request, Response, ResponseHead
from tapeway.core.modes import Outcome
from tapeway.core.plan import Answer, Ask, Incoming, Replay
from tapeway.core.request_line import origin_form, own_path
from tapeway.core.retry_after import AT_ONCE, paced
from tapeway.core.routing import DEFAULT, Address, Owner, relocate, resolve
from tapeway.errors import RequestError, TapewayError
from tapeway.explanation import Explainer
from tapeway.journal import Entry, Journal
from tapeway.providers.forgiveness import forgive
from tapeway.server.ready import ReadyAnswers
from tapeway.server.refusals import of_error, of_miss
from tapeway.server.slips import Slips
from tapeway.server.waits import Waits
from tapeway.server.wire import (
    Delivery,
    WireResponse,
    arrived,
    authorities,
    begin,
    break_off,
    marks,
    origin,
    read_body,
    serialise,
)

_LOCATION = b"location"


@dataclass(frozen=True, slots=True)
class Manners:
    """What the settings say about the proxy listener; seconds and bytes."""

    max_body: int
    body_idle_s: float
    miss_status: int = 424
    rewrite_location: bool = True
    admin: str | None = None


@dataclass(slots=True)
class Visit:
    """One request on its way, filled in as it becomes known, for the journal."""

    raw: web.BaseRequest
    id: str
    at: float
    started: float
    cassette: str
    address: Address | None = None
    path: str | None = None
    key: bytes | None = None

    @property
    def attempt(self) -> Attempt | None:
        number = self.address.attempt if self.address is not None else 0
        return Attempt(self.key, number) if number and self.key is not None else None


class Proxy:
    """The handler of the proxy listener."""

    def __init__(
        self,
        broker: Broker,
        journal: Journal,
        owner: Owner,
        manners: Manners,
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self._broker = broker
        self._journal = journal
        self._owner = owner
        self._manners = manners
        self._clock = clock
        self._now = now
        self._new_id = new_id
        self._salt = new_id()
        self._explainer = Explainer(broker.recogniser)
        self._ready = ReadyAnswers()
        # Clients ask few paths with few sets of fields, so where they lead is remembered.
        self._where = lru_cache(maxsize=512)(self._locate)
        self._visits = 0
        self._left = asyncio.Event()
        self._waits = Waits()
        self._slips = Slips()
        self.draining = False

    async def __call__(self, raw: web.BaseRequest) -> web.StreamResponse:
        visit = Visit(raw, self._new_id(), self._now(), self._clock(), self._broker.active)
        self._visits += 1
        try:
            return await self._serve(visit)
        except TapewayError as error:
            return self._refuse(visit, error)
        finally:
            self._visits -= 1
            self._left.set()

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
    ) -> Address:
        path = origin_form(method, target, version, headers)
        routes = self._broker.routes
        address = forgive(resolve(routes, self._owner, path, headers), routes)
        tried = attempts.number(headers)
        return replace(address, attempt=tried) if tried else address

    async def _serve(self, visit: Visit) -> WireResponse:
        broker, raw = self._broker, visit.raw
        target = raw.raw_path
        if not target.startswith("/"):
            target = own_path(target, authorities(raw))
        visit.address = address = self._where(raw.method, target, raw.version, raw.raw_headers)
        if (slip := address.slip) is not None:
            self._slips.tell(address.route.name, slip, f"{origin(raw)}{address.prefix}")
        visit.cassette = address.cassette or broker.active
        mode = broker.mode_of(visit.cassette)
        body = arrived(raw, self._manners.max_body)
        if body is None:
            async with self._waits.wait():
                body = await read_body(
                    raw, max_body=self._manners.max_body, idle_s=self._manners.body_idle_s
                )
        written = slip.written if slip is not None else None
        incoming = Incoming(_request(raw, address, body), address.guessed, mode, written)
        # An empty cassette is false, and loaded all the same.
        if (cassette := broker.cassette(visit.cassette)) is None:
            cassette = await broker.load(visit.cassette)
        plan = broker.plan(cassette, incoming)
        visit.key, visit.path = plan.key, plan.target
        if isinstance(plan, Replay):
            return self._replay(visit, plan.interaction)
        if isinstance(plan, Miss):
            return self._miss(visit, await self._explainer.explain(cassette, plan))
        if not plan.rules.records:
            return await self._relay(visit, plan)
        return self._answer(visit, plan, await broker.perform(plan))

    def _replay(self, visit: Visit, interaction: Interaction) -> WireResponse:
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
            response = replace(response, head=paced(response.head, AT_ONCE))
            return self._reply(visit, response, "replayed", interaction.request.base, index)
        self._enter(visit, "replayed", response.status, index)
        return WireResponse(pieces, keep_alive=stays)

    def _answer(self, visit: Visit, ask: Ask, answer: Answer) -> WireResponse:
        self._broker.note(answer.outcome, visit.cassette, attempt=visit.attempt)
        return self._reply(visit, answer.response, answer.outcome, ask.request.base, answer.index)

    def _miss(self, visit: Visit, miss: Miss) -> WireResponse:
        self._broker.note("miss", visit.cassette, miss=miss, attempt=visit.attempt)
        journal = self._manners.admin and f"{self._manners.admin}/api/v1/journal?outcome=miss"
        response = of_miss(
            miss,
            status=self._manners.miss_status,
            request_id=visit.id,
            journal=journal,
            ollama=self._is_ollama(visit),
        )
        self._enter(visit, "miss", response.status, None, miss.message, miss.explanation)
        return self._write(visit, response, "miss", None)

    def _refuse(self, visit: Visit, error: TapewayError) -> WireResponse:
        self._broker.note("error", visit.cassette, attempt=visit.attempt)
        tapeway: dict[str, Json] = {
            "cassette": visit.cassette,
            "method": visit.raw.method,
            "path": self._path(visit),
        }
        response = of_error(
            error, request_id=visit.id, tapeway=tapeway, ollama=self._is_ollama(visit)
        )
        self._enter(visit, "error", response.status, None, f"{error.code}: {error.message}")
        return self._write(visit, response, "error", None)

    def _reply(
        self, visit: Visit, response: Response, outcome: Outcome, base: str, index: int | None
    ) -> WireResponse:
        self._enter(visit, outcome, response.status, index)
        head = self._localised(visit, response.head, base)
        if head is not response.head:
            response = replace(response, head=head)
        return self._write(visit, response, outcome, index)

    def _write(
        self, visit: Visit, response: Response, outcome: Outcome, index: int | None
    ) -> WireResponse:
        raw = visit.raw
        stays = self._stays(raw)
        pieces = serialise(
            response,
            marks(outcome, visit.cassette, index),
            method=raw.method,
            version=raw.version,
            keep_alive=stays,
        )
        return WireResponse(pieces, keep_alive=stays)

    def _stays(self, raw: web.BaseRequest) -> bool:
        # A body that was refused unread would be taken for the next request.
        return bool(raw.keep_alive) and not self.draining and raw.content.is_eof()

    async def _relay(self, visit: Visit, ask: Ask) -> WireResponse:
        raw = visit.raw
        delivery: Delivery | None = None
        try:
            async with self._waits.wait(), self._broker.relay(ask) as live:
                head = self._localised(visit, live.head, ask.request.base)
                sized = raw.version >= (1, 1) or head.length is not None
                stays = raw.keep_alive and not self.draining and sized
                delivery = begin(
                    head,
                    marks("live", visit.cassette, None),
                    method=raw.method,
                    version=raw.version,
                    keep_alive=stays,
                )
                self._broker.note("live", visit.cassette, attempt=visit.attempt)
                await raw.writer.write(delivery.head)
                async for piece in live.pieces():
                    await raw.writer.write(delivery.piece(piece))
        except TapewayError as error:
            if delivery is None:
                raise
            return self._cut(visit, error)
        except ConnectionError:
            return self._cut(visit, RequestError("the client left before the answer ended"))
        self._enter(visit, "live", head.status, None)
        return WireResponse((delivery.last,), keep_alive=stays)

    def _cut(self, visit: Visit, error: TapewayError) -> WireResponse:
        """Break the client's connection: a clean end would pass half an answer for a whole one."""
        self._enter(visit, "error", error.status, None, f"{error.code}: {error.message}")
        break_off(visit.raw)
        return WireResponse((), keep_alive=False)

    def _localised(self, visit: Visit, head: ResponseHead, base: str) -> ResponseHead:
        """The head with a Location on the upstream's own origin pointing at the proxy."""
        if not self._manners.rewrite_location or not base or visit.address is None:
            return head
        if find(head.headers, _LOCATION) is None:
            return head
        host = find(visit.raw.raw_headers, b"host")
        if not host:
            return head
        proxy = f"http://{host.decode('latin-1')}{visit.address.prefix}"
        return replace(head, headers=_relocated(head.headers, base, proxy))

    def _enter(
        self,
        visit: Visit,
        outcome: Outcome,
        status: int,
        index: int | None,
        message: str | None = None,
        explanation: Explanation = NOTHING,
    ) -> None:
        address = visit.address
        slip = address.slip if address else None
        self._journal.add(
            Entry(
                id=visit.id,
                at=visit.at,
                cassette=visit.cassette,
                route=address.route.name if address else "",
                method=visit.raw.method,
                path=self._path(visit),
                outcome=outcome,
                status=status,
                interaction=index,
                duration_ms=(self._clock() - visit.started) * 1000,
                key=visit.key,
                message=slip.fault if message is None and slip is not None else message,
                nearest=explanation.nearest,
                suggestion=explanation.suggestion,
                attempt=(address.attempt or None) if address else None,
            )
        )

    def _path(self, visit: Visit) -> str:
        """The target as people may see it, with every credential taken out."""
        if visit.path is None:
            target = visit.address.target if visit.address else visit.raw.raw_path
            if not target.startswith("/"):
                # An address, where a password may stand before the host.
                target = target.rpartition("@")[2]
            request = Request("", visit.raw.method, target, visit.raw.raw_headers)
            redactor = self._broker.recogniser.redactor(self._salt, request)
            visit.path = redactor.target(target)
        return visit.path

    def _is_ollama(self, visit: Visit) -> bool:
        if visit.address is None or not visit.address.target.startswith("/api/"):
            return False
        name = visit.address.route.name
        return name == "ollama" or (
            name == DEFAULT and self._owner(visit.address.target, ()) == "ollama"
        )


def _request(raw: web.BaseRequest, address: Address, body: bytes) -> Request:
    return Request(
        route=address.route.name,
        method=raw.method,
        target=address.target,
        headers=raw.raw_headers,
        body=body,
        base=address.route.url or "",
    )


def _relocated(headers: Headers, base: str, proxy: str) -> Headers:
    return tuple(
        (name, relocate(value.decode("latin-1"), base, proxy).encode("latin-1"))
        if name.lower() == _LOCATION
        else (name, value)
        for name, value in headers
    )
