"""Responses whose addresses lead the client back through the proxy."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import orjson

from tapeway.body_files import KIB, MIB, with_body_in_memory
from tapeway.core.cassette.plan import LiveCall
from tapeway.core.matching.json_paths import Path
from tapeway.core.matching.rules import Rules
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tapeway.core.way_back.addresses import WayBack, WaysBack
from tapeway.core.way_back.events import EndpointEvents
from tapeway.core.way_back.head import lead_head
from tapeway.core.way_back.response import (
    has_endpoint_events,
    has_json,
    lead_document,
    lead_response,
    names_any_address,
)
from tapeway.engine.journal import MOST_ELSEWHERE
from tapeway.providers.api_call import describe_call
from tapeway.providers.handed_out import HANDED_OUT
from tapeway.server.delivery import Outgoing
from tapeway.server.messages import ClientRequest, Exchange

log = logging.getLogger(__name__)

MOST_LED = 16 * MIB
"""The largest JSON document in which addresses are led back."""
LED_AT_ONCE = 256 * KIB
"""Larger bodies are searched in a thread: no client waits."""


class ResponsesBack:
    """Leads the addresses in the responses of one proxy back."""

    def __init__(self, ways_back: WaysBack | None, scheme: str) -> None:
        """`scheme` is the scheme of the listener. Without `ways_back` every address stays."""
        self._ways_back = ways_back
        self._scheme = scheme
        self._named_elsewhere: set[str] = set()

    async def lead(
        self, exchange: Exchange, response: Response, base: str, rules: Rules
    ) -> Response:
        """A whole response, made at the URL `base`, with its addresses led back."""
        method, members = exchange.raw.method, members_with_addresses(rules)
        # Nearly every response names none.
        if response.file is None and not names_any_address(method, response, members):
            return response
        if (way_back := self._way(exchange, base)) is None:
            return response
        if response.file is None and response.size <= LED_AT_ONCE:
            return lead_response(method, response, members, way_back)
        head = response.head
        is_read = has_json(method, head) or has_endpoint_events(method, head)
        if response.size > MOST_LED or not is_read:
            return replace(response, head=lead_head(head, way_back))
        whole = await with_body_in_memory(response)
        led = await asyncio.to_thread(lead_response, method, whole, members, way_back)
        # An unchanged body is sent from the file.
        return replace(response, head=led.head) if led.body is whole.body else led

    def outgoing(
        self,
        exchange: Exchange,
        head: ResponseHead,
        headers: Headers,
        live_call: LiveCall,
        *,
        draining: bool,
    ) -> Outgoing:
        """Writes a live response as it arrives, with addresses that lead back."""
        raw = exchange.raw
        if (way_back := self._way(exchange, live_call.request.base)) is None:
            return Outgoing(raw, head, headers, draining=draining)
        led, rules = lead_head(head, way_back), live_call.cassette.rules
        if has_endpoint_events(raw.method, head):
            return LedBackEvents(raw, led, headers, way_back, draining=draining)
        if has_json(raw.method, head) and (
            rules.addresses or not _calls_a_model(live_call.request)
        ):
            lead = partial(lead_document, members=members_with_addresses(rules), way_back=way_back)
            return HeldDocument(raw, led, headers, lead, draining=draining)
        return Outgoing(raw, led, headers, draining=draining)

    def warn_of(self, exchange: Exchange, path: Callable[[], str]) -> None:
        """Log each origin in a response that no route leads to, once; `path` tells the redacted target."""
        for origin in exchange.elsewhere:
            if origin not in self._named_elsewhere and len(self._named_elsewhere) < MOST_ELSEWHERE:
                self._named_elsewhere.add(origin)
                log.warning(
                    "the response to %s %s hands out an address at %s, which no route leads to: calls "
                    "to it will go around tapeway; --route NAME=%s leads them through it",
                    *(exchange.raw.method, path(), origin, origin),
                )

    def _way(self, exchange: Exchange, base: str) -> WayBack | None:
        """How addresses in a response from this URL lead back to the proxy."""
        host = exchange.raw.fields.value(b"host")
        if self._ways_back is None or exchange.address is None or not host:
            return None
        if exchange.host is not None:
            # The client's own configuration leads addresses of a service here.
            return None
        proxy = f"{self._scheme}://{host.decode('latin-1')}"
        return self._ways_back.of(exchange.address, base, proxy, exchange.elsewhere)


class LedBackEvents(Outgoing):
    """A stream in which an MCP server says where to post messages to."""

    def __init__(
        self,
        raw: ClientRequest,
        head: ResponseHead,
        extra: Headers,
        way_back: WayBack,
        *,
        draining: bool,
    ) -> None:
        # The address grows: the announced length is wrong for the changed stream.
        super().__init__(raw, replace(head, length=None), extra, draining=draining)
        self._events = EndpointEvents(way_back)

    async def send(self, piece: bytes) -> None:
        if ready := self._events.feed(piece):
            await super().send(ready)

    async def complete(self) -> None:
        if rest := self._events.finish():
            await super().send(rest)


class HeldDocument(Outgoing):
    """Holds a JSON document until the document is whole, because addresses must be replaced.

    A too large document is passed on as it comes. The rest after a document is passed on too: some
    services send document after document while the client stays.
    """

    def __init__(
        self,
        raw: ClientRequest,
        head: ResponseHead,
        extra: Headers,
        lead: Callable[[ResponseHead, bytes], tuple[ResponseHead, bytes]],
        *,
        draining: bool,
    ) -> None:
        super().__init__(raw, head, extra, draining=draining)
        self._head = head
        self._extra = extra
        self._lead = lead
        self._held: list[bytes] = []
        self._size = self._read = 0

    async def begin(self) -> None:
        """Nothing is sent yet: the length in the head may change."""

    async def send(self, piece: bytes) -> None:
        if self.begun:
            await super().send(piece)
            return
        self._held.append(piece)
        self._size += len(piece)
        if self._size > MOST_LED:
            await self._release()
        elif self._is_whole(piece):
            await self.complete()

    def _is_whole(self, last: bytes) -> bool:
        """Whether the held bytes are a whole document, or whole lines of documents.

        A length announces more.
        """
        if self._head.length is not None or not last.rstrip().endswith((b"}", b"]")):
            return False
        # Each byte is read twice at most, however many pieces a document has.
        if self._size < 2 * self._read:
            return False
        self._read = self._size
        held = b"".join(self._held)
        return _is_document(held) or (
            last.endswith(b"\n") and all(map(_is_document, held.splitlines()))
        )

    async def complete(self) -> None:
        if self.begun:
            return
        body = b"".join(self._held)
        if self._size > LED_AT_ONCE:
            head, led = await asyncio.to_thread(self._lead, self._head, body)
        else:
            head, led = self._lead(self._head, body)
        if head is not self._head:
            self._held = [led]
            self._frame(head, self._extra)
        await self._release()

    async def _release(self) -> None:
        await super().begin()
        for piece in self._held:
            await super().send(piece)
        self._held.clear()


def _is_document(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def members_with_addresses(rules: Rules) -> tuple[Path, ...]:
    """Where JSON bodies may have addresses to replace."""
    return (*HANDED_OUT, *rules.address_paths)


def _calls_a_model(request: Request) -> bool:
    """Whether a request has a model answer, which hands out no addresses."""
    call = describe_call(request.route, request)
    return call is not None and call.model is not None
