"""The match key of a request: two requests are equal when their keys are.

Route, method, decoded path, query pairs and a canonical body go in; headers do not, unless a rule
names them (`core/matching/document.py` says what each of those is). The key is made of the redacted
request, so that a recording has the key its request had.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from tapeway.core.http import headers
from tapeway.core.http.headers import STORED_REQUEST_HEADERS
from tapeway.core.json_text import canonical
from tapeway.core.matching import document
from tapeway.core.matching.header_distance import stored_credentials
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.messages import Headers, Request
from tapeway.core.redaction.credentials import (
    Secret,
    request_head_credentials,
    userinfo_credentials,
)
from tapeway.core.redaction.known_values import KnownValues
from tapeway.core.redaction.leak_guard import LeakGuard
from tapeway.core.redaction.redactor import Redactor

CACHED_REQUESTS = 512
"""Tests poll, retry and ask the same again."""

CACHED_BODY = 16 * 1024
"""Requests with larger bodies are not cached: the cache holds at most 8 MiB of bodies."""


def request_key(request: Request, rules: Rules = NO_RULES) -> bytes:
    """The match key of an already redacted request: `route NUL digest`."""
    if rules:
        text = canonical(document.request_document(request, rules))
        return request.route.encode() + b"\0" + hashlib.sha256(text).digest()
    path, _, query = request.target.partition("?")
    kind, body = _canonical_body(request)
    method, text = request.method.encode(), document.decoded_path(path).encode()
    pairs = canonical(document.query_values(query)) if query else b"{}"
    # With their lengths, two different divisions of the same bytes have different keys.
    frame = b"%d:%b%d:%b%d:%b%b:" % (len(method), method, len(text), text, len(pairs), pairs, kind)
    return request.route.encode() + b"\0" + hashlib.sha256(frame + body).digest()


def credential_variant(request: Request) -> bytes:
    """The credential placeholders in a redacted request's target and body, b"" without any.

    It is a secondary key, such as `Vary` makes for an HTTP cache. A paging token is a credential
    too: where several are recorded under one key, each answers for itself. Where only one is
    recorded, such as an API key, it answers for any other.
    """
    target = request.target.encode("utf-8", "surrogateescape")
    if b"REDACTED." not in target and b"REDACTED." not in request.body:
        return b""
    found = document.CREDENTIAL_PLACEHOLDER.findall(
        target
    ) + document.CREDENTIAL_PLACEHOLDER.findall(request.body)
    return b" ".join(sorted(found))


def key_digest(key: bytes) -> bytes:
    """A match key without its route."""
    return key[key.index(b"\0") + 1 :]


def key_on_route(key: bytes, route: str) -> bytes:
    """The key the same request would have on another route."""
    return route.encode() + key[key.index(b"\0") :]


def key_text(key: bytes) -> str:
    """A match key as it is shown to people."""
    return "v1:" + key_digest(key).hex()


@dataclass(frozen=True, slots=True)
class RedactedRequest:
    """A request as a cassette stores it, its match key and its credential variant."""

    request: Request
    key: bytes
    variant: bytes


class RequestRedaction:
    """Redacts requests and computes their keys.

    Secrets are those a request carries and the process's own, `known`.
    """

    def __init__(self, known: Sequence[Secret] = ()) -> None:
        self._values = KnownValues(known)
        self._cached_redactor = lru_cache(maxsize=256)(partial(Redactor, known=self._values))
        self._cached_guard = lru_cache(maxsize=256)(partial(LeakGuard, known=self._values))
        self._cached_redact = lru_cache(maxsize=CACHED_REQUESTS)(self._redact)

    def redact(self, salt: str, request: Request, rules: Rules = NO_RULES) -> RedactedRequest:
        """The request as the cassette with this salt and these rules would store it."""
        if len(request.body) > CACHED_BODY:
            return self._redact(salt, request, rules)
        return self._cached_redact(salt, request, rules)

    def redactor(self, salt: str, request: Request, more: Sequence[Secret] = ()) -> Redactor:
        """Replaces this request's secrets, the process's, and `more`."""
        return self._cached_redactor(salt, (*self._secrets(request), *more))

    def guard(self, request: Request) -> LeakGuard:
        """The guard that refuses to write this request's secrets, or the process's."""
        return self._cached_guard(self._secrets(request))

    def _redact(self, salt: str, request: Request, rules: Rules) -> RedactedRequest:
        redactor = self._cached_redactor(salt, _head_secrets(request))
        redacted = redactor.request(
            request, stored_credentials(request.headers, redactor.placeholder)
        )
        if more := _matched_fields(request.headers, rules):
            fields = tuple([(name, redactor.value(value)) for name, value in more])
            redacted = replace(redacted, headers=redacted.headers + fields)
        return RedactedRequest(redacted, request_key(redacted, rules), credential_variant(redacted))

    def _secrets(self, request: Request) -> tuple[Secret, ...]:
        head = _head_secrets(request)
        return (*head, *self._cached_redactor("", head).body_secrets(request))


def _canonical_body(request: Request) -> tuple[bytes, bytes]:
    """How a body was read, and its canonical form."""
    header = headers.request_fields(request.headers)
    if (
        request.body
        and request.file is None
        and document.may_be_json(header.content_type, request.body)
    ):
        plain, decoded = document.decoded_body(header, request.body)
        read = document.read_json(plain) if decoded else None
        if read is not None:
            return b"json", read[1]
    content, value = document.body_value(request)
    return content.encode(), canonical(value)


def _head_secrets(request: Request) -> tuple[Secret, ...]:
    userinfo = userinfo_credentials(request.base) if "@" in request.base else ()
    return (*userinfo, *request_head_credentials(request.headers, request.target))


def _matched_fields(headers: Headers, rules: Rules) -> Headers:
    """The fields that are stored only because a `match` rule names them."""
    if not rules.match:
        return ()
    names = {name.encode() for name in rules.match} - STORED_REQUEST_HEADERS
    return tuple([pair for pair in headers if pair[0].lower() in names])
