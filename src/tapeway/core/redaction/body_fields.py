"""Finds secrets in a body by the name of their field: JSON at any depth, forms, multipart, XML.

JSON is searched, not parsed, so that it is found in event streams, in lines, in parts of forms and
inside strings of other JSON, and truncated JSON hides nothing. Only strings and numbers are values:
a schema with a property `password` keeps its description.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import unquote_plus, unquote_to_bytes

from tapeway.core.http import forms
from tapeway.core.http.headers import media_type
from tapeway.core.redaction import secret_names
from tapeway.core.redaction.credentials import OAUTH_QUERY, Secret
from tapeway.core.redaction.patterns import compile_for_bytes
from tapeway.core.redaction.spans import PLACEHOLDER, Span, label_for

_LONGEST_NAME = 80
_SPACE = re.compile(rb"(?:\s|\\+[nrt])*")
_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*")
_MEMBER_VALUE = (
    rb"(?:\s|\\+[nrt])*%b[^{}]*?(?<![A-Za-z_])value%b(?:\s|\\+[nrt])*:(?:\s|\\+[nrt])*%b"
)
_QUOTE = re.compile(rb'(?<!\\)(\\*)"')
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_PART_NAME = re.compile(
    rb"""^content-disposition:[^\r\n]*?;[ \t]*name\*?=(?:"((?:[^"\\\r\n]|\\.)*)"|([^;\s]+))""",
    re.IGNORECASE | re.MULTILINE,
)
_PAIR = re.compile(rb"(?:\A|(?<=&))([^=&]+)=([^&]+)")
# One-time secrets of OAuth, whose names mean nothing elsewhere.
_OAUTH_NAMES = frozenset({"code", "code_verifier", "device_code", "token"})


def find(body: bytes, content_type: bytes, *, in_response: bool) -> list[Span]:
    """Each value whose field's name marks it as a secret."""
    media = media_type(content_type)
    if media == b"application/x-www-form-urlencoded":
        # curl labels every body a form.
        return [*_in_form(body, in_response=in_response), *_in_text(body, in_response=in_response)]
    found = list(_in_parts(body, content_type)) if media.startswith(b"multipart/") else []
    return found + list(_in_text(body, in_response=in_response))


def reads_whole(content_type: bytes) -> bool:
    """Whether a body of this type is searched even where the prefilter finds nothing.

    The prefilter knows names in JSON and XML, not those of forms.
    """
    return content_type[:10].lower() in (b"applicatio", b"multipart/") and (
        b"form" in content_type.lower()
    )


def _in_text(body: bytes, *, in_response: bool) -> Iterator[Span]:
    at = 0
    while (candidate := _candidates().search(body, at)) is not None:
        at = candidate.end()
        if body[at - 1 : at] == b">":
            yield from _in_element(body, at, in_response=in_response)
        else:
            yield from _in_member(body, candidate.start(1), at, in_response=in_response)


def _in_member(body: bytes, name_end: int, value_at: int, *, in_response: bool) -> Iterator[Span]:
    quote = body[name_end : body.index(b'"', name_end) + 1]
    depth = len(quote).bit_length() - 1
    before = body.rfind(b'"', max(0, name_end - _LONGEST_NAME), name_end)
    if len(quote) != 1 << depth or before < 0 or not body.endswith(quote, 0, before + 1):
        return
    name = _unescaped(body[before + 1 : name_end], depth).decode("utf-8", "replace")
    if not secret_names.name_kind(name):
        return
    for span in _value_spans(body, _skip_space(body, value_at), quote, depth):
        value = _unescaped(body[span.start : span.end], depth)
        if _hides_secret(name, value, in_response=in_response):
            yield Span(span.start, span.end, _secret(name, value), span.quote)


def _value_spans(body: bytes, at: int, quote: bytes, depth: int) -> Iterator[Span]:
    if body.startswith(b"[", at):
        at = _skip_space(body, at + 1)
        # A list of numbers is not a list of credentials.
        while (
            body.startswith(quote, at) and (span := _value_span(body, at, quote, depth)) is not None
        ):
            yield span
            at = _skip_space(body, span.end + len(quote))
            if not body.startswith(b",", at):
                return
            at = _skip_space(body, at + 1)
    elif body.startswith(b"{", at):
        # {"client_secret": {"value": "ek_…", "expires_at": 1}}
        inner = re.compile(_MEMBER_VALUE % ((re.escape(quote),) * 3)).match(body, at + 1)
        if inner is not None and (
            span := _value_span(body, inner.end() - len(quote), quote, depth)
        ):
            yield span
    elif (span := _value_span(body, at, quote, depth)) is not None:
        yield span


def _value_span(body: bytes, at: int, quote: bytes, depth: int) -> Span | None:
    if body.startswith(quote, at):
        start = at + len(quote)
        return Span(start, _closing_quote(body, start, depth), None)
    number = _NUMBER.match(body, at)
    return Span(at, number.end(), None, quote) if number is not None else None


def _closing_quote(body: bytes, start: int, depth: int) -> int:
    # At depth 1 a quote closes after 1, 5, 9 … backslashes; with fewer an outer string ends.
    own = (1 << depth) - 1
    for found in _QUOTE.finditer(body, start):
        run = len(found[1])
        if run % (2 << depth) == own:
            return found.end(1) - own
        if run < own:
            return found.start()
    return len(body)


def _unescaped(text: bytes, depth: int) -> bytes:
    if b"\\" not in text:
        return text
    plain = text
    try:
        for _ in range(depth + 1):
            plain = json.loads(b'"%b"' % plain, strict=False).encode()
    except ValueError:
        return text
    return plain


def _skip_space(body: bytes, at: int) -> int:
    space = _SPACE.match(body, at)
    return space.end() if space is not None else at


def _in_element(body: bytes, at: int, *, in_response: bool) -> Iterator[Span]:
    before = body.rfind(b"<", max(0, at - _LONGEST_NAME), at)
    end = body.find(b"<", at) if before >= 0 else -1
    name = body[before + 1 : at - 1].decode("latin-1").rpartition(":")[2] if end >= 0 else "/"
    if name.startswith("/"):
        return
    value = body[at:end]
    if value.strip() and _hides_secret(name, value, in_response=in_response):
        yield Span(at, end, _secret(name, value))


def _in_form(body: bytes, *, in_response: bool) -> Iterator[Span]:
    is_oauth = OAUTH_QUERY.search(body.decode("latin-1")) is not None
    for pair in _PAIR.finditer(body):
        name = unquote_plus(pair[1].decode("latin-1"))
        value = unquote_to_bytes(pair[2].replace(b"+", b" "))
        if PLACEHOLDER.fullmatch(value):
            continue
        if (is_oauth and name in _OAUTH_NAMES) or secret_names.is_secret_field(
            name, value, in_response=in_response
        ):
            yield Span(pair.start(2), pair.end(2), _secret(name, value))


def _in_parts(body: bytes, content_type: bytes) -> Iterator[Span]:
    boundary = forms.boundary(content_type)
    if boundary is None:
        return
    delimiter = b"--" + boundary
    at = body.find(delimiter)
    while at >= 0:
        next_part = body.find(b"\n" + delimiter, at + len(delimiter))
        end = len(body) if next_part < 0 else next_part
        head = _END_OF_HEAD.search(body, at + len(delimiter), min(end, at + forms.MAX_HEAD))
        if head is not None:
            named = _PART_NAME.search(body, at + len(delimiter), head.start())
            name = (named[1] or named[2]).decode("latin-1") if named is not None else ""
            value = body[head.end() : end].removesuffix(b"\r")
            if _hides_secret(name, value, in_response=False):
                yield Span(head.end(), head.end() + len(value), _secret(name, value))
        at = next_part + 1 if next_part >= 0 else -1


def _hides_secret(name: str, value: bytes, *, in_response: bool) -> bool:
    if not value or PLACEHOLDER.fullmatch(value):
        return False
    return secret_names.is_secret_field(name, value, in_response=in_response)


def _secret(name: str, value: bytes) -> Secret:
    return Secret(label_for(name, value), value)


@cache
def _candidates() -> Any:
    # The same search as the prefilter's, with the quote's escapes as a group.
    pattern = secret_names.NAME_CANDIDATE.replace(r'(?:\\*"', r'(?:(\\*)"', 1)
    return compile_for_bytes(pattern.encode())
