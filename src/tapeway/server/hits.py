"""Hits: requests that a recording in memory answers at once.

The front asks here for plain requests, and the proxy for requests that aiohttp parsed. No decision
here differs from the broker's: route, match key, recording, cursor and the answer's bytes
come from the same functions. The broker decides on everything else: requests through slots, wrong base
URLs, addresses that no route leads to, recorded failures, recordings that header fields tell apart,
requests that no recording of an equal match key answers, and all requests while faults are in force.
"""

import re
from collections.abc import Callable
from enum import Enum, auto
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Literal

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.recorded_bodies import selecting_head
from tapeway.core.http.foreign import ForeignGuard
from tapeway.core.http.headers import FAULT_HEADER
from tapeway.core.http.routing import DEFAULT_ROUTE, RequestAddress
from tapeway.core.http.sdk_conventions import attempt_number
from tapeway.core.matching.headers.distance import caller, stored_credentials
from tapeway.core.matching.key import KeyAndBody, key_on_route
from tapeway.core.matching.placeholders import SecretDigests
from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.model.control import MODE_POLICIES, Mode, ModePolicy
from tapeway.core.model.messages import Headers, Request
from tapeway.core.model.request_fields import RequestFields
from tapeway.core.model.values import value_class
from tapeway.core.redaction.credentials import telling_fields
from tapeway.core.way_back.addresses import WaysBack
from tapeway.engine.broker import Broker
from tapeway.engine.journal import ClientTexts, RequestIds, ServedRequest, ServedRequests
from tapeway.errors import StoreAway, StoreError, TapewayError
from tapeway.providers.request_addresses import RequestAddresses
from tapeway.server.plain_heads import PlainFields, PlainHead, fields_of, telling_fields_of, text_of
from tapeway.server.prepared_answers import PreparedAnswer, PreparedAnswers, Target, target_of

if TYPE_CHECKING:
    from tapeway.engine.cassettes.followed_index import FollowedIndex

MOST_TARGETS = 2048
"""Targets to remember; beyond that, all are forgotten."""

_REQUEST_LINE = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) (/[!-\"$-~]{0,2000}) HTTP/1\.1")


@value_class
class HitRequest:
    """A request that a recording may answer at once."""

    target: Target
    body: bytes
    cassette: CassetteIndex
    attempt: int | None
    """The number of the try within its call."""
    head: bytes | RequestFields
    """All fields: the text of a plain head, or the fields that aiohttp parsed."""
    started: float
    client_address: str
    entry: tuple[str, float] | None = None
    """Journal id and time of arrival; None if both are assigned with the answer."""

    @property
    def request(self) -> Request:
        """The parts of the request that decide the match key."""
        return self.target.request(self.body)

    def match_key(self) -> KeyAndBody:
        """The match key under the rules of the cassette."""
        target, known = self.target, None
        if target.head is not None:
            known = self.cassette.known_key(target.head, self.body, target.address.route.name)
        return known or self.cassette.match_key(self.request)

    def headers(self) -> Headers:
        """All fields as they are written."""
        return fields_of(self.head) if isinstance(self.head, bytes) else self.head.headers

    def head_text(self) -> bytes:
        """The head as one text, for the journal.

        The journal keeps thousands of requests: dozens of small objects for each of them would all have
        left the processor's caches when they are freed.
        """
        return self.head if isinstance(self.head, bytes) else text_of(self.head.headers)

    def caller(self) -> bytes:
        """The caller, as the cassette tells callers apart."""
        head = self.head
        telling = (
            telling_fields_of(head) if isinstance(head, bytes) else tuple(telling_fields(head))
        )
        return _caller(telling, self.cassette.digests)


@lru_cache(maxsize=1024)
def _caller(telling: Headers, digests: SecretDigests) -> bytes:
    """Remembered, since a client sends the same credential with each request."""
    return caller(stored_credentials(RequestFields(telling), digests.placeholder))


class _Counting(Enum):
    """Stands for the answer to a hit that the store counts."""

    COUNTING = auto()


COUNTING = _Counting.COUNTING
"""The store of several processes counts the hit first; the answer comes a moment later."""

GiveCounted = Callable[[bytes | StoreAway | None], None]
"""Gets the answer to a hit that the store counted; None where the request takes the ordinary way, and
the error where it must not, since the hit may be counted.
"""


class Hits:
    """Answers requests that nothing but a recording in memory decides on."""

    def __init__(
        self,
        broker: Broker,
        journal: ServedRequests,
        addresses: RequestAddresses,
        guard: ForeignGuard,
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
        self._guard = guard
        self._prepared = PreparedAnswers(ways_back, now, scheme)
        self._clock = clock
        self._now = now
        self._ids = ids
        self._targets: dict[tuple[bytes, PlainFields], Target | None] = {}

    def may_answer(self, head: PlainHead) -> bool:
        """Whether a recording may answer a request with this head."""
        return self._place(head) is not None

    def answer(
        self, head: PlainHead, body: bytes, give: GiveCounted, client_address: str
    ) -> bytes | Literal[_Counting.COUNTING] | KeyAndBody | None:
        """The bytes of the answer to a plain request.

        Otherwise the request takes the ordinary way: with its match key, or None without one. COUNTING
        means that a shared store counts the hit first; `give` gets the answer then.
        """
        started = self._clock()
        if (lookup := self._place(head)) is None:
            return None
        target, cassette, policy, shared = lookup
        asked = HitRequest(
            target, body, cassette, head.fields.attempt, head.text, started, client_address
        )
        hit = self._find(asked, policy, shared)
        if isinstance(hit, KeyAndBody):
            return hit
        key, prepared = hit
        if shared is not None:
            self.counting += 1
            # Under `miss` and `cycle` the answer depends on the number of requests before.
            stays = (self._broker.repeats or cassette.choice.repeats) == "last"
            counted = partial(self._counted, give, asked, key, prepared)
            # A recording on the route that was asked for would come first.
            seen = {key_on_route(key, target.address.route.name), key}
            shared.count(key, prepared.interaction.index, [*seen], counted, stays=stays)
            return COUNTING
        return self._counted_answer(asked, key, prepared)

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
        """The answer to a complete HTTP/1.1 request on a connection that stays open, or its match key."""
        policy, cassette = MODE_POLICIES[mode], self._broker.in_memory.get(name)
        if not (self.open and policy.replays) or cassette is None or address.slot is not None:
            return None
        if self._broker.source.control.faults or FAULT_HEADER in request.fields.first:
            return None
        fields = request.fields
        host, head = fields.value(b"host"), selecting_head(request)
        target = Target(request.method, address, host, fields, head)
        asked = HitRequest(
            *(target, request.body, cassette, attempt_number(fields.first), fields),
            *(started, client_address, entry),
        )
        hit = self._find(asked, policy)
        return hit if isinstance(hit, KeyAndBody) else self._counted_answer(asked, *hit)

    def _find(
        self, asked: HitRequest, policy: ModePolicy, shared: "FollowedIndex | None" = None
    ) -> tuple[bytes, PreparedAnswer] | KeyAndBody:
        """The key of the recording that answers, and the prepared answer; or the request's key."""
        cassette, target, repeats = asked.cassette, asked.target, self._broker.repeats
        keyed = asked.match_key()
        key = keyed.key
        if policy.asks and asked.attempt not in (None, 1):
            # The client tries a call once more, perhaps one that this take has recorded.
            return keyed
        caller, headers = asked.caller if policy.asks else None, asked.headers
        if shared is not None and not shared.knows(key):
            # Its cursor is to be read first.
            return keyed
        interaction = cassette.next_in_order(key, cassette.take, repeats, caller, headers)
        if interaction is None and target.address.guessed and key not in cassette:
            key = key_on_route(key, DEFAULT_ROUTE)
            if shared is not None and not shared.knows(key):
                return keyed
            interaction = cassette.next_in_order(key, cassette.take, repeats, caller, headers)
        if interaction is None or interaction.failure is not None or interaction.stored_keys:
            return keyed
        try:
            if (
                shared is not None
                and policy.asks
                and not cassette.choice.answers_again(interaction.request)
            ):
                # A write of another instance may have come before.
                return keyed
            prepared = self._prepared.get(cassette, interaction, target)
            if prepared is None:
                prepared = self._prepared.prepare(cassette, interaction, target, len(asked.body))
                cassette.remember_body(asked.request, keyed.key, interaction)
        except StoreError:
            return keyed
        return keyed if prepared.head is None else (key, prepared)

    def _counted_answer(self, asked: HitRequest, key: bytes, prepared: PreparedAnswer) -> bytes:
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
    ) -> tuple[Target, CassetteIndex, ModePolicy, "FollowedIndex | None"] | None:
        """Where a recording would be found; None if the request takes the ordinary way."""
        broker = self._broker
        if not self.open or not head.fields.may_be_hit:
            return None
        key = (head.line, head.fields)
        try:
            target = self._targets[key]
        except KeyError:
            target = self._read(head)
            if len(self._targets) >= MOST_TARGETS:
                self._targets.clear()
            self._targets[key] = target
        if target is None:
            return None
        if broker.source.control.faults:
            return None
        name, mode, _ = broker.in_force(target.address.cassette)
        policy, cassette, shared = MODE_POLICIES[mode], broker.in_memory.get(name), None
        if not policy.replays:
            return None
        if cassette is None:
            if (shared := broker.followed_hits(name)) is None:
                return None
            cassette = shared.cassette
        return None if cassette.rules.match else (target, cassette, policy, shared)

    def _read(self, head: PlainHead) -> Target | None:
        """The target of a plain first line; None for any other, and for a request the proxy refuses."""
        named = head.fields.by_name
        host = named.get(b"host")
        if not self._guard.serves(host, named.get(b"origin"), named.get(b"sec-fetch-site")):
            return None
        if (match := _REQUEST_LINE.fullmatch(head.line)) is None:
            return None
        method, target = match[1].decode(), match[2].decode()
        try:
            address = self._addresses.find(method, target, (1, 1), RequestFields(head.headers))
        except TapewayError:
            return None
        if address.slot is not None or address.base_url_fault is not None:
            return None
        return target_of(method, address, host, head.fields.in_key)

    def _note(self, asked: HitRequest, key: bytes, prepared: PreparedAnswer) -> None:
        """Count a replay, and enter it in the journal."""
        cassette, target = asked.cassette, asked.target
        address, salt = target.address, cassette.head.run_id
        requests = self._requests_of(cassette.name, cassette.take.number, address.route.name)
        requests.add(target.method, asked.body)
        self.count += 1
        redaction, head = self._broker.redaction, asked.head_text()
        id, at = asked.entry or (self._ids.new(), self._now())
        self._journal.add(
            # What every entry has, in order: by name it would cost a hit 4 %.
            ServedRequest(
                id,
                at,
                cassette.name,
                address.route.name,
                target.method,
                partial(_texts, redaction, salt, target, head, prepared.interaction.request.target),
                prepared.answer,
                (self._clock() - asked.started) * 1000,
                key,
                attempt=asked.attempt,
                client_address=asked.client_address,
            )
        )


def _texts(
    redaction: RequestRedaction, salt: str, target: Target, head: bytes, recorded: str
) -> ClientTexts:
    """The client's texts of a request, redacted for the journal; the `recorded` target tells of secrets."""
    address = target.address
    fields = RequestFields(fields_of(head))
    request = Request(
        address.route.name,
        target.method,
        address.target,
        fields.headers,
        base=address.route.url or "",
        read=fields,
    )
    path = redaction.target(salt, request, recorded)
    return ClientTexts(path, *redaction.traced(salt, fields))
