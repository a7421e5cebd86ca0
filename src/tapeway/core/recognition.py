"""What a request is to a cassette: redacted as it would be stored, and its match key.

Tests poll, retry and ask the same again, so what was recognised lately is remembered.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from tapeway.core.credentials import Secret, of_request_head, of_userinfo
from tapeway.core.guard import Guard
from tapeway.core.headers import STORED_REQUEST_HEADERS
from tapeway.core.known_values import KnownValues
from tapeway.core.likeness import trace
from tapeway.core.matching import credential_mark, request_key
from tapeway.core.model import Headers, Request
from tapeway.core.redaction import Redactor
from tapeway.core.rules import NONE, Rules

REMEMBERED = 512
REMEMBERED_BODY = 16 * 1024
"""Larger bodies are recognised anew: at most 8 MiB of them are kept for this."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """A request without its secrets, the key made from that, and which secrets those were."""

    redacted: Request
    key: bytes
    mark: bytes


class Recogniser:
    """Recognises requests, knowing the process's own secrets besides each request's."""

    def __init__(self, known: Sequence[Secret] = ()) -> None:
        self._known = tuple(known)
        self._values = KnownValues(known)
        self._redactor = lru_cache(maxsize=256)(self._made)
        self._guard = lru_cache(maxsize=256)(partial(Guard, known=self._values))
        self._remembered = lru_cache(maxsize=REMEMBERED)(self._look)

    def recognise(self, salt: str, request: Request, rules: Rules = NONE) -> Recognised:
        """The request as the cassette with this salt and these rules would hold it."""
        if len(request.body) > REMEMBERED_BODY:
            return self._look(salt, request, rules)
        return self._remembered(salt, request, rules)

    def redactor(self, salt: str, request: Request, more: Sequence[Secret] = ()) -> Redactor:
        """What takes this request's secrets, the process's, and `more` out of anything."""
        return self._redactor(salt, (*self._carried(request), *more))

    def guard(self, request: Request) -> Guard:
        """What refuses to have this request's secrets, or the process's, written anywhere."""
        return self._guard(self._carried(request))

    def _carried(self, request: Request) -> tuple[Secret, ...]:
        shown = self._shown(request)
        return (*shown, *self._redactor("", shown).in_body(request))

    def _shown(self, request: Request) -> tuple[Secret, ...]:
        shown = of_request_head(request.headers, request.target)
        given = of_userinfo(request.base) if "@" in request.base else ()
        return (*given, *shown)

    def _made(self, salt: str, secrets: tuple[Secret, ...]) -> Redactor:
        return Redactor(salt, secrets, self._values)

    def _look(self, salt: str, request: Request, rules: Rules) -> Recognised:
        redactor = self._redactor(salt, self._shown(request))
        redacted = redactor.request(request, trace(request.headers, redactor.placeholder))
        if more := _matched(request.headers, rules):
            kept = tuple([(name, redactor.value(value)) for name, value in more])
            redacted = replace(redacted, headers=redacted.headers + kept)
        return Recognised(redacted, request_key(redacted, rules), credential_mark(redacted))


def _matched(headers: Headers, rules: Rules) -> Headers:
    """The fields that a rule makes count and that a cassette would not hold otherwise."""
    if not rules.match:
        return ()
    names = {name.encode() for name in rules.match} - STORED_REQUEST_HEADERS
    return tuple([pair for pair in headers if pair[0].lower() in names])
