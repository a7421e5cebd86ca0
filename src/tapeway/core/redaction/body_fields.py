"""Finds secrets in a body by the name of their field: JSON at any depth, forms, multipart, XML.

JSON is searched, not parsed, so that it is found in event streams, in lines, in parts of forms and
inside strings of other JSON, and truncated JSON hides nothing. Only strings and numbers are values:
a schema with a property `password` keeps its description.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any
from urllib.parse import unquote_plus, unquote_to_bytes

from tapeway.core.automata import compile_for_bytes
from tapeway.core.http import forms
from tapeway.core.model.request_fields import media_type
from tapeway.core.redaction.credentials import (
    ID_AND_SECRET,
    Secret,
    is_credential_parameter,
    names_credential,
)
from tapeway.core.redaction.opaque import is_opaque
from tapeway.core.redaction.secret_names import (
    CREDENTIAL_OBJECT,
    CREDENTIAL_TYPE,
    NAME_CANDIDATE,
    TAG_END,
    TAG_START,
    TYPE_NAME,
    is_ambiguous,
    is_secret_field,
    name_kind,
    without_scheme,
)
from tapeway.core.redaction.spans import PLACEHOLDER, Span, label_for
from tapeway.core.text import has_controls

_LONGEST_NAME = 80
_MOST_SPACE = 64
_SPACE_OR_MARK = b" \t\r\n\xef\xbb\xbf\xff"
_NEAR = 400
"""How far the other fields of a credential's object may be away."""
_CREDENTIAL_OBJECT = re.compile(
    rf'{CREDENTIAL_OBJECT}\\*"[\s\\nrt]{{0,40}}:[\s\\nrt]{{0,40}}\Z'.encode(), re.IGNORECASE
)
_CREDENTIAL_TYPE = re.compile(
    rf'{TYPE_NAME}\\*"\s{{0,40}}:\s{{0,40}}\\*"{CREDENTIAL_TYPE}'.encode(), re.IGNORECASE
)
_LOGIN_PACKET = re.compile(
    rb'(?:(?:\A|["\s\x1e])40(?:/[^,"]{0,80},)?'
    rb'|connection_init\\*"\s{0,40},\s{0,40}\\*"payload\\*"\s{0,40}:\s{0,40}'
    rb'|phx_join\\*"\s{0,40},\s{0,40}(?:\\*"payload\\*"\s{0,40}:\s{0,40})?)\Z'
)
"""What stands before the object by which a connection logs in: Socket.IO, GraphQL, Phoenix."""
_PART = re.compile(rb"""[^\s;,&=?#@:/<>"'()\\]{12,}""")
_OBJECT = (b"{", b" {")
_SPACE = re.compile(rb"(?:\s|\\+[nrt])*")
_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*")
_MEMBER_VALUE = (
    rb"(?:\s|\\+[nrt])*%b[^{}]*?(?<![A-Za-z_])value%b(?:\s|\\+[nrt])*:(?:\s|\\+[nrt])*%b"
)
_COLON = re.compile(rb'\\*"(?:\s|\\+[nrt])*:')
_QUOTE = re.compile(rb'(?<!\\)(\\*)"')
_TAG = re.compile(
    rb"%b(?:[\w.-]{1,60}:)?([\w.-]{1,80})(?:\s[^<>]{0,600}?)?%b"
    % (TAG_START.encode(), TAG_END.encode())
)
_CONTENT = re.compile(
    rb"(?:\s*%b!\[CDATA\[)?(.*?)(?=\]\]|%b)" % ((TAG_START.encode(),) * 2), re.DOTALL
)
_ENDS = re.compile(rb"%b\\*/(?:[\w.-]{1,60}:)?([\w.-]{1,80})" % TAG_START.encode())
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_PART_NAME = re.compile(
    rb"""^content-disposition:[^\r\n]*?;[ \t]*name\*?=(?:"((?:[^"\\\r\n]|\\.)*)"|([^;\s]+))""",
    re.IGNORECASE | re.MULTILINE,
)
_MOST_OF_NAME = 256
_PAIR = re.compile(rb"(?:\A|(?<=&))([^=&]+)=([^&]+)")
_PLAIN_PAIR = re.compile(rb"(?:\A|(?<=&))([^=&]+)=([!-%'-~]+)")
"""A pair in octets that are no form: a value ends where the plain characters end."""


def find(
    body: bytes, content_type: bytes, *, in_response: bool, own: frozenset[str] = frozenset()
) -> list[Span]:
    """Each value whose field's name marks it as a secret.

    In a request a field's name decides. In a response and inside a text, such as JSON in a string,
    only an opaque value is a secret. `own` lists names of the provider's keys.
    """
    media = media_type(content_type)
    spans: list[Span] = []
    documents = [] if in_response else [(0, len(body))] if _is_document(body) else []
    if media == b"application/x-www-form-urlencoded":
        # curl labels every body a form.
        spans += _in_form(body, own, in_response=in_response)
    elif media.startswith(b"multipart/"):
        for head, start, end in find_parts(body, content_type):
            spans += _in_part(_part_name(head), body[start:end], start, own)
            if _is_document(body[start:end]):
                documents.append((start, end))
    return spans + list(_in_text(body, documents))


@lru_cache(maxsize=256)
def reads_whole(content_type: bytes) -> bool:
    """Whether a body of this type is searched even where the prefilter finds nothing.

    The prefilter knows names in JSON and XML, not those of forms.
    """
    return content_type[:10].lower() in (b"applicatio", b"multipart/") and (
        b"form" in content_type.lower()
    )


def _is_document(text: bytes) -> bool:
    """Whether this is JSON or XML, not a text in which there may be some."""
    return text[:_MOST_SPACE].lstrip(_SPACE_OR_MARK)[:1] in (b"{", b"[", b"<")


def _in_text(body: bytes, documents: Sequence[tuple[int, int]]) -> Iterator[Span]:
    at = number = 0
    while (candidate := _candidates().search(body, at)) is not None:
        while number < len(documents) and documents[number][1] <= candidate.start():
            number += 1
        is_field = number < len(documents) and documents[number][0] <= candidate.start()
        colon = _COLON.search(body, candidate.start(), candidate.end())
        if colon is None:
            at = candidate.end()
            yield from _in_element(body, candidate.start(), at, is_field=is_field)
        else:
            at = colon.end()
            yield from _in_member(body, colon.start(), at, is_field=is_field)


def _in_member(body: bytes, name_end: int, value_at: int, *, is_field: bool) -> Iterator[Span]:
    if body.startswith(_OBJECT, value_at) and b"value" not in body[value_at : value_at + _NEAR]:
        # A schema, mostly.
        return
    quote = body[name_end : body.index(b'"', name_end) + 1]
    depth = len(quote).bit_length() - 1
    before = body.rfind(b'"', max(0, name_end - _LONGEST_NAME), name_end)
    if len(quote) != 1 << depth or before < 0 or not body.endswith(quote, 0, before + 1):
        return
    name = _unescaped(body[before + 1 : name_end], depth).decode("utf-8", "replace")
    if not (kind := name_kind(name)):
        return
    for span in _value_spans(body, _skip_space(body, value_at), quote, depth):
        value = _unescaped(body[span.start : span.end], depth)
        if kind == "generic" and is_opaque(without_scheme(value)):
            beside = _is_beside_credential(body, before, span.end)
        else:
            beside = False
        # A number of passes is no password.
        names_it = is_field and depth == 0 and not (span.quote and kind == "word")
        yield from _secrets_in(name, value, span, body, is_field=names_it, beside=beside)


def _secrets_in(
    name: str, value: bytes, span: Span, body: bytes, *, is_field: bool, beside: bool = False
) -> Iterator[Span]:
    """The field's value as a secret, or the secrets inside the value."""
    if not value or PLACEHOLDER.fullmatch(value):
        return
    if is_secret_field(name, value, is_field=is_field, beside=beside):
        if (tail := ID_AND_SECRET.fullmatch(value)) is not None:
            value = tail[1]
            if PLACEHOLDER.fullmatch(value):
                return
            span = replace(span, start=span.end - len(value))
        yield replace(span, secret=Secret(label_for(name, value), value))
    elif name_kind(name) == "ambiguous":
        for part in _PART.finditer(body, span.start, span.end):
            if is_opaque(part[0]) and not _is_host(body, *part.span()):
                yield Span(*part.span(), Secret(label_for(name, part[0]), part[0]))


def _is_host(body: bytes, start: int, end: int) -> bool:
    return body.endswith((b"//", b"@"), 0, start) and not body.startswith(b"@", end)


def _is_beside_credential(body: bytes, name_at: int, value_end: int) -> bool:
    """Whether the object of a field called `key` or `token` is one of a credential."""
    before = body[max(0, name_at - _NEAR) : name_at]
    # Earlier objects in the enclosing object are not fields of this object.
    at = len(before)
    closed = 0
    while (at := max(before.rfind(b"{", 0, at), before.rfind(b"}", 0, at))) >= 0:
        closed += 1 if before[at : at + 1] == b"}" else -1
        if closed < 0:
            break
    if at < 0:
        return False
    if _LOGIN_PACKET.search(before, 0, at) is not None:
        return True
    beside = before[at:] + body[value_end : value_end + _NEAR].partition(b"}")[0]
    return _CREDENTIAL_OBJECT.search(before, 0, at) is not None or (
        _CREDENTIAL_TYPE.search(beside) is not None
    )


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
    for quote in _QUOTE.finditer(body, start):
        run = len(quote[1])
        if run % (2 << depth) == own:
            return quote.end(1) - own
        if run < own:
            return quote.start()
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


def _in_element(body: bytes, begin: int, at: int, *, is_field: bool) -> Iterator[Span]:
    """The secrets in an element whose tag ends at `at`, its name not before `begin`."""
    for tag in _TAG.finditer(body, max(0, begin - _LONGEST_NAME), at):
        content = _CONTENT.match(body, at) if tag.end() == at else None
        if content is not None and content[1].strip() and _is_ended(body, content, tag[1]):
            name = tag[1].decode("latin-1")
            span = Span(*content.span(1), None)
            yield from _secrets_in(name, content[1], span, body, is_field=is_field)


def _is_ended(body: bytes, content: re.Match[bytes], name: bytes) -> bool:
    """Whether the element's end follows. In code none does: `Promise<AccessToken> | Set<string>`."""
    if body.startswith(b"]]", content.end()):
        return True
    ends = _ENDS.match(body, content.end())
    return ends is not None and ends[1] == name


def _in_form(body: bytes, own: frozenset[str], *, in_response: bool) -> Iterator[Span]:
    form = body.decode("latin-1")
    # A file that is sent as a form has very many pairs, most of one name or of long ones.
    names: dict[bytes, str] = {}
    pairs = _PLAIN_PAIR if has_controls(body) else _PAIR
    for pair in pairs.finditer(body):
        written = pair[1][-_MOST_OF_NAME:]
        if (name := names.get(written)) is None:
            name = names[written] = _telling_name(written)
        if not name:
            continue
        value = unquote_to_bytes(pair[2].replace(b"+", b" "))
        span = Span(*pair.span(2), None)
        if in_response:
            yield from _secrets_in(name, value, span, body, is_field=False, beside=True)
        else:
            yield from _in_pair(name, value, span, body, form, own)


def _telling_name(written: bytes) -> str:
    """The end of a field's name, decoded; "" for a name without secret values."""
    name = unquote_plus(written.decode("latin-1"))
    return name if is_ambiguous(name) or name_kind(name) or names_credential(name) else ""


def _in_pair(
    name: str, value: bytes, span: Span, whole: bytes, form: str, own: frozenset[str]
) -> Iterator[Span]:
    """The secrets in a field of a form. The name alone decides nothing where it is ambiguous."""
    if not value or PLACEHOLDER.fullmatch(value):
        return
    if not is_ambiguous(name) and name_kind(name):
        yield from _secrets_in(name, value, span, whole, is_field=True)
    elif is_credential_parameter(name, value, form, own):
        yield replace(span, secret=Secret(label_for(name, value), value))


def _in_part(name: str, value: bytes, start: int, own: frozenset[str]) -> Iterator[Span]:
    for span in _in_pair(name, value, Span(0, len(value), None), value, "", own):
        yield replace(span, start=start + span.start, end=start + span.end)


def find_parts(body: bytes, content_type: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The head of each part of a multipart body, and where its content starts and ends."""
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
            content = body[head.end() : end].removesuffix(b"\r")
            yield body[at + len(delimiter) : head.start()], head.end(), head.end() + len(content)
        at = next_part + 1 if next_part >= 0 else -1


def _part_name(head: bytes) -> str:
    named = _PART_NAME.search(head)
    return (named[1] or named[2]).decode("latin-1") if named is not None else ""


@cache
def _candidates() -> Any:
    return compile_for_bytes(NAME_CANDIDATE.encode())
