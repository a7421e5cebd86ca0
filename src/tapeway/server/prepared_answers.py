"""The bytes of recorded answers, prepared for connections of HTTP/1.1 that stay open, and remembered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple
from weakref import ref

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.recorded_bodies import SelectingHead, selecting_head
from tapeway.core.http.cors import echoes_origin
from tapeway.core.http.routing import RequestAddress
from tapeway.core.matching.json_paths import Path
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.core.model.messages import Headers, Request, Response
from tapeway.core.model.request_fields import RequestFields
from tapeway.core.model.values import value_class
from tapeway.core.streams.pacing import AT_ONCE, scale_retry_after
from tapeway.core.streams.renamed_calls import names_in
from tapeway.core.way_back.addresses import WaysBack
from tapeway.core.way_back.cookies import has_expiry, with_later_expiry
from tapeway.core.way_back.response import lead_response, names_any_address
from tapeway.engine.journal import ServedAnswer, charged_tokens
from tapeway.server.answers import outcome_headers, serialise_parts
from tapeway.server.way_back import members_with_addresses

LARGEST_PREPARED = 64 * 1024
"""Larger answers take the ordinary way, which waits for slow clients."""

MOST_PREPARED = 128 * 1024 * 1024
"""Bytes of prepared answers to remember; beyond that, all are forgotten."""

_DATED_FOR_S = 1.0
"""How long a cookie's time of expiry is right: it is written in seconds."""

_OVERHEAD = 256


class Client(NamedTuple):
    """How a client addresses the proxy: the form in which addresses lead back."""

    host: bytes | None
    prefix: str
    route: str


@value_class
class Target:
    """Where a request goes, and the client's name for the place."""

    method: str
    address: RequestAddress
    host: bytes | None
    fields: RequestFields
    """All header fields that count in the match key, and maybe more."""
    head: SelectingHead | None
    """The part of the framing that counts in the match key, body aside."""

    @property
    def client(self) -> Client:
        return Client(self.host, self.address.prefix, self.address.route.name)

    def request(self, body: bytes) -> Request:
        """The parts of the request that decide the match key."""
        address = self.address
        fields = self.fields
        return Request(
            address.route.name,
            self.method,
            address.target,
            fields.headers,
            body,
            read=fields,
        )


def target_of(method: str, address: RequestAddress, host: bytes | None, headers: Headers) -> Target:
    """The target of requests with these fields."""
    asked = Request(address.route.name, method, address.target, headers)
    return Target(method, address, host, asked.fields, selecting_head(asked))


@dataclass(slots=True)
class PreparedAnswer:
    """The bytes of a recorded answer for an HTTP/1.1 connection that stays open.

    `body` is the recorded body, uncopied, if no framing is needed. `head` is None if
    the answer depends on the request or is too large.
    """

    interaction: Interaction
    head: bytes | None
    body: bytes
    answer: ServedAnswer
    """What the journal says of it."""
    asked: int
    """The number of bytes of the request's body."""
    client: "Client | None"
    """For whom addresses and cookies in it lead back to the proxy; None where it is for all."""
    until: float | None = None
    """When a cookie in it is to be dated anew, in seconds since the epoch."""

    @property
    def wire(self) -> bytes:
        """Head and body. `head` must not be None."""
        return (self.head or b"") + self.body


class PreparedAnswers:
    """The prepared answers of loaded cassettes, by index; they go with their cassette."""

    def __init__(
        self, ways_back: WaysBack | None, now: Callable[[], float], scheme: str = "http"
    ) -> None:
        """Without `ways_back` addresses and cookies stay as the service wrote them."""
        self._ways_back = ways_back
        self._now = now
        self._scheme = scheme
        self._of: dict[int, tuple[ref[CassetteIndex], dict[int, PreparedAnswer]]] = {}
        self.size = 0
        """Bytes that are remembered."""

    def get(
        self, cassette: CassetteIndex, interaction: Interaction, target: "Target"
    ) -> PreparedAnswer | None:
        """The bytes of a recorded answer, None if they must first be prepared for the client."""
        known = self._of.get(id(cassette))
        if known is not None and known[0]() is cassette:
            prepared = known[1].get(interaction.index)
            # An edited recording keeps the index.
            if prepared is not None and prepared.interaction is interaction:
                if prepared.until is not None and prepared.until < self._now():
                    return None
                is_for = prepared.client is None or prepared.client == target.client
                return prepared if is_for else None
        return None

    def prepare(
        self, cassette: CassetteIndex, interaction: Interaction, target: "Target", asked: int
    ) -> PreparedAnswer:
        """Prepare and remember them; `asked` is the size of the request's body.

        Raises StoreError where they cannot be read.
        """
        response: Response | None = interaction.response
        client: Client | None = None
        members = members_with_addresses(cassette.rules)
        if self._ways_back is not None and names_any_address(
            target.method, interaction.response, members
        ):
            response, client = self._led_back(interaction, target, members), target.client
        until: float | None = None
        if self._ways_back is not None and response is not None and has_expiry(response.headers):
            now = self._now()
            head = with_later_expiry(response.head, cassette.head.created_at, now)
            response, until = replace(response, head=head), now + _DATED_FOR_S
        made = prepare(interaction, response, cassette.name, asked, client)
        made.until = until
        if self.size > MOST_PREPARED:
            self._forget_all()
        known = self._of.get(id(cassette))
        if known is None or known[0]() is not cassette:
            number = id(cassette)
            known = self._of[number] = (ref(cassette, partial(self._forget, number)), {})
        if (before := known[1].get(interaction.index)) is not None:
            self.size -= _size(before)
        known[1][interaction.index] = made
        self.size += _size(made)
        return made

    def _led_back(
        self, interaction: Interaction, target: "Target", members: Sequence[Path]
    ) -> Response | None:
        """The response with addresses for this client; None if it must be made each time."""
        host = target.client.host
        if self._ways_back is None or host is None or interaction.response.size > LARGEST_PREPARED:
            return None
        elsewhere: dict[str, None] = {}
        proxy = f"{self._scheme}://{host.decode('latin-1')}"
        way_back = self._ways_back.of(target.address, interaction.request.base, proxy, elsewhere)
        led = lead_response(target.method, interaction.response, members, way_back)
        # The journal has the origins that no route leads to.
        return None if elsewhere else led

    def _forget_all(self) -> None:
        for cassette in [reference() for reference, _ in self._of.values()]:
            if cassette is not None:
                cassette.bodies.forget_asked()
        self._of.clear()
        self.size = 0

    def _forget(self, number: int, gone: ref[CassetteIndex]) -> None:
        known = self._of.get(number)
        if known is not None and known[0] is gone:
            self.size -= sum(map(_size, known[1].values()))
            del self._of[number]


def prepare(
    interaction: Interaction,
    response: Response | None,
    cassette: str,
    asked: int,
    client: "Client | None",
) -> PreparedAnswer:
    """The bytes of a recorded response, without a head if the response takes the ordinary way."""
    recorded = interaction.response
    tokens, model = charged_tokens(interaction)
    size = recorded.size if response is None else response.size
    unmarked, status = recorded.verdict == "unmarked", recorded.head.status
    if (
        response is None
        or response.file is not None
        or response.verdict == "open"
        or response.after_requests
        or recorded.template
        or names_in(interaction.request)
        or (
            response.head.value(b"access-control-allow-origin")
            and echoes_origin(response.head, interaction.request.headers)
        )
        or size > LARGEST_PREPARED
    ):
        head, body = None, b""
    else:
        extra = outcome_headers("replayed", cassette, interaction.index)
        scaled = scale_retry_after(response.head, AT_ONCE)
        if scaled is not response.head:
            response = replace(response, head=scaled)
        head, body = serialise_parts(response, extra)
    answer = ServedAnswer(
        "replayed",
        status,
        interaction.index,
        tokens,
        model,
        unmarked=unmarked,
        sent=size,
    )
    return PreparedAnswer(interaction, head, body, answer, asked, client)


def _size(made: PreparedAnswer) -> int:
    size = _OVERHEAD + len(made.head or b"")
    if isinstance(made.interaction, LazyInteraction):
        # Nothing else keeps its bodies in memory.
        return size + made.asked + len(made.body)
    return size + (len(made.body) if made.body is not made.interaction.response.body else 0)
