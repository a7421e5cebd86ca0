"""The document of a request: what it says, as rules see it.

Everything that makes two requests equal or different stands in it once, parsed by content type:
JSON by value, forms by their pairs, multipart by its parts (the boundary is noise), text as text,
anything else by its hash. Rules work on it in this order: parse, ignore, normalise; matching takes
it in its canonical form, and differences are computed over it.
"""

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal
from urllib.parse import parse_qsl, unquote_to_bytes

import orjson

from tapeway.core.http import forms
from tapeway.core.http.content_codings import decode
from tapeway.core.http.headers import RequestFields, media_type, request_fields
from tapeway.core.json_text import Json, NotJson, canonical, parse
from tapeway.core.matching import body_digest, json_paths
from tapeway.core.matching.normalisers import Normalising, Spelled
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.messages import LARGE_BODY, Headers, Request
from tapeway.core.redaction.credentials import MIN_VALUE, is_credential_parameter
from tapeway.core.redaction.spans import SHORT_PREFIX
from tapeway.core.text import decode_utf8

Content = Literal["empty", "json", "form", "parts", "text", "bytes", "coded", "large"]
"""How a body was read: `coded` under a content coding nobody could take off, `large` by its digest."""

# How orjson writes what it may have blurred: an integral float (1.0 is the value 1), and anything
# from 1e16 on, which was perhaps an integer that a double cannot hold. Those take the exact way.
_BLURRED = re.compile(rb"[0-9]\.0[,\]}]|[0-9]\.0$|[0-9]e\+")

# The placeholder of a credential, but not of a value too short to be one for certain.
CREDENTIAL = re.compile(rb"REDACTED\.(?!short-)[A-Za-z0-9_-]+\.[0-9a-p]{8}")
_CREDENTIAL_TEXT = re.compile(CREDENTIAL.pattern.decode())

_UNSURE = frozenset({b"", b"application/x-www-form-urlencoded", b"text/json"})
_LEADING = 64

_ODD = re.compile("[\ud800-\udfff]")


def document(request: Request, rules: Rules = NO_RULES) -> dict[str, Json]:
    """What an already redacted request says, rules applied.

    Its keys are `method`, `path` (decoded), `query`, `headers` (those that a rule names), `content`
    (how the body was read) and `body`. Credentials look all alike in it.
    """
    raw_path, _, raw_query = request.target.partition("?")
    applied = _applied(rules)
    content, value = body(request)
    found: dict[str, Json] = {
        "method": request.method,
        "path": applied.path(path(raw_path)),
        "query": query(raw_query),
        "headers": _headers(request.headers, rules.match),
        "content": content,
        "body": value,
    }
    return applied.document(found) if rules else found


def path(raw: str) -> str:
    """A path decoded, its segments kept apart: an encoded slash stays inside its segment."""
    if "%" not in raw and raw.isascii():
        return raw if "REDACTED." not in raw else _anonymous(raw)
    # NUL cannot stand raw in a target, so an encoded one (%00) is the only thing to keep apart.
    octets = b"/".join(
        unquote_to_bytes(segment).replace(b"%", b"%25").replace(b"/", b"%2F")
        for segment in raw.encode("utf-8", "surrogateescape").split(b"/")
    )
    return _anonymous(_shown(octets.decode("utf-8", "surrogateescape")))


def query(raw: str) -> dict[str, Json]:
    """The pairs of a query without its credentials: a run with another key, or with none, is equal."""
    if not raw:
        return {}
    octets = raw.encode("utf-8", "surrogateescape")
    return _by_name(
        (_name(name), _text(value))
        for name, value in _pairs(octets)
        if not _hidden(name, value, raw)
    )


def body(request: Request) -> tuple[Content, Json]:
    """How a request's body is to be read, and what it says."""
    if request.file is not None:
        return "large", body_digest.said(request.file)
    header, plain = request_fields(request.headers), request.body
    if not plain:
        return "empty", None
    if len(plain) > LARGE_BODY and len(plain) > body_digest.most_in_memory(request.headers):
        return "large", body_digest.said(body_digest.digested(request.headers, plain))
    plain, readable = decoded_body(header, plain)
    if not readable:
        return "coded", _hash(plain)
    return _by_type(header.content_type, plain)


def decoded_body(header: RequestFields, octets: bytes) -> tuple[bytes, bool]:
    """A body without its content coding, credentials alike, and whether that could be had."""
    coding = header.content_encoding
    plain = octets if coding is None else decode(coding, octets)
    if plain is None:
        return octets, False
    return (CREDENTIAL.sub(b"REDACTED", plain) if b"REDACTED." in plain else plain), True


def is_json(content_type: bytes) -> bool:
    """Whether a content type says that the body is JSON."""
    media = media_type(content_type)
    return media == b"application/json" or media.endswith(b"+json")


def may_be_json(content_type: bytes, octets: bytes) -> bool:
    """Whether a body may be JSON: it says so, or looks so and says nothing else one can rely on.

    curl calls everything a form that nobody says anything of.
    """
    if is_json(content_type):
        return True
    media = media_type(content_type)
    return media in _UNSURE and octets[:_LEADING].lstrip()[:1] in (b"{", b"[")


def read_json(octets: bytes) -> tuple[Json, bytes] | None:
    """The value of a JSON text and its canonical form, or None where not every reader sees the same."""
    try:
        value: Json = orjson.loads(octets)
        written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        if _is_exact(octets, written):
            return value, written
        value = parse(octets, by_value=True)
        return value, canonical(value)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, NotJson):
        # Encoding fails where a body is nested deeper than orjson writes, though it does read it.
        return None


def _is_exact(octets: bytes, written: bytes) -> bool:
    """Whether the quick reader has lost nothing: neither digits nor a key that stood twice."""
    # Each pair has a colon, and those inside strings are written too: one pair less, one colon less.
    # Only an escaped colon could make up for it.
    if octets.count(b":") != written.count(b":") or b"\\u003" in octets:
        return False
    # Plain searches spare nearly every body the pattern, and one for a single byte is the quickest.
    if b".0" not in written and (b"+" not in written or b"e+" not in written):
        return True
    return _BLURRED.search(written) is None


def _by_type(content_type: bytes, octets: bytes) -> tuple[Content, Json]:
    if may_be_json(content_type, octets) and (read := read_json(octets)) is not None:
        return "json", read[0]
    media = media_type(content_type)
    if media == b"application/x-www-form-urlencoded":
        return "form", _by_name((_name(name), _text(value)) for name, value in _pairs(octets))
    if media.startswith(b"multipart/"):
        parts = forms.parse_multipart(content_type, octets)
        return ("parts", _parts(parts)) if parts is not None else _opaque(octets)
    return _opaque(octets)


def _opaque(octets: bytes) -> tuple[Content, Json]:
    text = decode_utf8(octets)
    return ("bytes", _hash(octets)) if text is None else ("text", text)


def _hash(octets: bytes) -> Json:
    return {"sha256": Spelled(hashlib.sha256(octets).hexdigest()), "size": len(octets)}


def _parts(parts: list[forms.FormPart]) -> Json:
    described = [(part.name, _part(part)) for part in parts]
    named = [(_shown(name), part) for name, part in described if name is not None]
    if len(named) == len(described):
        return _by_name(named)
    return [{"name": name and _shown(name), "part": part} for name, part in described]


def _part(part: forms.FormPart) -> Json:
    media = (part.content_type or "").encode("utf-8", "surrogateescape")
    if part.filename is None and not media:
        return _text(part.body)
    about: dict[str, Json] = {"filename": part.filename and _shown(part.filename)}
    about["type"] = part.content_type and _shown(part.content_type)
    if part.filename is not None:
        return about | {"content": _hash(part.body)}
    read = read_json(part.body) if is_json(media) else None
    return about | {"content": _text(part.body) if read is None else {"json": read[0]}}


def _headers(headers: Headers, names: tuple[str, ...]) -> dict[str, Json]:
    if not names:
        return {}
    lower = [(name.lower().decode("latin-1"), value) for name, value in headers]
    return _by_name((name, _text(value)) for name, value in lower if name in names)


def _pairs(octets: bytes) -> list[tuple[bytes, bytes]]:
    pairs = parse_qsl(octets.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]


def _by_name(pairs: Iterable[tuple[str, Json]]) -> dict[str, Json]:
    # The order of names does not matter, that of one name's values does.
    grouped: dict[str, list[Json]] = {}
    for name, value in pairs:
        grouped.setdefault(name, []).append(value)
    return {name: found[0] if len(found) == 1 else found for name, found in grouped.items()}


def _name(octets: bytes) -> str:
    name = decode_utf8(octets)
    if name is None or name.startswith("\0"):
        return f"\0{octets.hex()}"
    return _anonymous(name)


def _text(octets: bytes) -> Json:
    text = decode_utf8(octets)
    return {"hex": Spelled(octets.hex())} if text is None else _anonymous(text)


def _anonymous(text: str) -> str:
    """One credential looks like any other, wherever it stood."""
    return _CREDENTIAL_TEXT.sub("REDACTED", text) if "REDACTED." in text else text


def _hidden(name: bytes, value: bytes, query: str) -> bool:
    if len(value) < MIN_VALUE or not is_credential_parameter(name.decode("latin-1"), query):
        return False
    return not value.startswith(f"REDACTED.{SHORT_PREFIX}".encode())


def _shown(text: str) -> str:
    """Octets that are no text, as a URL would write them."""
    return text if text.isascii() else _ODD.sub(lambda odd: f"%{ord(odd[0]) & 0xFF:02X}", text)


class _Applied:
    """Rules made ready to be applied."""

    def __init__(self, rules: Rules) -> None:
        self._paths = [json_paths.parse(text) for text in rules.ignore]
        self._rewrite = rules.rewrite
        self._normalising = Normalising(rules.normalise, rules.patterns)
        self._normalises = bool(rules.normalise or rules.patterns)

    def path(self, path: str) -> str:
        for old, new in self._rewrite:
            path = path.replace(old, new)
        return path

    def document(self, found: dict[str, Json]) -> dict[str, Json]:
        left = json_paths.without(found, self._paths)
        assert isinstance(left, dict)  # noqa: S101 - nothing leads to the document itself
        if "body" not in left:
            del left["content"]
        if not self._normalises:
            return left
        kept = ("method", "content")
        return {
            key: value if key in kept else self._normalising.value(value)
            for key, value in left.items()
        }


@lru_cache(maxsize=64)
def _applied(rules: Rules) -> _Applied:
    return _Applied(rules)
