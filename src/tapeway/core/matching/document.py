"""A request as a JSON document, from which match keys and differences are computed.

It has everything that makes two requests equal or different, parsed by content type: JSON by value,
forms by their pairs, multipart by its parts (without the boundary), text as text, and anything else
by its hash. Rules are applied in this order: rewrite, ignore, normalise.

Nothing is redacted here: received requests come in clear, recorded requests as stored.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Literal
from urllib.parse import parse_qsl, unquote_to_bytes

import orjson

from tapeway.core import json_rpc
from tapeway.core.http import forms
from tapeway.core.http.content_codings import CONTENT_ENCODING, decode
from tapeway.core.json_text import Json, NotJson, ReadJson, canonical, parse
from tapeway.core.matching import json_paths
from tapeway.core.matching.body_digest import (
    digest_body,
    grouped_by_name,
    large_body_value,
    largest_in_memory,
)
from tapeway.core.matching.normalisers import HexText, NormaliserSet, OctetsHash
from tapeway.core.matching.presets import PRESETS
from tapeway.core.matching.presigned import without_signature
from tapeway.core.matching.rules import Rules, with_presets
from tapeway.core.model.messages import LARGE_BODY, Headers, Request
from tapeway.core.model.request_fields import AWS_CHUNKED, RequestFields, is_json, media_type
from tapeway.core.text import decode_utf8

Content = Literal["empty", "json", "form", "parts", "text", "bytes", "coded", "large"]
"""How a body was read: `coded` if its content coding could not be decoded, `large` by its digest."""

# Numbers that orjson may have changed: an integral float (1.0 is the value 1), and any number from
# 1e16 on, which may have been an integer beyond the precision of a double.
_MAY_BE_INEXACT = re.compile(rb"[0-9]\.0[,\]}]|[0-9]e\+")
_SLICE, _OVERLAP = 256 * 1024, 4
"""The size of a slice: a search in a large text pauses after each slice for other threads."""

_UNRELIABLE_TYPES = frozenset({b"", b"application/x-www-form-urlencoded", b"text/json"})
_MOST_WHITESPACE = 64

_SURROGATES = re.compile("[\ud800-\udfff]")
_AUTHORITY = re.compile(rb"https?://[^/?#]*", re.IGNORECASE)


def request_document(request: Request, rules: Rules) -> dict[str, Json]:
    """The document of a request, with rules applied.

    The keys are `method`, `path` (decoded), `query`, `headers` (the deciding fields, and fields
    named by a rule), `content` (how the body was read) and `body`.
    """
    return with_rules(parsed_request(request, rules), rules)


def parsed_request(request: Request, rules: Rules, read: ReadJson | None = None) -> dict[str, Json]:
    """The document of a request, of its rules only the rewrites of its path applied.

    `read` is what the body was read as, where that is plain JSON and known.
    """
    raw_path, _, raw_query = request.target.partition("?")
    open_files = bool(rules.normalise or rules.patterns)
    content, value = (
        body_value(request, open_files=open_files)
        if read is None
        else ("json", counted(read).value)
    )
    return {
        "method": request.method,
        "path": _compiled(rules).rewrite(decoded_path(raw_path)),
        "query": query_values(raw_query),
        "headers": key_headers(selecting_fields(request, rules.match)),
        "content": content,
        "body": value,
    }


def with_rules(document: dict[str, Json], rules: Rules) -> dict[str, Json]:
    """A parsed request with the other rules applied."""
    return _compiled(rules).apply(document) if rules else document


def without_ignored(document: dict[str, Json], rules: Rules) -> dict[str, Json]:
    """A parsed request without what rules ignore."""
    return _compiled(rules).without_ignored(document) if rules.ignore else document


def decoded_path(raw: str) -> str:
    """A path decoded segment by segment: an encoded slash stays encoded."""
    if "%" not in raw and raw.isascii():
        return raw
    # A target cannot contain a raw NUL, so only an encoded one (%00) must be told apart.
    octets = b"/".join(
        unquote_to_bytes(segment).replace(b"%", b"%25").replace(b"/", b"%2F")
        for segment in raw.encode("utf-8", "surrogateescape").split(b"/")
    )
    return _percent_encode(octets.decode("utf-8", "surrogateescape"))


def query_values(raw: str) -> dict[str, Json]:
    """The values of each name in a query; the order of names does not count."""
    if not raw:
        return {}
    octets = raw.encode("utf-8", "surrogateescape")
    pairs = _pairs(octets)
    return without_signature(
        grouped_by_name((_name_text(name), _value_text(value)) for name, value in pairs)
    )


def selecting_fields(request: Request, names: tuple[str, ...] = ()) -> Headers:
    """The deciding fields of a request, and the fields with the given names (lower case)."""
    fields = request.fields
    selecting = fields.selecting
    if fields.preflight and request.method == "OPTIONS":
        selecting += fields.preflight
    if request.coding:
        selecting += ((CONTENT_ENCODING, request.coding),)
    if names:
        known = {name.lower() for name, _ in selecting}
        also = {name.encode() for name in names} - known
        selecting += tuple([pair for pair in request.headers if pair[0].lower() in also])
    return selecting


def key_headers(fields: Headers) -> dict[str, Json]:
    """Normalised values of header fields, by name."""
    grouped: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        grouped.setdefault(name.lower(), []).append(value.strip())
    members: dict[str, Json] = {}
    for name, values in sorted(grouped.items()):
        if (plainly := _WRITTEN_PLAINLY.get(name)) is not None:
            # Several fields are one list (RFC 9110 section 5.3).
            values = [text] if (text := plainly(b",".join(values))) else []
        texts = [_value_text(value) for value in values]
        if texts:
            members[name.decode("latin-1")] = texts[0] if len(texts) == 1 else texts
    return members


def _plain_codings(value: bytes) -> bytes:
    codings = [part.strip().lower() for part in value.split(b",")]
    return b", ".join(
        [coding for coding in codings if coding not in (b"", b"identity", AWS_CHUNKED)]
    )


def _plain_names(value: bytes) -> bytes:
    return b", ".join(sorted({part.strip().lower() for part in value.split(b",")} - {b""}))


def _plain_destination(value: bytes) -> bytes:
    # The host is that of tapeway, on another port in each run.
    return _AUTHORITY.sub(b"", value) or b"/"


_WRITTEN_PLAINLY: Mapping[bytes, Callable[[bytes], bytes]] = {
    b"access-control-request-headers": _plain_names,
    CONTENT_ENCODING: _plain_codings,
    b"content-type": forms.without_boundary,
    b"destination": _plain_destination,
}
"""Normalises the values of these fields."""


def body_value(request: Request, *, open_files: bool = False) -> tuple[Content, Json]:
    """How a request's body was read, and its value.

    `open_files` has the texts of files in a multipart body in place of their hashes, for rules that
    normalise texts.
    """
    if request.file is not None:
        return "large", large_body_value(request.file)
    header, plain = request.fields, request.body
    if not plain:
        return "empty", None
    if len(plain) > LARGE_BODY and len(plain) > largest_in_memory(request.fields):
        return "large", large_body_value(digest_body(request.fields, plain))
    plain, decoded = decoded_body(header, plain)
    if not decoded:
        return "coded", _hash(plain)
    return _by_type(header.content_type, plain, open_files=open_files)


def decoded_body(header: RequestFields, octets: bytes) -> tuple[bytes, bool]:
    """A body without its content coding, and whether it could be decoded."""
    coding = header.content_encoding
    plain = octets if coding is None else decode(coding, octets)
    return (octets, False) if plain is None else (plain, True)


def may_be_json(content_type: bytes, octets: bytes) -> bool:
    """Whether a body may be JSON: by its type, or by its first byte if the type is unreliable.

    curl sends every body as a form unless it is given a type.
    """
    if is_json(content_type):
        return True
    media = media_type(content_type)
    return media in _UNRELIABLE_TYPES and octets[:_MOST_WHITESPACE].lstrip()[:1] in (b"{", b"[")


def read_json(octets: bytes) -> ReadJson | None:
    """The value of a JSON text and its canonical form, None where JSON readers may disagree."""
    try:
        value: Json = orjson.loads(octets)
        written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        if _is_exact(octets, written):
            return ReadJson(value, written, exact=True)
        value = parse(octets, by_value=True)
        return ReadJson(value, canonical(value), exact=False)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, NotJson):
        # orjson reads deeper nesting than it writes.
        return None


def counted(read: ReadJson) -> ReadJson:
    """What counts of a JSON body: all of it, but for the names that JSON-RPC's clients draw."""
    if isinstance(read.value, dict) and "jsonrpc" not in read.value:
        # Nearly every request.
        return read
    value = json_rpc.without_names(read.value)
    return read if value is read.value else ReadJson(value, canonical(value), exact=False)


def read_value(value: Json) -> ReadJson | None:
    """The result of `read_json` for a text with this value, None if the text must be read."""
    try:
        written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        if _has_exact_numbers(written):
            return ReadJson(value, written, exact=True)
        return read_json(orjson.dumps(value))
    except orjson.JSONEncodeError:
        return None


def _is_exact(octets: bytes, written: bytes) -> bool:
    """Whether orjson has lost nothing: neither digits nor a duplicate key."""
    # Each member has a colon, and colons in strings are written too: a lost member is a lost colon.
    # Only an escaped colon, written plainly, could make up for it.
    # `find` is quicker than `in`, which first tries to take the bytes for a number.
    if octets.count(b":") != written.count(b":") or octets.find(b"\\u003") >= 0:
        return False
    return _has_exact_numbers(written)


def _has_exact_numbers(written: bytes) -> bool:
    """Whether orjson certainly read every number of this text, as written by orjson, exactly."""
    # Plain searches are quicker than the pattern and suffice for nearly every body.
    if written.find(b".0") < 0 and (written.find(b"+") < 0 or written.find(b"e+") < 0):
        return True
    if written.endswith(b".0"):
        return False
    starts = range(0, len(written), _SLICE)
    return not any(_MAY_BE_INEXACT.search(written, at, at + _SLICE + _OVERLAP) for at in starts)


def _by_type(
    content_type: bytes, octets: bytes, *, open_files: bool = False
) -> tuple[Content, Json]:
    if may_be_json(content_type, octets) and (read := read_json(octets)) is not None:
        return "json", counted(read).value
    media = media_type(content_type)
    if media == b"application/x-www-form-urlencoded" and forms.is_form(octets):
        pairs = _pairs(octets)
        values = grouped_by_name((_name_text(name), _value_text(value)) for name, value in pairs)
        return "form", without_signature(values)
    if media.startswith(b"multipart/"):
        parts = forms.parse_multipart(content_type, octets)
        return _opaque(octets) if parts is None else ("parts", _parts(parts, open_files))
    return _opaque(octets)


def _opaque(octets: bytes) -> tuple[Content, Json]:
    text = decode_utf8(octets)
    return ("bytes", _hash(octets)) if text is None else ("text", text)


def _hash(octets: bytes) -> Json:
    return {"sha256": OctetsHash.of(octets), "size": len(octets)}


def _parts(parts: list[forms.FormPart], open_files: bool) -> Json:
    described = [(part.name, _part(part, open_files)) for part in parts]
    named = [(_percent_encode(name), part) for name, part in described if name is not None]
    if len(named) == len(described):
        return without_signature(grouped_by_name(named))
    return [{"name": name and _percent_encode(name), "part": part} for name, part in described]


def _part(part: forms.FormPart, open_files: bool) -> Json:
    media = (part.content_type or "").encode("utf-8", "surrogateescape")
    if part.filename is None and not media:
        return _value_text(part.body)
    about: dict[str, Json] = {"filename": part.filename and _percent_encode(part.filename)}
    about["type"] = part.content_type and _percent_encode(part.content_type)
    if (inner := forms.inner_multipart(media, part.body)) is not None:
        return about | _inner(media, *inner, open_files)
    if part.filename is not None:
        return about | {"content": _file(part.body) if open_files else _hash(part.body)}
    read = read_json(part.body) if is_json(media) else None
    return about | {"content": _value_text(part.body) if read is None else {"json": read[0]}}


def _file(octets: bytes) -> Json:
    """The content of a file: JSON, lines of JSON (a batch of requests), a text, or a hash."""
    if (text := decode_utf8(octets)) is None:
        return _hash(octets)
    if octets[:_MOST_WHITESPACE].lstrip()[:1] not in (b"{", b"["):
        return text
    if (read := read_json(octets)) is not None:
        return {"json": read.value}
    lines = [read_json(line) for line in octets.splitlines() if line.strip()]
    values = [line.value for line in lines if line is not None]
    return {"lines": values} if len(values) == len(lines) else text


def _inner(
    media: bytes, head: bytes, parts: list[forms.FormPart], open_files: bool
) -> dict[str, Json]:
    """A part that has parts itself, or an HTTP message with such a body; without their boundaries."""
    plain = {"type": _value_text(forms.without_boundary(media)), "parts": _parts(parts, open_files)}
    return plain | {"head": _value_text(forms.without_boundary(head))} if head else plain


def _pairs(octets: bytes) -> list[tuple[bytes, bytes]]:
    pairs = parse_qsl(octets.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]


def _name_text(octets: bytes) -> str:
    name = decode_utf8(octets)
    if name is None or name.startswith("\0"):
        return f"\0{octets.hex()}"
    return name


def _value_text(octets: bytes) -> Json:
    text = decode_utf8(octets)
    return {"hex": HexText(octets.hex())} if text is None else text


def _percent_encode(text: str) -> str:
    """Octets that are not UTF-8 are percent-encoded."""
    return (
        text
        if text.isascii()
        else _SURROGATES.sub(lambda match: f"%{ord(match[0]) & 0xFF:02X}", text)
    )


class _CompiledRules:
    """Rules with parsed paths and compiled patterns."""

    def __init__(self, rules: Rules) -> None:
        self._below = [
            (start, [json_paths.parse_path(text) for text in ignored])
            for name in rules.presets
            for start, ignored in PRESETS[name].ignore_below
        ]
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

    def text(self, text: str) -> str:
        return self._normalisers.text(text) if self._normalise else text

    def without_ignored(self, document: dict[str, Json]) -> dict[str, Json]:
        left = json_paths.without_paths(document, self._paths)
        for start, paths in self._below:
            if str(document["path"]).startswith(start):
                left = json_paths.without_paths(left, paths)
        for path, removal in self._removals:
            left = json_paths.changed_at(left, path, partial(_without_parts, removal))
        assert isinstance(left, dict)  # noqa: S101 - no path leads to the document itself
        return left

    def apply(self, document: dict[str, Json]) -> dict[str, Json]:
        left = self.without_ignored(document)
        if "body" not in left:
            left = {key: value for key, value in left.items() if key != "content"}
        if not self._normalise:
            return left
        kept = ("method", "content")
        return {
            key: value if key in kept else self._normalisers.value(value)
            for key, value in left.items()
        }


def _without_parts(removal: NormaliserSet, value: Json) -> Json:
    """A value without parts of its texts, and without the text blocks of which nothing is left."""
    if isinstance(value, dict):
        return {key: _without_parts(removal, member) for key, member in value.items()}
    if not isinstance(value, list):
        return removal.value(value)
    left = [(_without_parts(removal, item), item) for item in value]
    return [item for item, whole in left if not _is_emptied(item, whole)]


def _is_emptied(left: Json, whole: Json) -> bool:
    return (
        isinstance(left, dict)
        and isinstance(whole, dict)
        and left.get("type") == "text"
        and left.get("text") == ""
        and whole.get("text") != ""
    )


def normalised_text(text: str, rules: Rules) -> str:
    """A text of a request with the rules that normalise texts applied."""
    return _compiled(rules).text(text)


@lru_cache(maxsize=64)
def _compiled(rules: Rules) -> _CompiledRules:
    return _CompiledRules(rules)
