"""AgentTape's match key: what its tools look a recording up by.

Bit for bit that of AgentTape 0.1.8, oddities included: volatile names are dropped at every depth,
and dropping one parameter of a URL re-encodes the others.
"""

import base64
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tapeway.core.http import forms
from tapeway.core.json_text import Json
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
"""The field names AgentTape ignores unless a project's configuration says otherwise."""

INIT_IGNORED = ("timestamp", "request_id", "x-request-id", "date", "nonce")
"""Those that the configuration written by `agenttape init` has it ignore instead."""

ORDERED_KEY = "__ordered__"
"""The key its matcher `ordered` gives every request."""

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
_RETRIES = "x-stainless-retry-count"
_BOUNDARY = re.compile(r'boundary=("?)([^";,]+)\1', re.IGNORECASE)
_FIXED_BOUNDARY = "AGENTTAPE_BOUNDARY"


def http_key(request: Request) -> str:
    """The key AgentTape's adapter for httpx gives this request, or "" where it has none.

    A request that requests made has the key of the adapter for that, which keeps the case of names:
    only so do AgentTape's tools find it again. It has none for a body that lies in a file: AgentTape knows of no such thing.
    """
    if request.file is not None:
        return ""
    try:
        url, own = request.url.partition("#")[0], _is_of_requests(request.headers)
        return agenttape_key(_document(request, url, wire_case=own))
    except (UnicodeEncodeError, RecursionError):
        # AgentTape fails on half a surrogate pair and on absurd depth.
        return ""


def stored_http_key(request: Request, ignore: Iterable[str] = DEFAULT_IGNORED) -> str:
    """The key AgentTape computes anew for a request it has recorded, "" where it has none."""
    if request.file is not None:
        return ""
    try:
        return agenttape_key(_document(request, request.url, wire_case=True), ignore)
    except (UnicodeEncodeError, RecursionError):
        return ""


def possible_http_keys(
    request: Request, url: str, ignores: Collection[Iterable[str]]
) -> tuple[str, ...]:
    """The keys that AgentTape may have stored for a request, the likeliest first.

    That depends on the client (httpx or requests), on the names it was told to ignore, and on its
    release: 0.1.0 took JSON bodies for text, 0.1.5 ignored no parameters of URLs and kept the last
    of a form's fields with one name.
    """
    if request.file is not None:
        return ()
    try:
        found = dict.fromkeys(_all_of_http(request, url, ignores))
    except (UnicodeEncodeError, RecursionError):
        return ()
    return tuple(found)


def _all_of_http(request: Request, url: str, ignores: Collection[Iterable[str]]) -> Iterator[str]:
    for wire_case in (False, True):
        now = _document(request, url, wire_case=wire_case)
        for ignore in _different(ignores, now):
            yield agenttape_key(now, ignore)
            if "?" in url or "form" in now:
                middle = now | _last_of_each(now)
                yield agenttape_key(middle, ignore, canonical_urls=False)
            if request.body:
                first = _first_document(request, url, wire_case=wire_case)
                yield agenttape_key(first, ignore, canonical_urls=False)


def possible_keys(request: Json, ignores: Collection[Iterable[str]]) -> tuple[str, ...]:
    """The keys of a request in AgentTape's shape, for each way to ignore names."""
    try:
        keys = [agenttape_key(request, ignore) for ignore in _different(ignores, request)]
    except (UnicodeEncodeError, RecursionError):
        return ()
    return tuple(dict.fromkeys(keys))


def agenttape_key(
    request: Json,
    ignore: Iterable[str] = DEFAULT_IGNORED,
    *,
    strip_blanks: bool = False,
    canonical_urls: bool = True,
) -> str:
    """The key of a request in AgentTape's shape. Raises UnicodeEncodeError on a lone surrogate."""
    text = canonical_json(request, ignore, strip_blanks=strip_blanks, canonical_urls=canonical_urls)
    return "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


def canonical_json(
    request: Json,
    ignore: Iterable[str] = DEFAULT_IGNORED,
    *,
    strip_blanks: bool = False,
    canonical_urls: bool = True,
) -> str:
    """The text that is hashed."""
    names = frozenset(name.lower() for name in ignore)
    if not names and not strip_blanks and '"raw_b64":' not in (text := _dumped(request)):
        # There is nothing to leave out, which takes its time to look for in a large body.
        return text
    return _dumped(_canonical(request, names, strip_blanks, canonical_urls))


def _dumped(value: Json) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _canonical(value: Json, ignore: frozenset[str], strip_blanks: bool, urls: bool) -> Json:
    if isinstance(value, dict):
        return {
            name: _canonical_url(inner, ignore)
            if urls and name.lower() == "url" and isinstance(inner, str) and "://" in inner
            else _canonical(inner, ignore, strip_blanks, urls)
            for name, inner in value.items()
            if name.lower() not in ignore and name != "raw_b64"
        }
    if isinstance(value, list):
        return [_canonical(inner, ignore, strip_blanks, urls) for inner in value]
    if isinstance(value, str) and strip_blanks:
        return value.strip()
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


def _different(ignores: Collection[Iterable[str]], request: Json) -> list[frozenset[str]]:
    # Most requests have none of these names: then all ways are one.
    named = [frozenset(name.lower() for name in each) for each in ignores]
    present = set(_names(request)) if _may_name(request, frozenset().union(*named)) else set()
    return list(dict.fromkeys(each & present for each in named))


def _may_name(request: Json, names: Iterable[str]) -> bool:
    # A tenth of the time that a look at every name takes.
    text = _dumped(request).lower()
    if any(_dumped(name) in text for name in names):
        return True
    # In the query of a URL names stand without quotes, and may be encoded.
    return "://" in text and "?" in text and any(each in text for each in ("%", *names))


def _names(value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name.lower()
            if isinstance(inner, str) and "://" in inner and "?" in inner:
                yield from (each.lower() for each, _ in _parameters(inner))
            yield from _names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner)


def _parameters(url: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(urlsplit(url).query, keep_blank_values=True)
    except ValueError:
        return []


def _document(request: Request, url: str, *, wire_case: bool = False) -> dict[str, Json]:
    headers = _headers(request.headers, wire_case=wire_case)
    fixed = f"boundary={_FIXED_BOUNDARY}"
    return {
        "method": request.method,
        "url": url,
        "headers": {name: _BOUNDARY.sub(fixed, value) for name, value in headers.items()},
        **_body(request.body, _media(headers)),
    }


def _first_document(request: Request, url: str, *, wire_case: bool) -> dict[str, Json]:
    headers = _headers(request.headers, wire_case=wire_case, dropped=_DROPPED_HEADERS - {_RETRIES})
    return {"method": request.method, "url": url, "headers": {**headers}, **_body(request.body, "")}


def _last_of_each(document: Mapping[str, Json]) -> dict[str, Json]:
    form = document.get("form")
    if not isinstance(form, dict):
        return {}
    return {"form": {k: v[-1] if isinstance(v, list) else v for k, v in form.items()}}


def _is_of_requests(headers: Headers) -> bool:
    # It names the codings it accepts before what it accepts. No other client of Python's does.
    names = [name for name, _ in headers if name in (b"Accept-Encoding", b"Accept")]
    return names == [b"Accept-Encoding", b"Accept"]


def _media(headers: dict[str, str]) -> str:
    return next((value for name, value in headers.items() if name.lower() == "content-type"), "")


def _headers(
    headers: Headers, *, wire_case: bool = False, dropped: frozenset[str] = _DROPPED_HEADERS
) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name = raw_name.decode("latin-1")
        if name.lower() in dropped:
            continue
        name = name if wire_case else name.lower()
        value = _text(raw_value)
        # httpx shows a repeated field as one, joined like this.
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _text(value: bytes) -> str:
    text = decode_utf8(value)
    return value.decode("latin-1") if text is None else text


def _body(body: bytes, content_type: str) -> dict[str, Json]:
    if not body:
        return {}
    media = content_type.lower()
    if "multipart/form-data" in media:
        if boundary := _BOUNDARY.search(content_type):
            body = body.replace(boundary[2].encode(), _FIXED_BOUNDARY.encode())
    elif "application/json" in media or media.endswith("+json"):
        try:
            return {"json": json.loads(body.decode("utf-8"))}
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
