"""Decides what to do with a request: replay a recording, ask the upstream, or report a miss."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from tapeway.core.agenttape.lookup import request_aliases, uses_agenttape_keys
from tapeway.core.agenttape.sdk_calls import in_requested_form
from tapeway.core.cassette.agenttape_lookup import form_mismatch, next_by_alias, used_by_alias
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Ask, Incoming, Plan, Replay
from tapeway.core.http.location import same_origin
from tapeway.core.http.routing import DEFAULT_ROUTE, RouteTable, no_route_error
from tapeway.core.matching.key import RedactedRequest, RequestRedaction, key_on_route
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.miss import Miss
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.control import MODE_POLICIES, Mode, Repeats
from tapeway.core.model.messages import Request
from tapeway.engine.large_bodies import digest_large_body

_FOUND_BY_ALIAS = "recognised by a key that AgentTape gave it"


class Planner:
    """Computes the key of a request and looks it up in a cassette, as the mode says."""

    def __init__(
        self, redaction: RequestRedaction, routes: RouteTable, repeats: Repeats | None
    ) -> None:
        self._redaction = redaction
        self._routes = routes
        self._repeats = repeats

    def plan(self, cassette: CassetteIndex, incoming: Incoming, mode: Mode) -> Plan:
        """Decide, without waiting. Raises NoRoute if no recording answers and no route has a URL."""
        if incoming.take is not None and incoming.take != cassette.take.number:
            with cassette.in_take(incoming.take):
                return self.plan(cassette, incoming, mode)
        request, policy = incoming.request, MODE_POLICIES[mode]
        digested = request if incoming.large_body is None else _with_digest(incoming)
        keyed = self._redaction.redact(cassette.head.run_id, digested, cassette.rules)
        redacted, key, variant = keyed.request, keyed.key, keyed.variant
        if policy.replays:
            if incoming.route_guessed and key not in cassette:
                key = self._default_route_key(cassette, key, incoming)
            found = cassette.next(key, self._repeats, variant, can_ask=policy.asks, asked=redacted)
            if found is not None:
                if found.stored_keys:
                    found = in_requested_form(found, request)
                return Replay(cassette, found, redacted.target, key)
            # Few cassettes have aliases, and computing those of a large body takes time.
            aliases = self._aliases_in(cassette, incoming, redacted) if cassette.aliases else ()
            if aliases and (by_alias := self._by_alias(cassette, aliases, request, redacted)):
                return by_alias
            if not policy.asks:
                miss = self._miss(cassette, keyed, key, incoming)
                if not aliases:
                    return miss
                used_up = miss.used_up or used_by_alias(cassette, aliases, request)
                note = form_mismatch(cassette, aliases, request)
                return replace(miss, used_up=used_up, note=note)
        if not request.base:
            raise no_route_error(self._routes, redacted.route, redacted.target)
        return Ask(
            *(cassette, cassette.take, policy, request, redacted, keyed.key, variant),
            incoming=incoming,
        )

    def _by_alias(
        self, cassette: CassetteIndex, aliases: Sequence[bytes], request: Request, redacted: Request
    ) -> Replay | None:
        found = next_by_alias(cassette, aliases, request, self._repeats)
        if found is None:
            return None
        key = cassette.key_of(found.index)
        return Replay(
            cassette, in_requested_form(found, request), redacted.target, key, _FOUND_BY_ALIAS
        )

    async def with_body_digest(self, head: CassetteHead, incoming: Incoming) -> Incoming:
        """The request with the digests of its large body, which is read in threads.

        Raises StoreError.
        """
        if incoming.request.file is None or incoming.large_body is not None:
            return incoming
        redactor = self._redaction.redactor(head.run_id, incoming.request)
        return incoming._replace(large_body=await digest_large_body(incoming.request, redactor))

    def keys(self, head: CassetteHead, rules: Rules, incoming: Incoming) -> Iterator[bytes]:
        """All keys under which `plan` may look for a recording."""
        key = self._redact(head, rules, _with_digest(incoming)).key
        yield key
        if incoming.route_guessed:
            yield key_on_route(key, DEFAULT_ROUTE)
            if incoming.original_target is not None:
                yield self._redact(head, rules, _as_sent(incoming)).key

    def aliases(
        self, head: CassetteHead, rules: Rules, incoming: Incoming, origins: Iterable[str]
    ) -> list[bytes]:
        """The aliases under which `plan` may look, in a cassette whose recordings have some.

        `origins` are those at which its recordings without a route were made.
        """
        redacted = self._redact(head, rules, _with_digest(incoming)).request
        return list(self._aliases(head, rules, incoming, redacted, origins))

    def whole_path_key(self, head: CassetteHead, rules: Rules, incoming: Incoming) -> bytes:
        """The key of the same request with its route's own path before its target."""
        request = _with_digest(incoming)
        target = urlsplit(request.base).path.rstrip("/") + request.target
        return self._redact(head, rules, replace(request, target=target)).key

    def _redact(self, head: CassetteHead, rules: Rules, request: Request) -> RedactedRequest:
        return self._redaction.redact(head.run_id, request, rules)

    def _aliases(
        self,
        head: CassetteHead,
        rules: Rules,
        incoming: Incoming,
        redacted: Request,
        origins: Iterable[str],
    ) -> Iterator[bytes]:
        request = incoming.request
        origins = list(origins) if uses_agenttape_keys(head.meta) else []
        own = [each for each in origins if self._is_at(each, request.route)]
        yield from request_aliases(request, redacted, own, rules)
        if incoming.route_guessed and request.route != DEFAULT_ROUTE:
            others = [each for each in origins if self._is_at(each, DEFAULT_ROUTE)]
            target = incoming.original_target or request.target
            whole = replace(request, route=DEFAULT_ROUTE, target=target, base="")
            if others:
                yield from request_aliases(whole, redacted, others, rules)

    def _is_at(self, origin: str, route: str) -> bool:
        routes = [*self._routes.routes.values()]
        if self._routes.default is not None:
            routes.append(self._routes.default)
        names = [each.name for each in routes if each.url and same_origin(origin, each.url)]
        return route in (names or [DEFAULT_ROUTE])

    def _aliases_in(
        self, cassette: CassetteIndex, incoming: Incoming, redacted: Request
    ) -> Sequence[bytes]:
        origins = cassette.aliases.origins
        return list(self._aliases(cassette.head, cassette.rules, incoming, redacted, origins))

    def _default_route_key(self, cassette: CassetteIndex, key: bytes, incoming: Incoming) -> bytes:
        """The key of the same request on the default route, if something is recorded there."""
        if (default := key_on_route(key, DEFAULT_ROUTE)) in cassette:
            return default
        if incoming.original_target is not None:
            sent = _as_sent(incoming)
            default = self._redact(cassette.head, cassette.rules, sent).key
        return default if default in cassette else key

    def _miss(
        self, cassette: CassetteIndex, keyed: RedactedRequest, key: bytes, incoming: Incoming
    ) -> Miss:
        redacted = keyed.request
        if incoming.route_guessed and not cassette.has_route(redacted.route):
            if cassette.has_route(DEFAULT_ROUTE):
                # Its recordings would answer, so the guessed route must not show as a difference.
                redacted = replace(redacted, route=DEFAULT_ROUTE)
            elif redacted.route == DEFAULT_ROUTE:
                raise no_route_error(self._routes, redacted.route, redacted.target)
        used_up = cassette.indexes(key, keyed.variant)
        return Miss(cassette.name, redacted, key, keyed.variant, used_up, searched=cassette)


def _with_digest(incoming: Incoming) -> Request:
    if incoming.large_body is None:
        return incoming.request
    return replace(incoming.request, file=incoming.large_body)


def _as_sent(incoming: Incoming) -> Request:
    return replace(incoming.request, route=DEFAULT_ROUTE, target=incoming.original_target or "")
