"""Decides what to do with a request: replay a recording, ask the upstream, or report a miss."""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tapeway.core.agenttape.lookup import request_aliases
from tapeway.core.agenttape.sdk_calls import in_requested_form
from tapeway.core.cassette.agenttape_lookup import form_mismatch, next_by_alias, used_by_alias
from tapeway.core.cassette.branches import sets_text, with_sets
from tapeway.core.cassette.choice import Why
from tapeway.core.cassette.credential_index import FoundKey
from tapeway.core.cassette.cursors import Take, write_key
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import (
    Incoming,
    LargeBodyDigests,
    LargeRequest,
    LiveCall,
    Plan,
    Replay,
)
from tapeway.core.http.content_codings import decoded_request
from tapeway.core.http.location import same_origin
from tapeway.core.http.routing import DEFAULT_ROUTE, RouteTable, no_route_error
from tapeway.core.json_text import ReadJson
from tapeway.core.matching.document import selecting_fields
from tapeway.core.matching.headers.distance import caller
from tapeway.core.matching.key import key_on_route, request_key
from tapeway.core.matching.placeholders import SecretDigests
from tapeway.core.matching.received_request import ReceivedRequest
from tapeway.core.matching.request_redaction import RequestRedaction, with_fields
from tapeway.core.matching.rules import Rules, is_reused
from tapeway.core.misses.miss import Miss
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.control import MODE_POLICIES, Mode, Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request
from tapeway.core.redaction.credentials import Secret
from tapeway.engine.journal import REPEATED
from tapeway.engine.large_bodies import digest_large_body, digest_redacted
from tapeway.providers.api_call import calls_model, samples

READ_AT_ONCE = 256 * 1024
"""The body of a larger request is read in a thread; all other clients would wait for it."""

_MOST_NAMED = 5

READS = frozenset({"GET", "HEAD"})
"""Methods that change nothing at the service (RFC 9110, section 9.2.1)."""

FOUND_BY_ALIAS = "recognised by a key that AgentTape gave it"

FOUND_BY_POSITION = "answered by its place in the base, whatever it asks"


class BodyUnread(Exception):
    """A large body has to be read first, without its secrets; clients never see it."""


class Planner:
    """Looks a request up in a cassette, as the mode says."""

    def __init__(
        self, redaction: RequestRedaction, routes: RouteTable, repeats: Repeats | None
    ) -> None:
        self._redaction = redaction
        self._routes = routes
        self._repeats = repeats
        self._last: ReceivedRequest | None = None
        """The last request that `keys` read: with a shared store `plan` gets that request next."""

    def plan(self, cassette: CassetteIndex, incoming: Incoming, mode: Mode) -> Plan:
        """Decide, without waiting. Raises NoRoute if no recording answers and no route has a URL.

        Raises BodyUnread if no recording of an equal large body answers, and the body was not
        compared with what the cassette shows by now.
        """
        take = cassette.running(incoming.take)
        if incoming.only_looks:
            take = take.copy()
        request, policy = _with_digest(incoming), MODE_POLICIES[mode]
        large = incoming.large_for(cassette.head, cassette.rules)
        asked = large.asked if large is not None else self._last
        if asked is None or (
            large is None and not asked.is_of(request, cassette.head.run_id, cassette.rules)
        ):
            asked = cassette.asked(request, incoming.keyed)
        found_key: FoundKey | None = None
        why = Why()
        if policy.replays and (in_turn := cassette.next_of_base(request, take)) is not None:
            target = self._redaction.target_later(cassette.head.run_id, request)
            key = cassette.key_of(in_turn.index)
            return Replay(cassette, in_turn, target, key, FOUND_BY_POSITION)
        if policy.replays:
            found_key = cassette.find(asked, routes_of(incoming))
            found = self._replay(
                cassette, take, found_key, asked, can_ask=policy.asks, known=incoming.known
            )
            if isinstance(found, Replay):
                return found
            why = found
        if policy.uses_recordings and _is_unread(incoming.large_body, cassette):
            raise BodyUnread
        # Only what is asked for or missed is redacted: to be stored, and to be shown.
        self._redaction.recall(cassette.head.run_id, cassette.placeholders)
        redacted, secrets = self._as_stored(cassette.head, cassette.rules, request, incoming)
        key = _stored_key(asked, redacted, large)
        if policy.replays:
            if found_key is None and (key != asked.key or incoming.large_body is not None):
                # Only this look-up finds placeholders inside a coded or opaque body.
                keys = [key, *self._other_keys(cassette.head, asked, redacted, incoming)]
                if held := next((held for held in keys if held in cassette), None):
                    found_key = FoundKey(held)
                    found = self._replay(cassette, take, found_key, asked, can_ask=policy.asks)
                    if isinstance(found, Replay):
                        return found
                    why = found
            # Few cassettes have aliases, and computing those of a large body takes time.
            aliases = self._aliases_in(cassette, incoming, redacted) if cassette.aliases else ()
            if aliases and (
                by_alias := self._by_alias(
                    cassette, take, aliases, incoming.request, redacted, can_ask=policy.asks
                )
            ):
                return by_alias
            left = cassette.left_of_base(take) if policy.asks else ()
            if left or not policy.asks:
                miss = self._miss(cassette, take, redacted, key, why, asked, incoming)
                miss = replace(miss, before=_before_text(cassette, left))
                if not aliases:
                    return miss
                used_up = miss.used_up or used_by_alias(cassette, aliases, incoming.request)
                note = miss.note or form_mismatch(cassette, aliases, incoming.request)
                return replace(miss, used_up=used_up, note=note)
        if not request.base:
            raise no_route_error(self._routes, redacted.route, redacted.target)
        if policy.records:
            # Now, since equal values may come with requests that are decided on before the answer.
            self._redaction.learn(cassette.head.run_id, secrets)
        base = cassette.base
        return LiveCall(
            cassette,
            take,
            policy,
            incoming.request if base is None else with_sets(incoming.request, base.sets),
            redacted,
            secrets,
            key,
            asked.variant,
            caller(redacted.credentials),
            take.writes_on(redacted.route),
            policy.replays and (request.method in READS or cassette.choice.answers_again(redacted)),
            why.outdated,
            incoming=incoming,
            sets="" if base is None else sets_text(base.sets),
            read=_read_of(redacted, asked),
        )

    def _replay(
        self,
        cassette: CassetteIndex,
        take: Take,
        found_key: FoundKey | None,
        asked: ReceivedRequest,
        *,
        can_ask: bool,
        known: Collection[int] | None = None,
    ) -> Replay | Why:
        if found_key is None:
            return Why()
        interaction = cassette.choose(
            found_key, take, self._repeats, asked, can_ask=can_ask, known=known
        )
        if isinstance(interaction, Why):
            return interaction
        if interaction.stored_keys:
            interaction = in_requested_form(interaction, asked.request)
        target = self._redaction.target_later(
            cassette.head.run_id, asked.request, interaction.request.target
        )
        repeats = (
            can_ask and cassette.choice.repeats_first(interaction, take) and samples(interaction)
        )
        return Replay(cassette, interaction, target, found_key.key, REPEATED if repeats else None)

    def _by_alias(
        self,
        cassette: CassetteIndex,
        take: Take,
        aliases: Sequence[bytes],
        request: Request,
        redacted: Request,
        *,
        can_ask: bool,
    ) -> Replay | None:
        interaction = next_by_alias(
            cassette, take, aliases, request, self._repeats, can_ask=can_ask
        )
        if interaction is None:
            return None
        key = cassette.key_of(interaction.index)
        return Replay(
            cassette, in_requested_form(interaction, request), redacted.target, key, FOUND_BY_ALIAS
        )

    async def with_body_digest(
        self, head: CassetteHead, rules: Rules, incoming: Incoming
    ) -> Incoming:
        """The request with the digest of its large body, which is read in threads.

        A body in memory gets a match key under these rules. Raises StoreError.
        """
        if incoming.request.file is not None:
            if incoming.large_body is not None:
                return incoming
            return incoming._replace(large_body=await digest_large_body(incoming.request))
        if not is_large(incoming.request) or incoming.large_for(head, rules) is not None:
            return incoming
        asked = await asyncio.to_thread(_received_request, head, rules, incoming)
        return incoming._replace(large=LargeRequest(head.run_id, asked))

    async def prepared(self, cassette: CassetteIndex, incoming: Incoming, mode: Mode) -> Incoming:
        """The request with all that `plan` reads a large body in memory for, read in a thread.

        Afterwards `plan` is as quick as for a small request.
        """
        head, rules = cassette.head, cassette.rules
        large = incoming.large_for(head, rules)
        if large is None or large.redacted is not None:
            return incoming
        if MODE_POLICIES[mode].replays and self._is_next(cassette, large, incoming, mode):
            return incoming
        self._redaction.recall(head.run_id, cassette.placeholders)
        return incoming._replace(large=await asyncio.to_thread(self._computed, large))

    async def with_stored_digests(self, cassette: CassetteIndex, incoming: Incoming) -> Incoming:
        """The request with the digests of its large body without secrets. Raises StoreError."""
        if (digests := incoming.large_body) is None:
            return incoming
        salt, request = cassette.head.run_id, incoming.request
        if digests.coding:
            request = decoded_request(request)
        self._redaction.recall(salt, cassette.placeholders)
        redactor = self._redaction.redactor(salt, request)
        recorded = cassette.placeholders_in_large_bodies
        stored, others, secrets = await digest_redacted(request, redactor, recorded)
        digests = digests._replace(
            stored=stored,
            others=others,
            secrets=secrets,
            # What came meanwhile is of exchanges beside this one.
            compared=cassette.placeholders.count,
        )
        return incoming._replace(large_body=digests)

    def _is_next(
        self, cassette: CassetteIndex, large: LargeRequest, incoming: Incoming, mode: Mode
    ) -> bool:
        """Whether a recording of an equal request answers, for which nothing else is looked at."""
        key, asks = large.asked.key, MODE_POLICIES[mode].asks
        keys = [key_on_route(key, route) for route in routes_of(incoming)]
        held = next((candidate for candidate in keys if candidate in cassette), None)
        if held is None:
            return False
        caller = large.asked.get_caller if asks else None
        headers = large.asked.get_headers
        take = cassette.running(incoming.take)
        return cassette.next_in_order(held, take, self._repeats, caller, headers) is not None

    def _computed(self, large: LargeRequest) -> LargeRequest:
        asked = large.asked
        asked.compute()
        redacted, secrets = self._redaction.redact_and_learn(large.salt, asked.request, asked.rules)
        key = _stored_key(asked, redacted)
        return replace(large, redacted=redacted, secrets=secrets, redacted_key=key)

    def write_keys(self, rules: Rules, incoming: Incoming, mode: Mode) -> list[bytes]:
        """The counters of the writes that `plan` looks at; none for what a take answers again."""
        request, policy = incoming.request, MODE_POLICIES[mode]
        if not (policy.replays and policy.asks):
            return []
        if calls_model(request) or is_reused(rules, request):
            return []
        return [write_key(route) for route in routes_of(incoming)]

    def keys(self, head: CassetteHead, rules: Rules, incoming: Incoming) -> list[bytes]:
        """The match keys under which `plan` looks first."""
        self._last = asked = _received_request(head, rules, incoming)
        return [key_on_route(asked.key, route) for route in routes_of(incoming)]

    def _as_stored(
        self, head: CassetteHead, rules: Rules, request: Request, incoming: Incoming
    ) -> tuple[Request, tuple[Secret, ...]]:
        """A form of an incoming request as the cassette would store it, and its secrets."""
        large = incoming.large_for(head, rules)
        if large is not None and large.redacted is not None and large.asked.request is request:
            return large.redacted, large.secrets
        stored, secrets = self._redaction.redact_and_learn(head.run_id, request, rules)
        if (digests := incoming.large_body) is None or digests.stored is None:
            return stored, secrets
        return replace(stored, file=digests.stored), (*secrets, *digests.secrets)

    def _other_keys(
        self, head: CassetteHead, asked: ReceivedRequest, redacted: Request, incoming: Incoming
    ) -> Iterator[bytes]:
        """The match keys of a request as others stored it: earlier versions, other processes."""
        request, rules = asked.request, asked.rules
        if incoming.large_body is not None:
            for file in incoming.large_body.others:
                yield request_key(replace(redacted, file=file), rules)
        elif redacted.body != request.body:
            older = self._redaction.as_of_earlier_versions(head.run_id, request, rules)
            if older.body != redacted.body:
                yield request_key(older, rules)

    def _aliases(
        self,
        rules: Rules,
        incoming: Incoming,
        redacted: Request,
        origins: Iterable[str],
    ) -> Iterator[bytes]:
        request = incoming.request
        own = [origin for origin in origins if self._is_at(origin, request.route)]
        yield from request_aliases(request, redacted, own, rules)
        if incoming.route_guessed and request.route != DEFAULT_ROUTE:
            others = [origin for origin in origins if self._is_at(origin, DEFAULT_ROUTE)]
            whole = replace(request, route=DEFAULT_ROUTE, base="")
            if others:
                yield from request_aliases(whole, redacted, others, rules)

    def _is_at(self, origin: str, route: str) -> bool:
        routes = [*self._routes.routes.values()]
        if self._routes.default is not None:
            routes.append(self._routes.default)
        names = [
            candidate.name
            for candidate in routes
            if candidate.url and same_origin(origin, candidate.url)
        ]
        return route in (names or [DEFAULT_ROUTE])

    def _aliases_in(
        self, cassette: CassetteIndex, incoming: Incoming, redacted: Request
    ) -> Sequence[bytes]:
        origins = cassette.aliases.origins
        return list(self._aliases(cassette.rules, incoming, redacted, origins))

    def _miss(
        self,
        cassette: CassetteIndex,
        take: Take,
        redacted: Request,
        key: bytes,
        why: Why,
        asked: ReceivedRequest,
        incoming: Incoming,
    ) -> Miss:
        if incoming.route_guessed and not cassette.has_route(redacted.route):
            if cassette.has_route(DEFAULT_ROUTE):
                # Its recordings would answer, so the guessed route must not show as a difference.
                redacted = replace(redacted, route=DEFAULT_ROUTE)
            elif redacted.route == DEFAULT_ROUTE:
                raise no_route_error(self._routes, redacted.route, redacted.target)
        miss = Miss(cassette.name, redacted, key, searched=cassette)
        if used_up := why.used_up(asked, take):
            own = tuple([index for index in used_up if cassette.in_base(index) is None])
            if own:
                return replace(miss, used_up=own)
            return replace(
                miss, note=f"its base has it, {len(used_up)} times, all used in this take"
            )
        told_apart = why.told_apart(asked)
        if not told_apart:
            return miss
        names = dict.fromkeys(
            name for recording in why.recordings for name in recording.request.varied
        )
        redactor = self._redaction.redactor(cassette.head.run_id, asked.request)
        shown = with_fields(miss.request, asked.request.headers, names, redactor)
        shown = replace(shown, varied=tuple(names))
        return replace(miss, request=shown, note=_reasons_text(told_apart))


def _is_unread(digests: LargeBodyDigests | None, cassette: CassetteIndex) -> bool:
    """Whether a large body was not compared with all placeholders that the cassette has by now."""
    return digests is not None and (
        digests.stored is None or digests.compared != cassette.placeholders.count
    )


def _before_text(cassette: CassetteIndex, left: Sequence[Interaction]) -> str:
    """Why the service is not asked although the mode asks."""
    if (base := cassette.base) is None or not left:
        return ""
    following = left[0].request
    return (
        f", which asks the service once the first {base.until} recordings of '{base.cassette}' have "
        f"answered: {len(left)} have not, and {following.method} "
        f"{following.target.partition('?')[0]} is the next"
    )


def is_large(request: Request) -> bool:
    """Whether the body is large enough to be read in a thread."""
    return request.file is not None or len(request.body) > READ_AT_ONCE


def _stored_key(
    asked: ReceivedRequest, redacted: Request, large: LargeRequest | None = None
) -> bytes:
    """The match key of a request as it will be stored."""
    if large is not None and redacted is large.redacted:
        return large.redacted_key
    request = asked.request
    unchanged = (redacted.target, redacted.body, redacted.file) == (
        *(request.target, request.body, request.file),
    )
    if unchanged and not asked.rules.match and _keeps_what_selects(redacted, request):
        return asked.key
    return request_key(redacted, asked.rules)


def _reasons_text(why: Mapping[int, str]) -> str:
    """Why recordings of a request do not answer, in one line."""
    by_reason: dict[str, list[int]] = {}
    for index, reason in why.items():
        by_reason.setdefault(reason, []).append(index)
    lines = [
        f"{', '.join([f'#{index}' for index in indexes[:_MOST_NAMED]])}"
        f"{' …' if len(indexes) > _MOST_NAMED else ''}: {reason}"
        for reason, indexes in by_reason.items()
    ]
    return "; ".join(lines)


def _keeps_what_selects(redacted: Request, request: Request) -> bool:
    """Whether nothing was replaced in the fields that belong to the match key."""
    return all(field in redacted.headers for field in selecting_fields(request))


def _read_of(redacted: Request, asked: ReceivedRequest) -> ReadJson | None:
    """The parsed body of a redacted request; None for a large body, which would fill the memory."""
    read = asked.read
    if read is None or not read.exact or redacted.body is not asked.request.body:
        return None
    return None if is_large(redacted) else read


def routes_of(incoming: Incoming) -> tuple[str, ...]:
    """The routes whose recordings answer: a route read off the path may be nobody's."""
    route = incoming.request.route
    return (route, DEFAULT_ROUTE) if incoming.route_guessed else (route,)


def _received_request(head: CassetteHead, rules: Rules, incoming: Incoming) -> ReceivedRequest:
    """The request as a cassette with some rules looks for recordings."""
    if (large := incoming.large_for(head, rules)) is not None:
        return large.asked
    digests = SecretDigests(head.run_id)
    return ReceivedRequest(_with_digest(incoming), rules, digests, incoming.keyed)


def _with_digest(incoming: Incoming) -> Request:
    request, digests = incoming.request, incoming.large_body
    return request if digests is None else digests.as_sent(request)
