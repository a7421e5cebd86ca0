"""Decides plain hits: a plain request that a recording in memory answers, whatever the rest of it says.

Nothing is decided here that the ordinary way would decide otherwise: route, match key, recording,
cursor, journal and the answer's bytes come from the same functions. What is left out is left to the
ordinary way: slots, wrong base URLs, addresses that no route leads to, recorded failures, recordings that
header fields tell apart, and all that is not found by its own match key.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple
from weakref import ref

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.http.chunks import AWS_PAYLOAD_HEADER
from tapeway.core.http.cors import echoes_origin
from tapeway.core.http.headers import CASSETTE_HEADER, KEY_HEADERS, request_fields
from tapeway.core.http.routing import DEFAULT_ROUTE, RequestAddress
from tapeway.core.http.sdk_conventions import RETRIES_HEADER, TRIES_HEADER, attempt_number
from tapeway.core.matching.headers.distance import caller, stored_credentials
from tapeway.core.matching.json_paths import Path
from tapeway.core.matching.key import KeyAndBody, key_on_route
from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.model.control import MODE_POLICIES, Mode, ModePolicy
from tapeway.core.model.filed import FiledInteraction
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request, Response
from tapeway.core.model.values import value_class
from tapeway.core.streams.pacing import AT_ONCE, scale_retry_after
from tapeway.core.way_back.addresses import WaysBack
from tapeway.core.way_back.response import lead_response, names_any_address
from tapeway.engine.broker import Broker
from tapeway.engine.journal import (
    RequestIds,
    ServedRequest,
    ServedRequests,
    Traced,
    charged,
)
from tapeway.errors import StoreAway, StoreError, TapewayError
from tapeway.providers.handed_out import HANDED_OUT
from tapeway.providers.paths import PROVIDER_HEADERS
from tapeway.providers.request_addresses import RequestAddresses
from tapeway.server.answers import outcome_headers, serialise_parts

if TYPE_CHECKING:
    from tapeway.engine.cassettes.hits import RememberedHits

LARGEST_HEAD = 4096
LARGEST_BODY = 64 * 1024
"""The body of a plain request; larger ones come in several segments."""
_MOST_FIELDS = 64

HEAD_END = b"\r\n\r\n"
_METHODS = frozenset({b"GET", b"POST", b"PUT", b"PATCH", b"DELETE"})
_FIELD = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}):[ \t]*((?:[!-~](?:[!-~ \t]*[!-~])?)?)[ \t]*"
)
_LENGTH = re.compile(rb"[0-9]{1,6}")

_READ = frozenset(
    {
        *(b"host", b"connection", b"content-length", b"content-type", b"user-agent"),
        *(RETRIES_HEADER, TRIES_HEADER),
        *(CASSETTE_HEADER, *PROVIDER_HEADERS),
    }
)
"""Fields that are looked at, or that aiohttp refuses twice. A plain head has each at most once."""
_FRAMES = frozenset(
    {
        *(b"expect", b"upgrade", b"transfer-encoding", b"proxy-connection", b"http2-settings"),
        b"sec-websocket-key1",
    }
)
"""Fields that decide how the request is read: no plain head has them."""
_DECIDES = KEY_HEADERS | {
    *(b"server", b"etag", b"content-range", b"content-location", b"max-forwards"),
    AWS_PAYLOAD_HEADER,
}
"""Fields that may decide which recording answers, or that aiohttp refuses twice."""
MOST_LINES = 4096

_Field = tuple[bytes, bytes]
_NOT_PLAIN: _Field = (b"", b"")
_DECIDING: _Field = (b"*", b"")
"""Stands for one of `_DECIDES`, whatever its value."""


class _Lines(dict[bytes, _Field | None]):
    """What the lines of fields say, remembered: the lower-case name and the value.

    Or else _NOT_PLAIN or _DECIDING; None for a field that is not looked at. Clients repeat nearly all of their lines.
    """

    def __missing__(self, line: bytes) -> _Field | None:
        field = _read_line(line)
        if len(self) >= MOST_LINES:
            self.clear()
        self[line] = field
        return field


_field_of = _Lines().__getitem__


def _read_line(line: bytes) -> _Field | None:
    if (found := _FIELD.fullmatch(line)) is None or (name := found[1].lower()) in _FRAMES:
        return _NOT_PLAIN
    if name in _DECIDES:
        return _DECIDING
    value = found[2]
    if name == b"connection" and value.lower() != b"keep-alive":
        return _NOT_PLAIN
    if name == b"content-length" and _LENGTH.fullmatch(value) is None:
        return _NOT_PLAIN
    return (name, value) if name in _READ else None


@value_class
class PlainHead:
    """A plain head: its first line, the fields that are looked at, and the length of its body."""

    line: bytes
    fields: dict[bytes, bytes]
    """By name in lower case."""
    length: int
    text: bytes
    """All of it, up to the empty line."""
    rest: bytes
    """What came after it."""

    @property
    def may_be_hit(self) -> bool:
        """Whether nothing in it leaves the request to the ordinary way."""
        return _DECIDING[0] not in self.fields

    @property
    def headers(self) -> Headers:
        """All fields as they are written."""
        return fields_of(self.text)


def fields_of(text: bytes) -> Headers:
    """The fields of a plain head as they are written."""
    _, *lines = text.split(b"\r\n")
    fields = [line.partition(b":") for line in lines]
    return tuple([(name, value.strip(b" \t")) for name, _, value in fields])


def read_plain_head(data: bytes) -> PlainHead | None:
    """The plain head that these bytes begin with, None where there is none."""
    # One search for the ends of lines finds the end of the head too.
    lines = data.split(b"\r\n", _MOST_FIELDS + 2)
    try:
        end = lines.index(b"")
    except ValueError:
        return None
    rest = lines[-1] if len(lines) == end + 2 else b"\r\n".join(lines[end + 1 :])
    size = len(data) - len(rest) - len(HEAD_END)
    if len(lines) == end + 1 or not 0 < size <= LARGEST_HEAD:
        return None
    line = lines[0]
    if line[: line.find(b" ")] not in _METHODS:
        return None
    found = [*filter(None, map(_field_of, lines[1:end]))]
    fields = dict(found)
    if b"" in fields or len(fields) < len(found):
        return None
    length = int(fields.get(b"content-length", b"0"))
    return PlainHead(line, fields, length, data[:size], rest) if length <= LARGEST_BODY else None


MOST_TARGETS = 2048
"""Targets to remember; beyond that, all are forgotten."""

LARGEST_PREPARED = 64 * 1024
"""Larger answers wait for their client, as they do on the ordinary way."""

MOST_PREPARED = 128 * 1024 * 1024
"""Bytes of prepared answers to remember; beyond that, all are forgotten."""

_OVERHEAD = 256
_REQUEST_LINE = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) (/[!-\"$-~]{0,2000}) HTTP/1\.1")


@dataclass(slots=True)
class PreparedAnswer:
    """The bytes of a recorded answer for an HTTP/1.1 connection that stays open.

    `body` is the recorded one if it needs no framing, and is then not copied. `head` is None if
    the answer depends on the request or is too large.
    """

    interaction: Interaction
    head: bytes | None
    body: bytes
    tokens: tuple[int, ...]
    model: str
    unmarked: bool
    status: int
    size: int
    """Of the recorded body."""
    asked: int
    """The bytes of the body that was asked with."""
    client: "Client | None"
    """For whom addresses and cookies in it lead back to the proxy; None where it is for all."""

    @property
    def wire(self) -> bytes:
        """All of it, where `head` is not None."""
        return (self.head or b"") + self.body


class PreparedAnswers:
    """The prepared answers of loaded cassettes, by index; they go with their cassette."""

    def __init__(self, ways_back: WaysBack | None, scheme: str = "http") -> None:
        """Without `ways_back` addresses and cookies stay as the service wrote them."""
        self._ways_back = ways_back
        self._scheme = scheme
        self._of: dict[int, tuple[ref[CassetteIndex], dict[int, PreparedAnswer]]] = {}
        self.size = 0
        """Bytes that are remembered."""

    def get(
        self, cassette: CassetteIndex, interaction: Interaction, target: "Target"
    ) -> PreparedAnswer | None:
        """The bytes of a recorded answer, None where they are yet to be prepared for this client."""
        known = self._of.get(id(cassette))
        if known is not None and known[0]() is cassette:
            found = known[1].get(interaction.index)
            # A recording can be edited under its index.
            if found is not None and found.interaction is interaction:
                return found if found.client in (None, target.client) else None
        return None

    def prepare(
        self, cassette: CassetteIndex, interaction: Interaction, target: "Target", asked: int
    ) -> PreparedAnswer:
        """Prepare and remember them; `asked` is the size of the request's body.

        Raises StoreError where they cannot be read.
        """
        response: Response | None = interaction.response
        client: Client | None = None
        members = (*HANDED_OUT, *cassette.rules.address_paths)
        if self._ways_back is not None and names_any_address(
            target.method, interaction.response, members
        ):
            response, client = self._led_back(interaction, target, members), target.client
        made = prepare(interaction, response, cassette.name, asked, client)
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
        """The response as it leads this client back; None where it must be told each time."""
        host = target.client.host
        if self._ways_back is None or host is None or interaction.response.size > LARGEST_PREPARED:
            return None
        elsewhere: dict[str, None] = {}
        proxy = f"{self._scheme}://{host.decode('latin-1')}"
        way = self._ways_back.of(target.address, interaction.request.base, proxy, elsewhere)
        led = lead_response(target.method, interaction.response, members, way)
        # The journal has the origins that no route leads to.
        return None if elsewhere else led

    def _forget_all(self) -> None:
        for cassette in [each() for each, _ in self._of.values()]:
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
    """The bytes of a recorded answer that goes out as this response, None on the ordinary way."""
    recorded = interaction.response
    tokens, model = charged(interaction)
    size = recorded.size if response is None else response.size
    unmarked, status = recorded.verdict == "unmarked", recorded.head.status
    if (
        response is None
        or response.file is not None
        or response.verdict == "open"
        or response.after_requests
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
    return PreparedAnswer(
        interaction, head, body, tokens, model, unmarked, status, size, asked, client
    )


class Client(NamedTuple):
    """How a client addresses the proxy, and so how addresses lead it back."""

    host: bytes | None
    prefix: str
    route: str


@value_class
class Target:
    """Where a request goes, and how its client names that."""

    method: str
    address: RequestAddress
    host: bytes | None
    content_type: Headers = ()
    """The only field of a plain request that counts in its match key."""

    @property
    def client(self) -> Client:
        return Client(self.host, self.address.prefix, self.address.route.name)

    def request(self, body: bytes) -> Request:
        """A plain request as far as its match key depends on it."""
        address = self.address
        return Request(address.route.name, self.method, address.target, self.content_type, body)


@value_class
class HitRequest:
    """A request that a recording may answer at once."""

    request: Request
    """As far as its match key depends on it."""
    target: Target
    cassette: CassetteIndex
    fields: Mapping[bytes, bytes]
    """Those that are looked at, by name in lower case."""
    head: bytes | Headers
    """All fields: the text of a plain head, or what aiohttp made of another one."""
    started: float
    client_address: str
    entry: tuple[str, float] | None = None
    """Its id in the journal and when it came; None for one that gets both with its answer."""

    def headers(self) -> Headers:
        """All fields as they are written."""
        return _headers(self.head)

    def caller(self) -> bytes:
        """Who sends it, as its cassette tells callers from each other."""
        return caller(stored_credentials(self.headers(), self.cassette.digests.placeholder))


class _Counting(Enum):
    """Stands for the answer to a hit that the store counts."""

    COUNTING = auto()


COUNTING = _Counting.COUNTING
"""The store counts the hit, in sight of what other processes do; the answer comes a moment later."""

GiveCounted = Callable[[bytes | StoreAway | None], None]
"""Gets the answer to a hit that the store counted; None where the request takes the ordinary way, and
the error where it must not, since the hit may be counted.
"""

_TargetKey = tuple[bytes, bytes | None, bytes | None, bytes | None, bool, bool]


class Hits:
    """Answers requests that nothing but a recording in memory decides on."""

    def __init__(
        self,
        broker: Broker,
        journal: ServedRequests,
        addresses: RequestAddresses,
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
        ids: RequestIds,
        ended: Callable[[], object],
        ways_back: WaysBack | None = None,
        scheme: str = "http",
    ) -> None:
        """`ended` is called whenever the store has counted a hit, `scheme` is that of the listener."""
        self.open = True
        """False leaves every request to the ordinary way."""
        self.count = 0
        """Requests that were answered."""
        self.counting = 0
        """Hits that the store counts now."""
        self._ended = ended
        self._broker = broker
        self._requests_of = broker.recorder.streams.requests
        self._journal = journal
        self._addresses = addresses
        self._prepared = PreparedAnswers(ways_back, scheme)
        self._clock = clock
        self._now = now
        self._ids = ids
        self._targets: dict[_TargetKey, Target | None] = {}

    def may_answer(self, head: PlainHead) -> bool:
        """Whether a recording may answer a request with this head."""
        return self._place(head) is not None

    def answer(
        self, head: PlainHead, body: bytes, give: GiveCounted, client_address: str
    ) -> bytes | Literal[_Counting.COUNTING] | KeyAndBody | None:
        """The bytes that answer a plain request; its match key where it takes the ordinary way.

        None where nothing is known of it. A hit in a shared store is counted first, and `give` gets
        the answer.
        """
        started = self._clock()
        if (place := self._place(head)) is None:
            return None
        target, cassette, policy, shared = place
        request = target.request(body)
        asked = HitRequest(
            *(request, target, cassette, head.fields, head.text, started, client_address)
        )
        found = self._find(asked, policy, shared)
        if isinstance(found, KeyAndBody):
            return found
        key, prepared = found
        if shared is not None:
            self.counting += 1
            # By another rule the answer depends on how often it was asked for.
            stays = (self._broker.repeats or cassette.repeats) == "last"
            counted = partial(self._counted, give, asked, key, prepared)
            shared.count(key, prepared.interaction.index, counted, stays=stays)
            return COUNTING
        return self._taken(asked, key, prepared)

    def replay(
        self,
        request: Request,
        address: RequestAddress,
        name: str,
        mode: Mode,
        *,
        started: float,
        client_address: str,
        entry: tuple[str, float],
    ) -> bytes | KeyAndBody | None:
        """The same for a whole request of HTTP/1.1 to this cassette, whose connection stays open."""
        policy, cassette = MODE_POLICIES[mode], self._broker.in_memory.get(name)
        if not (self.open and policy.replays) or cassette is None or address.slot is not None:
            return None
        fields = request_fields(request.headers)
        target = Target(request.method, address, fields.value(b"host"))
        asked = HitRequest(
            *(request, target, cassette, fields.first, request.headers),
            *(started, client_address, entry),
        )
        found = self._find(asked, policy)
        return found if isinstance(found, KeyAndBody) else self._taken(asked, *found)

    def _find(
        self, asked: HitRequest, policy: ModePolicy, shared: "RememberedHits | None" = None
    ) -> tuple[bytes, PreparedAnswer] | KeyAndBody:
        """The key of the recording that answers, and the prepared answer; or the request's key."""
        cassette, target, repeats = asked.cassette, asked.target, self._broker.repeats
        keyed = cassette.match_key(asked.request)
        key = keyed.key
        caller, headers = asked.caller if policy.asks else None, asked.headers
        if shared is not None and not shared.knows(key):
            return keyed
        interaction = cassette.next_in_order(key, repeats, caller, headers)
        if interaction is None and target.address.guessed and key not in cassette:
            key = key_on_route(key, DEFAULT_ROUTE)
            if shared is not None and not shared.knows(key):
                return keyed
            interaction = cassette.next_in_order(key, repeats, caller, headers)
        if interaction is None or interaction.failure is not None or interaction.stored_keys:
            return keyed
        try:
            prepared = self._prepared.get(cassette, interaction, target)
            if prepared is None:
                body = asked.request.body
                prepared = self._prepared.prepare(cassette, interaction, target, len(body))
                cassette.remember_body(asked.request, keyed.key, interaction)
        except StoreError:
            return keyed
        return keyed if prepared.head is None else (key, prepared)

    def _taken(self, asked: HitRequest, key: bytes, prepared: PreparedAnswer) -> bytes:
        """Count a hit in memory; returns its answer."""
        asked.cassette.take.use(key, prepared.interaction.index)
        self._note(asked, key, prepared)
        return prepared.wire

    def _counted(
        self,
        give: GiveCounted,
        asked: HitRequest,
        key: bytes,
        prepared: PreparedAnswer,
        counted: bool | StoreAway,
    ) -> None:
        self.counting -= 1
        self._ended()
        answer: bytes | StoreAway | None = counted if isinstance(counted, StoreAway) else None
        if counted is True:
            self._note(asked, key, prepared)
            answer = prepared.wire
        give(answer)

    def _place(
        self, head: PlainHead
    ) -> tuple[Target, CassetteIndex, ModePolicy, "RememberedHits | None"] | None:
        """Where a recording of this request would be; None where it takes the ordinary way."""
        fields, broker = head.fields, self._broker
        if not self.open or not head.may_be_hit:
            return None
        which = (
            head.line,
            fields.get(b"host"),
            fields.get(b"content-type"),
            fields.get(b"tapeway-cassette"),
            b"anthropic-version" in fields,
            b"x-goog-api-key" in fields,
        )
        try:
            target = self._targets[which]
        except KeyError:
            target = self._read(head)
            if len(self._targets) >= MOST_TARGETS:
                self._targets.clear()
            self._targets[which] = target
        if target is None:
            return None
        name, mode, _ = broker.in_force(target.address.cassette)
        policy, cassette, shared = MODE_POLICIES[mode], broker.in_memory.get(name), None
        if not policy.replays:
            return None
        if cassette is None:
            if (shared := broker.remembered_hits(name)) is None:
                return None
            cassette = shared.cassette
        return None if cassette.rules.match else (target, cassette, policy, shared)

    def _read(self, head: PlainHead) -> Target | None:
        """What the first line means; None where it is not plain, or the proxy would refuse it."""
        if (found := _REQUEST_LINE.fullmatch(head.line)) is None:
            return None
        method, target, headers = found[1].decode(), found[2].decode(), head.headers
        try:
            address = self._addresses.find(method, target, (1, 1), headers)
        except TapewayError:
            return None
        if address.slot is not None or address.base_url_fault is not None:
            return None
        content_type = head.fields.get(b"content-type")
        kept = () if content_type is None else ((b"content-type", content_type),)
        return Target(method, address, head.fields.get(b"host"), kept)

    def _note(self, asked: HitRequest, key: bytes, prepared: PreparedAnswer) -> None:
        """Count a replay, and enter it in the journal."""
        cassette, target = asked.cassette, asked.target
        address, salt = target.address, cassette.head.run_id
        requests = self._requests_of(cassette.name, cassette.take.number, address.route.name)
        requests.add(asked.request)
        self.count += 1
        id, at = asked.entry or (self._ids.new(), self._now())
        self._journal.add(
            # All fields in order: to call the class takes twice as long.
            ServedRequest._make(
                (
                    id,
                    at,
                    cassette.name,
                    address.route.name,
                    target.method,
                    partial(_shown, self._broker.redaction, salt, target, asked.head),
                    "replayed",
                    prepared.status,
                    prepared.interaction.index,
                    (self._clock() - asked.started) * 1000,
                    key,
                    None,
                    (),
                    None,
                    attempt_number(asked.fields),
                    prepared.tokens,
                    prepared.unmarked,
                    None,
                    None,
                    prepared.model,
                    0,
                    prepared.size,
                    False,
                    None,
                    (),
                    asked.client_address,
                    partial(_traced, self._broker.redaction, salt, asked.head),
                )
            )
        )


def _headers(head: bytes | Headers) -> Headers:
    return fields_of(head) if isinstance(head, bytes) else head


def _shown(redaction: RequestRedaction, salt: str, target: Target, head: bytes | Headers) -> str:
    """The target of a request as the journal shows it."""
    address = target.address
    base = address.route.url or ""
    route, headers = address.route.name, _headers(head)
    request = Request(route, target.method, address.target, headers, base=base)
    return redaction.target(salt, request)


def _traced(redaction: RequestRedaction, salt: str, head: bytes | Headers) -> Traced:
    """The client's own ids of a request and its trace as the journal shows them."""
    return redaction.traced(salt, _headers(head))


def _size(made: PreparedAnswer) -> int:
    size = _OVERHEAD + len(made.head or b"")
    if isinstance(made.interaction, FiledInteraction):
        # Nothing else keeps its bodies in memory.
        return size + made.asked + len(made.body)
    return size + (len(made.body) if made.body is not made.interaction.response.body else 0)
