"""AgentTape's match key: AgentTape's tools find a recording by this key.

Equal to AgentTape 0.1.8 bit for bit, oddities included: ignored names are left out at every
depth, and leaving out one parameter of a URL re-encodes the rest.

AgentTape hashes a document. For an HTTP request it has `method`, `url`, `headers` and the body as
`json`, `form`, `text` or `body_b64`; for an SDK call, its endpoint and arguments.
"""

import base64
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tapeway.core.digests import sha256
from tapeway.core.http import forms
from tapeway.core.json_text import (
    MAX_DEPTH,
    Json,
    ReadJson,
    is_text_written_alike,
    is_written_alike,
    python_bytes,
    python_text,
    python_value,
)
from tapeway.core.model.messages import Headers, Request
from tapeway.core.text import decode_utf8

DEFAULT_IGNORED = (
    "timestamp",
    "created",
    "created_at",
    "request_id",
    "x-request-id",
    "x-amzn-requestid",
    "nonce",
    "trace_id",
    "traceparent",
    "date",
    "user-agent",
    "idempotency-key",
)
"""The names AgentTape ignores unless a project's configuration says otherwise."""

INIT_IGNORED = ("timestamp", "request_id", "x-request-id", "date", "nonce")
"""The ignored names in the configuration written by `agenttape init`."""

ORDERED_KEY = "__ordered__"
"""The key that AgentTape's matcher `ordered` gives to every request."""

_DROPPED_HEADERS = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "cookie",
        "x-api-key",
        "openai-api-key",
        "api-key",
        "user-agent",
        "date",
        "content-length",
        "host",
        "connection",
        "accept-encoding",
        "x-request-id",
        "x-stainless-arch",
        "x-stainless-os",
        "x-stainless-runtime",
        "x-stainless-runtime-version",
        "x-stainless-package-version",
        "x-stainless-lang",
        "x-stainless-retry-count",
        "idempotency-key",
        "traceparent",
    }
)
_DEFAULT_NAMES = frozenset(name.lower() for name in DEFAULT_IGNORED)
_MOST_IN_HEAD = 1024
"""The names and values of a stored head are fewer."""
_RETRY_COUNT = "x-stainless-retry-count"
_BOUNDARY = re.compile(r'boundary=("?)([^";,]+)\1', re.IGNORECASE)
_FIXED_BOUNDARY = "AGENTTAPE_BOUNDARY"

_NOTHING: Mapping[str, Json] = {}

_UNHASHABLE = (UnicodeEncodeError, RecursionError)
"""AgentTape fails on half a surrogate pair and on absurd depth; such requests have no key."""


def http_key(
    request: Request, known: Mapping[str, Json] = _NOTHING, read: ReadJson | None = None
) -> str:
    """The request's key by AgentTape's HTTP adapter, "" if there is none.

    `known` has the parsed body as `json`, if known already. `read` is the body as read without
    loss.

    AgentTape has an adapter for httpx and one for requests. The second keeps the case of names: a
    request sent by requests has the second adapter's key. A body in a file has no key: AgentTape
    has no such bodies.
    """
    url = request.url.partition("#")[0]
    if (
        read is not None
        and "json" in known
        and (is_text_written_alike(read.canonical) or is_written_alike(read.value))
    ):
        text = _written_document(request.method, url, request.headers, read.canonical)
        if text is not None:
            return "sha256:" + sha256(text).hexdigest()
    wire_case = _is_sent_by_requests(request.headers)
    return _document_key(request, url, wire_case=wire_case, known=known)


def stored_http_key(request: Request, ignore: Iterable[str] = DEFAULT_IGNORED) -> str:
    """AgentTape's key of a request in an AgentTape cassette, "" if there is none."""
    return _document_key(request, request.url, wire_case=True, ignore=ignore)


def possible_http_keys(
    request: Request, url: str, ignores: Collection[Iterable[str]]
) -> tuple[str, ...]:
    """The keys that AgentTape may have stored for a request, the likeliest first.

    They depend on the client (httpx or requests), on the names to ignore, and on AgentTape's
    release: 0.1.0 treated JSON bodies as text; 0.1.5 ignored no URL parameters, and kept the last
    of a form's fields with one name.
    """
    if request.file is not None:
        return ()
    try:
        return tuple(dict.fromkeys(_possible_http_keys(request, url, ignores)))
    except _UNHASHABLE:
        return ()


def possible_keys(document: Json, ignores: Collection[Iterable[str]]) -> tuple[str, ...]:
    """The keys of a document in AgentTape's form, one for each list of names to ignore."""
    try:
        keys = [agenttape_key(document, ignore) for ignore in _distinct(ignores, document)]
    except _UNHASHABLE:
        return ()
    return tuple(dict.fromkeys(keys))


def agenttape_key(
    document: Json,
    ignore: Iterable[str] = DEFAULT_IGNORED,
    *,
    canonical_urls: bool = True,
    length: int | None = None,
) -> str:
    """The key of a document in AgentTape's form. Raises UnicodeEncodeError on a lone surrogate.

    `length` is the total length of the texts, if known.
    """
    text = canonical_json(document, ignore, canonical_urls=canonical_urls, length=length)
    return "sha256:" + sha256(text.encode("utf-8")).hexdigest()


def canonical_json(
    document: Json,
    ignore: Iterable[str] = DEFAULT_IGNORED,
    *,
    canonical_urls: bool = True,
    length: int | None = None,
) -> str:
    """The text that is hashed for a key."""
    names = _DEFAULT_NAMES if ignore is DEFAULT_IGNORED else frozenset(map(str.lower, ignore))
    text = _dump(document, length)
    # Walking through a body to find that nothing is left out takes time.
    if (not names or _is_flat(text)) and not _may_leave_out(text, names):
        return text
    return _dump(_canonical(document, names, canonical_urls))


def _document_key(
    request: Request,
    url: str,
    *,
    wire_case: bool,
    ignore: Iterable[str] = DEFAULT_IGNORED,
    known: Mapping[str, Json] = _NOTHING,
) -> str:
    if request.file is not None:
        return ""
    try:
        document = _document(request, url, wire_case=wire_case, known=known)
        length = len(request.body) + _MOST_IN_HEAD
        return agenttape_key(document, ignore, length=length)
    except _UNHASHABLE:
        return ""


def _written_document(method: str, url: str, headers: Headers, body: bytes) -> bytes | None:
    """The text that is hashed for a request with this canonical JSON body.

    None where names may have to be left out, and for what cannot be written.
    """
    if (frame := _written_frame(method, url, headers)) is None:
        return None
    text = frame[0] + body + frame[1]
    shown = text.decode()
    return None if _may_leave_out(shown, _DEFAULT_NAMES) else text


@lru_cache(maxsize=256)
def _written_frame(method: str, url: str, headers: Headers) -> tuple[bytes, bytes] | None:
    """The text of a document before and after the body; None for a body outside JSON.

    Remembered, since a client repeats fields and URL in nearly every request.
    """
    shown, content_type = _described_headers(headers, wire_case=_is_sent_by_requests(headers))
    media = content_type.lower()
    if "multipart/form-data" in media or not _is_json(media):
        return None
    try:
        before = python_bytes({"headers": {**shown}}, sort_keys=True)
        behind = python_bytes({"method": method, "url": url}, sort_keys=True)
    except _UNHASHABLE:
        return None
    # Keys in order: headers, json, method, url.
    return (
        None if before is None or behind is None else (before[:-1] + b',"json":', b"," + behind[1:])
    )


def _possible_http_keys(
    request: Request, url: str, ignores: Collection[Iterable[str]]
) -> Iterator[str]:
    for wire_case in (False, True):
        document = _document(request, url, wire_case=wire_case)
        for ignore in _distinct(ignores, document):
            yield agenttape_key(document, ignore)
            if "?" in url or "form" in document:
                release_0_1_5 = document | _last_form_values(document)
                yield agenttape_key(release_0_1_5, ignore, canonical_urls=False)
            if request.body:
                release_0_1_0 = _document_of_0_1_0(request, url, wire_case=wire_case)
                yield agenttape_key(release_0_1_0, ignore, canonical_urls=False)


def _dump(value: Json, length: int | None = None) -> str:
    quick = python_bytes(value, sort_keys=True)
    return python_text(value, sort_keys=True, length=length) if quick is None else quick.decode()


def _canonical(value: Json, ignore: frozenset[str], urls: bool) -> Json:
    if isinstance(value, dict):
        return {
            name: _canonical_url(inner, ignore)
            if urls and name.lower() == "url" and isinstance(inner, str) and "://" in inner
            else _canonical(inner, ignore, urls)
            for name, inner in value.items()
            if name.lower() not in ignore and name != "raw_b64"
        }
    if isinstance(value, list):
        return [_canonical(inner, ignore, urls) for inner in value]
    return value


def _canonical_url(url: str, ignore: frozenset[str]) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    kept = [(name, value) for name, value in pairs if name.lower() not in ignore]
    if len(kept) == len(pairs):
        return url
    return urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(kept), parts.fragment))


def _distinct(ignores: Collection[Iterable[str]], document: Json) -> list[frozenset[str]]:
    """The lists reduced to the names that the document has: for most requests they are all empty."""
    lists = [frozenset(name.lower() for name in ignore) for ignore in ignores]
    names = set(_names(document)) if _may_have(document, frozenset().union(*lists)) else set()
    return list(dict.fromkeys(ignored & names for ignored in lists))


def _is_flat(text: str) -> bool:
    # AgentTape cannot walk through a document of absurd depth.
    return text.count("[") + text.count("{") <= MAX_DEPTH


def _may_leave_out(text: str, names: frozenset[str]) -> bool:
    if '"raw_b64":' in text:
        return True
    return bool(names) and _may_name(text.lower(), names)


def _may_have(document: Json, names: frozenset[str]) -> bool:
    # Searching the text takes a tenth of the time of visiting every name.
    return _may_name(_dump(document).lower(), names)


def _may_name(lower: str, names: frozenset[str]) -> bool:
    if any(map(lower.__contains__, _quoted(names))):
        return True
    # In the query of a URL names have no quotes, and may be percent-encoded.
    return "://" in lower and "?" in lower and any(mark in lower for mark in ("%", *names))


@lru_cache(maxsize=64)
def _quoted(names: frozenset[str]) -> tuple[str, ...]:
    """The names as JSON writes them, made once for many recordings."""
    return tuple([f'"{name}"' for name in names])


def _names(value: Json) -> Iterator[str]:
    """All names in a document, those of URL parameters included, in lower case."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name.lower()
            if isinstance(inner, str) and "://" in inner and "?" in inner:
                yield from (parameter.lower() for parameter, _ in _parameters(inner))
            yield from _names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner)


def _parameters(url: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(urlsplit(url).query, keep_blank_values=True)
    except ValueError:
        return []


def _document(
    request: Request, url: str, *, wire_case: bool = False, known: Mapping[str, Json] = _NOTHING
) -> dict[str, Json]:
    headers, content_type = _described_headers(request.headers, wire_case=wire_case)
    return {
        "method": request.method,
        "url": url,
        "headers": {**headers},
        **_body(request.body, content_type, known),
    }


@lru_cache(maxsize=128)
def _described_headers(headers: Headers, *, wire_case: bool) -> tuple[Mapping[str, str], str]:
    """The header of a document, and the content type.

    Remembered, since a client sends the same fields with nearly every request.
    """
    texts, fixed = _headers(headers, wire_case=wire_case), f"boundary={_FIXED_BOUNDARY}"
    shown = {
        name: _BOUNDARY.sub(fixed, value) if "=" in value else value
        for name, value in texts.items()
    }
    return shown, _content_type(texts)


def _document_of_0_1_0(request: Request, url: str, *, wire_case: bool) -> dict[str, Json]:
    headers = _headers(
        request.headers, wire_case=wire_case, dropped=_DROPPED_HEADERS - {_RETRY_COUNT}
    )
    return {"method": request.method, "url": url, "headers": {**headers}, **_body(request.body, "")}


def _last_form_values(document: Mapping[str, Json]) -> dict[str, Json]:
    form = document.get("form")
    if not isinstance(form, dict):
        return {}
    return {"form": {k: v[-1] if isinstance(v, list) else v for k, v in form.items()}}


def _is_sent_by_requests(headers: Headers) -> bool:
    # Of Python's HTTP clients only requests sends Accept-Encoding before Accept.
    names = [name for name, _ in headers if name in (b"Accept-Encoding", b"Accept")]
    return names == [b"Accept-Encoding", b"Accept"]


def _content_type(headers: dict[str, str]) -> str:
    return next((value for name, value in headers.items() if name.lower() == "content-type"), "")


def _headers(
    headers: Headers, *, wire_case: bool = False, dropped: frozenset[str] = _DROPPED_HEADERS
) -> dict[str, str]:
    texts: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name = raw_name.decode("latin-1")
        if name.lower() in dropped:
            continue
        name = name if wire_case else name.lower()
        value = _text(raw_value)
        # httpx joins a repeated field like this.
        texts[name] = f"{texts[name]}, {value}" if name in texts else value
    return texts


def _text(value: bytes) -> str:
    text = decode_utf8(value)
    return value.decode("latin-1") if text is None else text


def _is_json(media: str) -> bool:
    return "application/json" in media or media.endswith("+json")


def _body(body: bytes, content_type: str, known: Mapping[str, Json] = _NOTHING) -> dict[str, Json]:
    if not body:
        return {}
    media = content_type.lower()
    if "multipart/form-data" in media:
        if boundary := _BOUNDARY.search(content_type):
            body = body.replace(boundary[2].encode(), _FIXED_BOUNDARY.encode())
    elif _is_json(media):
        if "json" in known:
            return {"json": known["json"]}
        try:
            return {"json": python_value(body.decode("utf-8"))}
        except ValueError:
            pass
    elif "application/x-www-form-urlencoded" in media:
        try:
            return {"form": forms.parse_form(body)}
        except ValueError:
            pass
    if (text := decode_utf8(body)) is None:
        return {"body_b64": base64.b64encode(body).decode("ascii")}
    return {"text": text}
