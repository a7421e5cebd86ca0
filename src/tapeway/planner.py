"""What is to be done with a request: the decision, taken without waiting for anything."""

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

from tapeway.core.cassette import Cassette
from tapeway.core.matching import on_route
from tapeway.core.miss import Miss
from tapeway.core.model import CassetteHead, Request
from tapeway.core.modes import RULES, Mode, Repeats
from tapeway.core.plan import Ask, Incoming, Plan, Replay
from tapeway.core.recognition import Recognised, Recogniser
from tapeway.core.routing import DEFAULT, RouteTable, refuse
from tapeway.core.rules import Rules
from tapeway.keeping import digest_of


class Planner:
    """Recognises a request and looks for it in a cassette, as the mode asks for."""

    def __init__(self, recogniser: Recogniser, routes: RouteTable, repeats: Repeats | None) -> None:
        self._recogniser = recogniser
        self._routes = routes
        self._repeats = repeats

    def plan(self, cassette: Cassette, incoming: Incoming, mode: Mode) -> Plan:
        """Decide. Raises NoRoute where no recording answers and nobody could be asked."""
        request, rules = incoming.request, RULES[mode]
        seen = self._recognise(cassette.head, cassette.rules, _known(incoming))
        redacted, key, mark = seen.redacted, seen.key, seen.mark
        if rules.replays:
            held = self._held_key(cassette, key, incoming)
            found = cassette.next(held, self._repeats, mark, could_ask=rules.asks, asked=redacted)
            if found is not None:
                return Replay(cassette, found, redacted.target, held)
            if not rules.asks:
                return self._miss(cassette, seen, held, incoming)
        if not request.base:
            raise refuse(self._routes, redacted.route, redacted.target)
        return Ask(cassette, cassette.take, rules, request, redacted, key, mark, came=incoming)

    async def digested(self, head: CassetteHead, incoming: Incoming) -> Incoming:
        """What came with what its large body is known by: that is read through in a thread."""
        if incoming.request.file is None or incoming.digest is not None:
            return incoming
        redactor = self._recogniser.redactor(head.run_id, incoming.request)
        return incoming._replace(digest=await digest_of(incoming.request, redactor))

    def keys(self, head: CassetteHead, rules: Rules, incoming: Incoming) -> Iterator[bytes]:
        """All keys under which `plan` may look for a recording."""
        key = self._recognise(head, rules, _known(incoming)).key
        yield key
        if incoming.guessed:
            yield on_route(key, DEFAULT)
            if incoming.written is not None:
                yield self._recognise(head, rules, _as_written(incoming)).key

    def whole_path_key(self, head: CassetteHead, rules: Rules, incoming: Incoming) -> bytes:
        """The key of the same request with its route's own path before its target."""
        request = _known(incoming)
        target = urlsplit(request.base).path.rstrip("/") + request.target
        return self._recognise(head, rules, replace(request, target=target)).key

    def _recognise(self, head: CassetteHead, rules: Rules, request: Request) -> Recognised:
        return self._recogniser.recognise(head.run_id, request, rules)

    def _held_key(self, cassette: Cassette, key: bytes, incoming: Incoming) -> bytes:
        """The key to look under: a recording of the default route answers where no other does."""
        if not incoming.guessed or key in cassette:
            return key
        if (default := on_route(key, DEFAULT)) in cassette:
            return default
        if incoming.written is not None:
            written = _as_written(incoming)
            default = self._recognise(cassette.head, cassette.rules, written).key
        return default if default in cassette else key

    def _miss(self, cassette: Cassette, seen: Recognised, key: bytes, incoming: Incoming) -> Miss:
        redacted = seen.redacted
        if incoming.guessed and not cassette.has_route(redacted.route):
            if cassette.has_route(DEFAULT):
                # That would answer: which route was guessed is no difference.
                redacted = replace(redacted, route=DEFAULT)
            elif redacted.route == DEFAULT:
                raise refuse(self._routes, redacted.route, redacted.target)
        return Miss(cassette.name, redacted, key, seen.mark, cassette.indexes(key, seen.mark))


def _known(incoming: Incoming) -> Request:
    if incoming.digest is None:
        return incoming.request
    return replace(incoming.request, file=incoming.digest)


def _as_written(incoming: Incoming) -> Request:
    return replace(incoming.request, route=DEFAULT, target=incoming.written or "")
