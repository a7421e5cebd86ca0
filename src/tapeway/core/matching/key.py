"""The match key: two requests are equal when their keys are.

Route, method, decoded path, query pairs and a canonical body go in; headers do not, unless a rule
names them. What each of those is, `core/subject.py` says; here it becomes a short name.

What a request is to a cassette: redacted as it would be stored, and its match key.

Tests poll, retry and ask the same again, so what was recognised lately is remembered.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from tapeway.core.http import headers
from tapeway.core.http.headers import STORED_REQUEST_HEADERS
from tapeway.core.json_text import canonical
from tapeway.core.matching import document
from tapeway.core.matching.header_distance import trace
from tapeway.core.matching.rules import NONE, Rules
from tapeway.core.model.messages import Headers, Request
from tapeway.core.redaction.credentials import Secret, of_request_head, of_userinfo
from tapeway.core.redaction.known_values import KnownValues
from tapeway.core.redaction.leak_guard import LeakGuard
from tapeway.core.redaction.redactor import Redactor

REMEMBERED = 512

REMEMBERED_BODY = 16 * 1024
"""Larger bodies are recognised anew: at most 8 MiB of them are kept for this."""


def request_key(request: Request, rules: Rules = NONE) -> bytes:
    """The match key of an already redacted request: `route NUL digest`."""
    if rules:
        said = canonical(document.document(request, rules))
        return request.route.encode() + b"\0" + hashlib.sha256(said).digest()
    path, _, query = request.target.partition("?")
    tag, body = _body(request)
    method, where = request.method.encode(), document.path(path).encode()
    asked = canonical(document.query(query)) if query else b"{}"
    # Lengths keep two different divisions of the same bytes apart.
    frame = b"%d:%b%d:%b%d:%b%b:" % (len(method), method, len(where), where, len(asked), asked, tag)
    return request.route.encode() + b"\0" + hashlib.sha256(frame + body).digest()


def credential_mark(request: Request) -> bytes:
    """What tells requests of one key apart by the credentials they carried, empty without any.

    It tells a paging token from an API key: of the first a cassette holds several, and each
    answers for itself; of the second it holds one, and that answers for any other.
    """
    target = request.target.encode("utf-8", "surrogateescape")
    if b"REDACTED." not in target and b"REDACTED." not in request.body:
        return b""
    found = document.CREDENTIAL.findall(target) + document.CREDENTIAL.findall(request.body)
    return b" ".join(sorted(found))


def digest_of(key: bytes) -> bytes:
    """A match key without its route."""
    return key[key.index(b"\0") + 1 :]


def on_route(key: bytes, route: str) -> bytes:
    """The key the same request would have on another route."""
    return route.encode() + key[key.index(b"\0") :]


def key_text(key: bytes) -> str:
    """A match key as it is shown to people."""
    return "v1:" + digest_of(key).hex()


def _body(request: Request) -> tuple[bytes, bytes]:
    """The kind of a body and its canonical form; a JSON one is not taken apart any further."""
    header = headers.request_fields(request.headers)
    if (
        request.body
        and request.file is None
        and document.may_be_json(header.content_type, request.body)
    ):
        plain, readable = document.readable_body(header, request.body)
        read = document.read_json(plain) if readable else None
        if read is not None:
            return b"json", read[1]
    content, value = document.body(request)
    return content.encode(), canonical(value)


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
        self._guard = lru_cache(maxsize=256)(partial(LeakGuard, known=self._values))
        self._remembered = lru_cache(maxsize=REMEMBERED)(self._look)

    def recognise(self, salt: str, request: Request, rules: Rules = NONE) -> Recognised:
        """The request as the cassette with this salt and these rules would hold it."""
        if len(request.body) > REMEMBERED_BODY:
            return self._look(salt, request, rules)
        return self._remembered(salt, request, rules)

    def redactor(self, salt: str, request: Request, more: Sequence[Secret] = ()) -> Redactor:
        """What takes this request's secrets, the process's, and `more` out of anything."""
        return self._redactor(salt, (*self._carried(request), *more))

    def guard(self, request: Request) -> LeakGuard:
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
