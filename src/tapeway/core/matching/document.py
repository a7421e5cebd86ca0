"""A request as a JSON document, from which match keys and differences are computed.

It has everything that makes two requests equal or different, parsed by content type: JSON by value,
forms by their pairs, multipart by its parts (without the boundary), text as text, and anything else
by its hash. Rules are applied in this order: rewrite, ignore, normalise.
"""

import hashlib
import re
from functools import lru_cache
from typing import Literal
from urllib.parse import parse_qsl, unquote_to_bytes

import orjson

from tapeway.core.http import forms
from tapeway.core.http.content_codings import decode
from tapeway.core.http.headers import RequestFields, media_type, request_fields
from tapeway.core.json_text import Json, NotJson, canonical, parse
from tapeway.core.matching import json_paths
from tapeway.core.matching.body_digest import (
    digest_body,
    grouped_by_name,
    large_body_value,
    largest_in_memory,
)
from tapeway.core.matching.normalisers import HexText, NormaliserSet
from tapeway.core.matching.rules import NO_RULES, Rules, with_presets
from tapeway.core.model.messages import LARGE_BODY, Headers, Request
from tapeway.core.redaction.credentials import MIN_VALUE, is_credential_parameter
from tapeway.core.redaction.spans import SHORT_PREFIX
from tapeway.core.text import decode_utf8

Content = Literal["empty", "json", "form", "parts", "text", "bytes", "coded", "large"]
"""How a body was read: `coded` if its content coding could not be decoded, `large` by its digest."""

# How orjson writes numbers that it may have changed: an integral float (1.0 is the value 1), and
# anything from 1e16 on, which may have been an integer that a double cannot represent.
_MAY_BE_INEXACT = re.compile(rb"[0-9]\.0[,\]}]|[0-9]\.0$|[0-9]e\+")

# The placeholder of a credential, except of a value too short to be one for certain.
CREDENTIAL_PLACEHOLDER = re.compile(rb"REDACTED\.(?!short-)[A-Za-z0-9_-]+\.[0-9a-p]{8}")
_PLACEHOLDER_IN_TEXT = re.compile(CREDENTIAL_PLACEHOLDER.pattern.decode())

_UNRELIABLE_TYPES = frozenset({b"", b"application/x-www-form-urlencoded", b"text/json"})
_MOST_WHITESPACE = 64

_SURROGATES = re.compile("[\ud800-\udfff]")


def request_document(request: Request, rules: Rules = NO_RULES) -> dict[str, Json]:
    """The document of an already redacted request, with rules applied.

    Its keys are `method`, `path` (decoded), `query`, `headers` (those that a rule names), `content`
    (how the body was read) and `body`. All credentials are equal in it.
    """
    raw_path, _, raw_query = request.target.partition("?")
    compiled = _compiled(rules)
    content, value = body_value(request)
    document: dict[str, Json] = {
        "method": request.method,
        "path": compiled.rewrite(decoded_path(raw_path)),
        "query": query_values(raw_query),
        "headers": _headers(request.headers, rules.match),
        "content": content,
        "body": value,
    }
    return compiled.apply(document) if rules else document


def decoded_path(raw: str) -> str:
    """A path decoded segment by segment: an encoded slash stays encoded."""
    if "%" not in raw and raw.isascii():
        return raw if "REDACTED." not in raw else _without_credentials(raw)
    # A target cannot contain a raw NUL, so only an encoded one (%00) must be told apart.
    octets = b"/".join(
        unquote_to_bytes(segment).replace(b"%", b"%25").replace(b"/", b"%2F")
        for segment in raw.encode("utf-8", "surrogateescape").split(b"/")
    )
    return _without_credentials(_percent_encode(octets.decode("utf-8", "surrogateescape")))


def query_values(raw: str) -> dict[str, Json]:
    """The pairs of a query without credentials: a run with another API key, or without, is equal."""
    if not raw:
        return {}
    octets = raw.encode("utf-8", "surrogateescape")
    return grouped_by_name(
        (_name_text(name), _value_text(value))
        for name, value in _pairs(octets)
        if not _is_credential(name, value, raw)
    )


def body_value(request: Request) -> tuple[Content, Json]:
    """How a request's body was read, and its value."""
    if request.file is not None:
        return "large", large_body_value(request.file)
    header, plain = request_fields(request.headers), request.body
    if not plain:
        return "empty", None
    if len(plain) > LARGE_BODY and len(plain) > largest_in_memory(request.headers):
        return "large", large_body_value(digest_body(request.headers, plain))
    plain, decoded = decoded_body(header, plain)
    if not decoded:
        return "coded", _hash(plain)
    return _by_type(header.content_type, plain)


def decoded_body(header: RequestFields, octets: bytes) -> tuple[bytes, bool]:
    """A body without its content coding, all credentials equal; and whether it could be decoded."""
    coding = header.content_encoding
    plain = octets if coding is None else decode(coding, octets)
    if plain is None:
        return octets, False
    return (
        CREDENTIAL_PLACEHOLDER.sub(b"REDACTED", plain) if b"REDACTED." in plain else plain
    ), True


def is_json(content_type: bytes) -> bool:
    """Whether a content type is one of JSON's."""
    media = media_type(content_type)
    return media == b"application/json" or media.endswith(b"+json")


def may_be_json(content_type: bytes, octets: bytes) -> bool:
    """Whether a body may be JSON: by its type, or by its first byte if the type is unreliable.

    curl sends every body as a form unless it is given a type.
    """
    if is_json(content_type):
        return True
    media = media_type(content_type)
    return media in _UNRELIABLE_TYPES and octets[:_MOST_WHITESPACE].lstrip()[:1] in (b"{", b"[")


def read_json(octets: bytes) -> tuple[Json, bytes] | None:
    """The value of a JSON text and its canonical form, None where JSON readers may disagree."""
    try:
        value: Json = orjson.loads(octets)
        written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        if _is_exact(octets, written):
            return value, written
        value = parse(octets, by_value=True)
        return value, canonical(value)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, NotJson):
        # orjson reads deeper nesting than it writes.
        return None


def _is_exact(octets: bytes, written: bytes) -> bool:
    """Whether orjson has lost nothing: neither digits nor a duplicate key."""
    # Each member has a colon, and colons in strings are written too: a lost member is a lost colon.
    # Only an escaped colon, written plainly, could make up for it.
    if octets.count(b":") != written.count(b":") or b"\\u003" in octets:
        return False
    # Plain searches are quicker than the pattern and suffice for nearly every body.
    if b".0" not in written and (b"+" not in written or b"e+" not in written):
        return True
    return _MAY_BE_INEXACT.search(written) is None


def _by_type(content_type: bytes, octets: bytes) -> tuple[Content, Json]:
    if may_be_json(content_type, octets) and (read := read_json(octets)) is not None:
        return "json", read[0]
    media = media_type(content_type)
    if media == b"application/x-www-form-urlencoded":
        return "form", grouped_by_name(
            (_name_text(name), _value_text(value)) for name, value in _pairs(octets)
        )
    if media.startswith(b"multipart/"):
        parts = forms.parse_multipart(content_type, octets)
        return ("parts", _parts(parts)) if parts is not None else _opaque(octets)
    return _opaque(octets)


def _opaque(octets: bytes) -> tuple[Content, Json]:
    text = decode_utf8(octets)
    return ("bytes", _hash(octets)) if text is None else ("text", text)


def _hash(octets: bytes) -> Json:
    return {"sha256": HexText(hashlib.sha256(octets).hexdigest()), "size": len(octets)}


def _parts(parts: list[forms.FormPart]) -> Json:
    described = [(part.name, _part(part)) for part in parts]
    named = [(_percent_encode(name), part) for name, part in described if name is not None]
    if len(named) == len(described):
        return grouped_by_name(named)
    return [{"name": name and _percent_encode(name), "part": part} for name, part in described]


def _part(part: forms.FormPart) -> Json:
    media = (part.content_type or "").encode("utf-8", "surrogateescape")
    if part.filename is None and not media:
        return _value_text(part.body)
    about: dict[str, Json] = {"filename": part.filename and _percent_encode(part.filename)}
    about["type"] = part.content_type and _percent_encode(part.content_type)
    if part.filename is not None:
        return about | {"content": _hash(part.body)}
    read = read_json(part.body) if is_json(media) else None
    return about | {"content": _value_text(part.body) if read is None else {"json": read[0]}}


def _headers(headers: Headers, names: tuple[str, ...]) -> dict[str, Json]:
    if not names:
        return {}
    lower = [(name.lower().decode("latin-1"), value) for name, value in headers]
    return grouped_by_name((name, _value_text(value)) for name, value in lower if name in names)


def _pairs(octets: bytes) -> list[tuple[bytes, bytes]]:
    pairs = parse_qsl(octets.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]


def _name_text(octets: bytes) -> str:
    name = decode_utf8(octets)
    if name is None or name.startswith("\0"):
        return f"\0{octets.hex()}"
    return _without_credentials(name)


def _value_text(octets: bytes) -> Json:
    text = decode_utf8(octets)
    return {"hex": HexText(octets.hex())} if text is None else _without_credentials(text)


def _without_credentials(text: str) -> str:
    """The text with all credential placeholders made equal."""
    return _PLACEHOLDER_IN_TEXT.sub("REDACTED", text) if "REDACTED." in text else text


def _is_credential(name: bytes, value: bytes, query: str) -> bool:
    if len(value) < MIN_VALUE or not is_credential_parameter(name.decode("latin-1"), query):
        return False
    return not value.startswith(f"REDACTED.{SHORT_PREFIX}".encode())


def _percent_encode(text: str) -> str:
    """Octets that are not UTF-8 are percent-encoded."""
    return (
        text
        if text.isascii()
        else _SURROGATES.sub(lambda found: f"%{ord(found[0]) & 0xFF:02X}", text)
    )


class _CompiledRules:
    """Rules with their paths parsed and their patterns compiled."""

    def __init__(self, rules: Rules) -> None:
        rules = with_presets(rules)
        self._paths = [json_paths.parse_path(text) for text in rules.ignore]
        self._removals = [
            (json_paths.parse_path(text), NormaliserSet(removed=patterns))
            for text, patterns in rules.ignore_in
        ]
        self._rewrite = rules.rewrite
        self._normalisers = NormaliserSet(rules.normalise, rules.patterns)
        self._normalise = bool(rules.normalise or rules.patterns)

    def rewrite(self, path: str) -> str:
        for old, new in self._rewrite:
            path = path.replace(old, new)
        return path

    def apply(self, document: dict[str, Json]) -> dict[str, Json]:
        left = json_paths.without_paths(document, self._paths)
        for path, removal in self._removals:
            left = json_paths.changed_at(left, path, removal.value)
        assert isinstance(left, dict)  # noqa: S101 - no path leads to the document itself
        if "body" not in left:
            del left["content"]
        if not self._normalise:
            return left
        kept = ("method", "content")
        return {
            key: value if key in kept else self._normalisers.value(value)
            for key, value in left.items()
        }


@lru_cache(maxsize=64)
def _compiled(rules: Rules) -> _CompiledRules:
    return _CompiledRules(rules)
