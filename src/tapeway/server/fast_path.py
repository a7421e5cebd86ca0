"""The fast path: a plain request that a recording answers gets prepared bytes, at once.

A request takes it if all of this holds; any other goes through aiohttp (`protocol.py`, `proxy.py`),
with the same answer byte for byte:

- its connection is at rest, and it arrives whole, its body at the latest with the next segment;
- one strict expression matches its head: HTTP/1.1, visible ASCII, no field twice, and none that
  changes how the connection or the body is read;
- its cassette is loaded, and a recording in it has its match key; of a cassette in a shared store, all
  recordings with that key were looked up before;
- of the recordings with that key the next one answers, whatever the other headers say.

In a shared store the hit is counted by the store, in sight of what other processes do: its answer
comes a moment later, and where somebody was quicker, the request goes the ordinary way then.

What is remembered of heads and recordings depends on nothing else. Clients repeat their heads, so
the expression and the routing run once for each; a recording's head is serialised once.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import NamedTuple, Protocol
from weakref import ref

from aiohttp.web_protocol import RequestHandler

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.recorded_bodies import Way, way_of
from tapeway.core.digests import update
from tapeway.core.http.cors import echoes_origin
from tapeway.core.http.headers import find_header
from tapeway.core.http.routing import DEFAULT_ROUTE, RequestAddress
from tapeway.core.matching.document import read_json
from tapeway.core.matching.headers.distance import caller, stored_credentials
from tapeway.core.matching.json_paths import Path
from tapeway.core.matching.key import KeyAndBody, head_key, key_on_route, request_key
from tapeway.core.matching.presets import preset_of
from tapeway.core.matching.rules import NO_RULES
from tapeway.core.model.control import MODE_POLICIES, Control, ModePolicy
from tapeway.core.model.filed import FiledInteraction
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request
from tapeway.core.streams.pacing import AT_ONCE, scale_retry_after
from tapeway.core.way_back.response import names_any_address
from tapeway.engine.broker import Broker
from tapeway.engine.journal import ReplayKind, RequestIds, ServedRequest, ServedRequests, charged
from tapeway.errors import StoreAway, StoreError, TapewayError
from tapeway.providers.handed_out import HANDED_OUT
from tapeway.server.wire import PlainRequest, outcome_headers, serialise_parts

MOST_HEADS = 2048
"""Heads to remember; beyond that, all are forgotten."""

LARGEST_HEAD = 4096
LARGEST_BODY = 64 * 1024
"""Of a request; larger ones come in several segments."""

LARGEST_PREPARED = 64 * 1024
"""Larger answers wait for their client, as the ordinary path does."""

MOST_PREPARED = 128 * 1024 * 1024
"""Bytes of prepared answers to remember; beyond that, all are forgotten."""


class Taken(Enum):
    """What became of a segment that a client sent."""

    ANSWERED = auto()
    COUNTING = auto()
    """The store counts the hit, and then the answer is given."""
    INCOMPLETE = auto()
    """It is a head whose body is still to come."""
    NOT_TAKEN = auto()
    """It goes the ordinary way."""


ANSWERED = Taken.ANSWERED
"""In Python 3.11 each look-up of a member by its name is a call."""


class Client(Protocol):
    """The connection that a request came from."""

    def send_answer(self, answer: bytes) -> None:
        """Write an answer."""

    def give_counted(self, answer: bytes | StoreAway | None) -> None:
        """Write the answer that the store counted; None where the request goes the ordinary way, and
        the error where it must not, since it may be counted.
        """


_OVERHEAD = 256
_END = b"\r\n\r\n"
_HEAD = re.compile(
    rb"(GET|POST|PUT|PATCH|DELETE) (/[!-\"$-~]{0,2000}) HTTP/1\.1\r\n"
    rb"((?:[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}:[ \t]?[!-~](?:[ -~]*[!-~])?\r\n){1,64})\r\n"
)
_LENGTH = re.compile(rb"(?<=\r\n)(content-length): ?([0-9]{1,6})\r\n", re.IGNORECASE)
_ORDINARY = frozenset(
    {
        *(b"expect", b"upgrade", b"transfer-encoding", b"proxy-connection"),
        *(b"http2-settings", b"sec-websocket-key1", b"content-length"),
    }
)
"""Fields that change how the connection or the body is read; a length is taken out before."""


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
    kind: ReplayKind | None = None
    """As it was noted last, if that is for another process."""


class PreparedAnswers:
    """The prepared answers of loaded cassettes, by index; they go with their cassette."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[ref[CassetteIndex], dict[int, PreparedAnswer]]] = {}
        self.size = 0
        """Bytes that are remembered."""

    def get(self, cassette: CassetteIndex, interaction: Interaction) -> PreparedAnswer | None:
        """The bytes of a recorded answer, None where they are yet to be prepared."""
        known = self._of.get(id(cassette))
        if known is not None and known[0]() is cassette:
            found = known[1].get(interaction.index)
            # A recording can be edited under its index.
            if found is not None and found.interaction is interaction:
                return found
        return None

    def prepare(
        self, cassette: CassetteIndex, interaction: Interaction, asked: int
    ) -> PreparedAnswer:
        """Prepare and remember them; `asked` is the size of the request's body.

        Raises StoreError where they cannot be read.
        """
        members = (*HANDED_OUT, *cassette.rules.address_paths)
        made = prepare(interaction, cassette.name, asked, members)
        if self.size > MOST_PREPARED:
            self._forget_all()
        if cassette.take_of(interaction.index) and not cassette.rules.match:
            # Of what was loaded it is known already.
            cassette.bodies.add(interaction, cassette.key_of(interaction.index))
        known = self._of.get(id(cassette))
        if known is None or known[0]() is not cassette:
            number = id(cassette)
            known = self._of[number] = (ref(cassette, lambda gone: self._forget(number, gone)), {})
        known[1][interaction.index] = made
        self.size += _size(made)
        return made

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
    interaction: Interaction, cassette: str, asked: int, members: Sequence[Path] = HANDED_OUT
) -> PreparedAnswer:
    """The bytes of a recorded answer; `members` of its body may have addresses."""
    response = interaction.response
    tokens, model = charged(interaction)
    size, unmarked = response.size, response.verdict == "unmarked"
    if (
        names_any_address(interaction.request.method, response, members)
        or response.file is not None
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
    status = response.head.status
    return PreparedAnswer(interaction, head, body, tokens, model, unmarked, status, size, asked)


@dataclass(slots=True)
class _Head:
    """A plain head, and what follows from it whatever the body is."""

    method: str
    target: str
    headers: Headers
    """All but its length."""
    address: RequestAddress
    bodiless_key: bytes
    prefix: bytes
    """What the match keys of its route begin with."""
    way: Way | None
    """How its body is looked up among recorded ones; None where it is not said to be JSON."""
    begun: "hashlib._Hash"
    """The digest in the match key of a JSON body, which it is to be updated with."""
    attempt: int | None
    preset: str | None
    """That of its client, None where there is none for it."""
    control: Control | None = None
    cassette: str = ""
    """The cassette it names, or the active one, while this `control` is in force."""
    policy: ModePolicy = MODE_POLICIES["passthrough"]
    """That of the cassette's mode, as long."""
    salt: str = ""
    redaction: int = -1
    path: str = ""
    """The target as the journal shows it, in a cassette with this salt, at this time."""
    caller: tuple[str, bytes] | None = None
    """Who sends it, in a cassette with this salt."""

    def request(self, body: bytes) -> Request:
        address = self.address
        base = address.route.url or ""
        return Request(address.route.name, self.method, address.target, self.headers, body, base)

    def caller_in(self, cassette: CassetteIndex) -> bytes:
        """Who sends it, as this cassette tells callers from each other."""
        salt = cassette.head.run_id
        if self.caller is None or self.caller[0] != salt:
            credentials = stored_credentials(self.headers, cassette.digests.placeholder)
            self.caller = salt, caller(credentials)
        return self.caller[1]

    def remember(
        self, body: bytes, key: bytes, cassette: CassetteIndex, interaction: Interaction
    ) -> None:
        """Know the match key of this body from now on, if its recording is in a file."""
        filed = isinstance(interaction, FiledInteraction)
        if filed and body and self.way is not None and not cassette.rules.match:
            cassette.bodies.add_asked(self.way, body, key)

    def match_key(self, body: bytes, cassette: CassetteIndex) -> KeyAndBody:
        """The match key of the request with this body, b"" if it must be made of the whole head.

        With what the body was read as, where it was read and no rule applies.
        """
        rules, way = cassette.rules, self.way
        keys = None if way is None else cassette.bodies.keys.get(way)
        if keys is not None and (known := keys.get(body)) is not None:
            if known.startswith(self.prefix):
                return known, None
            return key_on_route(known, self.address.route.name), None
        if rules is NO_RULES or not rules:
            if not body:
                return self.bodiless_key, None
            if way is not None and (read := read_json(body)) is not None:
                digest = self.begun.copy()
                update(digest, read[1])
                return self.prefix + digest.digest(), read
        return request_key(self.request(body), rules), None


_Read = tuple[_Head | None, int, Headers]
"""What a head says, None if it is not plain; the length of the body after it; all its fields."""
_NOT_PLAIN: _Read = None, 0, ()


class _Found(NamedTuple):
    """A hit that the store counts, as it is noted in the journal afterwards."""

    head: _Head
    cassette: CassetteIndex
    key: bytes
    prepared: PreparedAnswer
    started: float
    at: float


class FastPath:
    """Answers plain requests for the connections of one proxy."""

    def __init__(
        self,
        broker: Broker,
        journal: ServedRequests,
        locate: Callable[[str, str, tuple[int, int], Headers], RequestAddress],
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
        ids: RequestIds,
        ended: Callable[[], object],
    ) -> None:
        """`ended` is called whenever the store has counted a hit."""
        self.open = True
        """False sends every request the ordinary way."""
        self.taken = self.waited = 0
        """Requests answered here, and heads that waited for their body."""
        self.counting = 0
        """Hits that the store counts now."""
        self._ended = ended
        self._broker = broker
        self._journal = journal
        self._locate = locate
        self._prepared = PreparedAnswers()
        self._clock = clock
        self._now = now
        self._ids = ids
        self._next_number = ids.next_number
        self._heads: dict[bytes, _Read] = {}
        self._same_but_length: dict[bytes, _Head | None] = {}
        self._keyed: tuple[bytes, KeyAndBody] | None = None
        """The last segment that no recording answered, until it becomes a request."""

    def answer(self, data: bytes, client: Client) -> Taken:
        """Answer a segment that is one request, now or when the store has counted it."""
        started = self._clock()
        end = data.find(_END) + len(_END)
        text = data[:end]
        head, length, _ = self._heads.get(text) or self._read(text)
        if head is None or not self.open:
            return Taken.NOT_TAKEN
        broker = self._broker
        if head.control is not broker.cassettes.control:
            self._put_in_force(head)
        policy = head.policy
        if not policy.replays:
            return Taken.NOT_TAKEN
        cassette, hits = broker.in_memory.get(head.cassette), None
        if cassette is None:
            if (hits := broker.remembered_hits(head.cassette, head.preset)) is None:
                return Taken.NOT_TAKEN
            cassette = hits.cassette
        if end + length != len(data):
            if end < len(data):
                return Taken.NOT_TAKEN
            self.waited += 1
            return Taken.INCOMPLETE
        own, read = head.match_key(data[end:], cassette)
        key = own
        if hits is not None and not hits.knows(key):
            return Taken.NOT_TAKEN
        asked_by = head.caller_in(cassette) if policy.asks else None
        interaction = cassette.next_in_order(
            key, broker.repeats, asked_by=asked_by, headers=head.headers
        )
        if interaction is None and head.address.guessed and key and key not in cassette:
            key = key_on_route(key, DEFAULT_ROUTE)
            if hits is not None and not hits.knows(key):
                return Taken.NOT_TAKEN
            interaction = cassette.next_in_order(
                key, broker.repeats, asked_by=asked_by, headers=head.headers
            )
        if interaction is None or interaction.failure is not None or interaction.stored_keys:
            if read is not None:
                self._keyed = data, (own, read)
            return Taken.NOT_TAKEN
        try:
            prepared = self._prepared.get(cassette, interaction)
            if prepared is None:
                prepared = self._prepared.prepare(cassette, interaction, length)
                head.remember(data[end:], own, cassette, interaction)
        except StoreError:
            return Taken.NOT_TAKEN
        if prepared.head is None:
            return Taken.NOT_TAKEN
        if hits is not None:
            found = _Found(head, cassette, key, prepared, started, self._now())
            self.counting += 1
            # By another rule the answer depends on how often it was asked for.
            stays = (broker.repeats or cassette.repeats) == "last"
            hits.count(key, interaction.index, partial(self._counted, found, client), stays=stays)
            return Taken.COUNTING
        if self._journal.before_answers:
            cassette.take.use(key, interaction.index)
            self._note(head, cassette, key, prepared, started, self._now())
            client.send_answer(prepared.head + prepared.body)
        else:
            # To count and note it takes as long as to find it, and nothing else is received before.
            client.send_answer(prepared.head + prepared.body)
            cassette.take.use(key, interaction.index)
            self.taken += 1
            number, ended = self._next_number(), self._clock()
            self._journal.add_later(
                self._entry, number, head, cassette, key, prepared, started, ended
            )
        return ANSWERED

    def _entry(
        self,
        number: int,
        head: _Head,
        cassette: CassetteIndex,
        key: bytes,
        prepared: PreparedAnswer,
        started: float,
        ended: float,
    ) -> ServedRequest:
        """The entry of a replay that ended a moment ago."""
        at, path = self._now() - (self._clock() - ended), self._path(head, cassette)
        took = ended - started
        return _served(self._ids.id_of(number), at, head, cassette, key, prepared, path, took)

    def _counted(self, found: "_Found", client: Client, counted: bool | StoreAway) -> None:
        self.counting -= 1
        self._ended()
        answer: bytes | StoreAway | None = counted if isinstance(counted, StoreAway) else None
        if counted is True and found.prepared.head is not None:
            self._note(*found)
            answer = found.prepared.head + found.prepared.body
        client.give_counted(answer)

    def _note(
        self,
        head: _Head,
        cassette: CassetteIndex,
        key: bytes,
        prepared: PreparedAnswer,
        started: float,
        at: float,
    ) -> None:
        """Count a replay, and note it in the journal."""
        self.taken += 1
        path, took, id = self._path(head, cassette), self._clock() - started, self._ids.new()
        if not self._journal.before_answers:
            self._journal.add_later(_served, id, at, head, cassette, key, prepared, path, took)
            return
        kind = prepared.kind
        if kind is None or not _same_kind(kind.entry, head, key, path):
            entry = _served(id, at, head, cassette, key, prepared, path, took)
            kind = prepared.kind = ReplayKind(entry)
        self._journal.add_next(kind, id, at, took * 1000)

    def _path(self, head: _Head, cassette: CassetteIndex) -> str:
        """The target as the journal shows it."""
        redaction, salt = self._broker.redaction, cassette.head.run_id
        if head.redaction != redaction.version or head.salt != salt:
            head.path = redaction.target(salt, head.request(b""))
            head.salt, head.redaction = salt, redaction.version
        return head.path

    def request(self, data: bytes, connection: RequestHandler) -> PlainRequest | None:
        """A segment that was not taken as a request for the proxy; None if aiohttp has to parse it."""
        end = data.find(_END) + len(_END)
        head, length, headers = self._heads.get(data[:end], _NOT_PLAIN)
        if head is None or not self.open or end + length != len(data):
            return None
        known, self._keyed = self._keyed, None
        keyed = known[1] if known is not None and known[0] is data else None
        return PlainRequest(
            connection, head.method, head.target, headers, head.address, data[end:], keyed
        )

    @property
    def remembered(self) -> int:
        """How many heads are remembered."""
        return len(self._heads)

    def _put_in_force(self, head: _Head) -> None:
        head.control = self._broker.cassettes.control
        head.cassette, mode, _ = self._broker.in_force(head.address.cassette)
        head.policy = MODE_POLICIES[mode]

    def _read(self, text: bytes) -> "_Read":
        if not len(_END) < len(text) <= LARGEST_HEAD:
            return _NOT_PLAIN
        length, rest = 0, text
        if (found := _LENGTH.search(text)) is not None:
            length, rest = int(found[2]), text[: found.start()] + text[found.end() :]
        if len(self._heads) >= MOST_HEADS:
            self._heads.clear()
            self._same_but_length.clear()
        try:
            head = self._same_but_length[rest]
        except KeyError:
            head = self._same_but_length[rest] = self._parse(rest)
        read = _NOT_PLAIN
        if head is not None and length <= LARGEST_BODY:
            headers = head.headers
            if found is not None:
                place = text.count(b"\r\n", 0, found.start()) - 1
                headers = (*headers[:place], (found[1], found[2]), *headers[place:])
            read = head, length, headers
        self._heads[text] = read
        return read

    def _parse(self, text: bytes) -> _Head | None:
        """A plain head without its length; None if it is not plain, or the proxy would refuse it."""
        if (found := _HEAD.fullmatch(text)) is None:
            return None
        fields = [line.partition(b":") for line in found[3].split(b"\r\n")[:-1]]
        headers = tuple([(name, value.strip()) for name, _, value in fields])
        names = [name.lower() for name, _ in headers]
        if len({*names}) < len(names) or not _ORDINARY.isdisjoint(names):
            return None
        connection = find_header(headers, b"connection")
        if connection is not None and connection.lower() != b"keep-alive":
            return None
        method, target = found[1].decode(), found[2].decode()
        try:
            address = self._locate(method, target, (1, 1), headers)
        except TapewayError:
            return None
        if address.slot is not None or address.base_url_fault is not None:
            return None
        request = Request(address.route.name, method, address.target, headers)
        key = head_key(request)
        return _Head(
            method,
            target,
            headers,
            address,
            request_key(request),
            key.route + b"\0",
            way_of(request),
            key.begun(b"json"),
            address.attempt or None,
            preset_of((find_header(headers, b"user-agent") or b"").decode("latin-1")),
        )


def _size(made: PreparedAnswer) -> int:
    size = _OVERHEAD + len(made.head or b"")
    if isinstance(made.interaction, FiledInteraction):
        # Nothing else keeps its bodies in memory.
        return size + made.asked + len(made.body)
    return size + (len(made.body) if made.body is not made.interaction.response.body else 0)


def _same_kind(entry: ServedRequest, head: _Head, key: bytes, path: str) -> bool:
    """Whether a replay of the same answer differs from this one in nothing that is noted."""
    # The key has the route and the method.
    return entry.path == path and entry.key == key and entry.attempt == head.attempt


def _served(
    id: str,
    at: float,
    head: _Head,
    cassette: CassetteIndex,
    key: bytes,
    prepared: PreparedAnswer,
    path: str,
    took: float,
) -> ServedRequest:
    """The entry of a replay in the journal."""
    # All fields in order: to call the class takes twice as long.
    served = (
        id,
        at,
        cassette.name,
        head.address.route.name,
        head.method,
        path,
        "replayed",
        prepared.status,
        prepared.interaction.index,
        took * 1000,
        key,
        None,
        (),
        None,
        head.attempt,
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
    )
    return ServedRequest._make(served)
