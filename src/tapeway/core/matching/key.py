"""The match key of a request: two requests are equal when their keys are.

The key covers route, method, decoded path, query pairs, a canonical body, the deciding header fields
and header fields named by a rule (`core/matching/document.py`). No secret is searched for or
replaced: a look-up costs a parse, a canonical form and a hash.
"""

import hashlib
from functools import lru_cache
from typing import NamedTuple

from tapeway.core.digests import sha256
from tapeway.core.json_text import Json, ReadJson, canonical
from tapeway.core.matching import document
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.messages import Headers, Request
from tapeway.core.model.values import value_class


@value_class
class KeyAndBody:
    """A match key under some rules."""

    key: bytes
    read: ReadJson | None
    """What the body was read as, where that is plain JSON and no rule applies."""
    rules: Rules = NO_RULES


class HeadKey(NamedTuple):
    """What the head of a request says in its match key; with a body it makes the key."""

    route: bytes
    frame: bytes

    def with_body(self, kind: bytes, body: bytes) -> bytes:
        """The match key of a request with this canonical body, read as `kind`."""
        digest = sha256(b"%b%b:%b" % (self.frame, kind, body)).digest()
        return b"%b\0%b" % (self.route, digest)

    def begun(self, kind: bytes) -> "hashlib._Hash":
        """The digest that `with_body` makes for bodies read as `kind`, before it has the body."""
        return sha256(b"%b%b:" % (self.frame, kind))


def request_key(request: Request, rules: Rules = NO_RULES) -> bytes:
    """The match key of a request, received or stored: `route NUL digest`."""
    return key_and_body(request, rules).key


def key_and_body(request: Request, rules: Rules) -> KeyAndBody:
    """The match key, and what the body was read as."""
    if rules is not NO_RULES and rules:
        parsed = document.parsed_request(request, rules)
        return KeyAndBody(document_key(request.route, parsed, rules), None, rules)
    fields, read, head = request.fields, None, head_key(request)
    if fields.is_plain_json and request.body and request.file is None:
        # Nearly every request; its value is read and written, and nothing else is done with it.
        read = document.read_json(request.body)
    kind, body = _counted(read) if read is not None else _canonical_body(request)
    return KeyAndBody(head.with_body(kind, body), read, rules)


def key_of_read(request: Request, read: ReadJson) -> bytes:
    """The match key of a plain JSON request without rules, whose body was read already."""
    return head_key(request).with_body(*_counted(read))


def head_key(request: Request) -> HeadKey:
    """The part of a match key without rules that does not depend on the body."""
    fields = document.selecting_fields(request)
    return _selecting_head(request.route, request.method, request.target, fields)


@lru_cache(maxsize=1024)
def _selecting_head(route: str, method: str, target: str, selecting: Headers) -> HeadKey:
    # Remembered, since a client uses few paths with nearly every request.
    path, _, query = target.partition("?")
    headers = document.key_headers(selecting)
    return _head(
        route,
        method,
        path if path.isascii() and "%" not in path else document.decoded_path(path),
        canonical(document.query_values(query)) if query else b"{}",
        canonical(headers) if headers else b"",
    )


def document_key(route: str, parsed: dict[str, Json], rules: Rules) -> bytes:
    """The match key of a parsed request, equal to `request_key` of the request."""
    if rules:
        text = canonical(document.with_rules(parsed, rules))
        return route.encode() + b"\0" + sha256(text).digest()
    headers = parsed["headers"]
    head = _head(
        route,
        str(parsed["method"]),
        str(parsed["path"]),
        canonical(parsed["query"]),
        canonical(headers) if headers else b"",
    )
    return head.with_body(str(parsed["content"]).encode(), canonical(parsed["body"]))


def key_digest(key: bytes) -> bytes:
    """A match key without its route."""
    return key[key.index(b"\0") + 1 :]


def key_on_route(key: bytes, route: str) -> bytes:
    """The key that the request would have on a different route."""
    start = route.encode() + b"\0"
    return key if key.startswith(start) else start + key_digest(key)


def key_text(key: bytes) -> str:
    """A match key as it is shown to people."""
    return "v1:" + key_digest(key).hex()


def _head(route: str, method: str, path: str, query: bytes, headers: bytes) -> HeadKey:
    # With their lengths, two different divisions of the same bytes have different keys.
    name, place = method.encode(), path.encode()
    frame = b"%d:%b%d:%b%d:%b" % (len(name), name, len(place), place, len(query), query)
    if headers:
        frame += b"%d:%b" % (len(headers), headers)
    return HeadKey(route.encode(), frame)


def _counted(read: ReadJson) -> tuple[bytes, bytes]:
    return b"json", document.counted(read).canonical


def _canonical_body(request: Request) -> tuple[bytes, bytes]:
    """How a body was read, and its canonical form."""
    header = request.fields
    if (
        request.body
        and request.file is None
        and document.may_be_json(header.content_type, request.body)
    ):
        plain, decoded = document.decoded_body(header, request.body)
        read = document.read_json(plain) if decoded else None
        if read is not None:
            return _counted(read)
    content, value = document.body_value(request)
    return content.encode(), canonical(value)
