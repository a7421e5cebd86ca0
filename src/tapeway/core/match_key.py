"""AgentTape's match key: what its tools look a recording up by.

Bit for bit that of AgentTape 0.1.8, oddities included: volatile names are dropped at every depth,
and dropping one parameter of a URL re-encodes the others.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tapeway.core import forms
from tapeway.core.json_text import Json
from tapeway.core.model import Headers, Request

VOLATILE = (
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
_BOUNDARY = re.compile(r'boundary=("?)([^";,]+)\1', re.IGNORECASE)
_FIXED_BOUNDARY = "AGENTTAPE_BOUNDARY"


def of_http(request: Request) -> str:
    """The key AgentTape's httpx adapter gives this request, or "" where it has none.

    It has none for a body that lies in a file: AgentTape knows of no such thing.
    """
    if request.file is not None:
        return ""
    headers = _headers(request.headers)
    fixed = f"boundary={_FIXED_BOUNDARY}"
    try:
        document: dict[str, Json] = {
            "method": request.method,
            "url": request.url.partition("#")[0],
            "headers": {name: _BOUNDARY.sub(fixed, value) for name, value in headers.items()},
            **_body(request.body, headers.get("content-type", "")),
        }
        return of_request(document)
    except (UnicodeEncodeError, RecursionError):
        # AgentTape fails on half a surrogate pair and on absurd depth.
        return ""


def of_request(
    request: Json, ignore: Iterable[str] = VOLATILE, *, strip_blanks: bool = False
) -> str:
    """The key of a request in AgentTape's shape. Raises UnicodeEncodeError on a lone surrogate."""
    text = canonical_json(request, ignore, strip_blanks=strip_blanks)
    return "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


def canonical_json(
    request: Json, ignore: Iterable[str] = VOLATILE, *, strip_blanks: bool = False
) -> str:
    """The text that is hashed."""
    names = frozenset(name.lower() for name in ignore)
    canonical = _canonical(request, names, strip_blanks)
    return json.dumps(canonical, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _canonical(value: Json, ignore: frozenset[str], strip_blanks: bool) -> Json:
    if isinstance(value, dict):
        return {
            name: _canonical_url(inner, ignore)
            if name.lower() == "url" and isinstance(inner, str) and "://" in inner
            else _canonical(inner, ignore, strip_blanks)
            for name, inner in value.items()
            if name.lower() not in ignore and name != "raw_b64"
        }
    if isinstance(value, list):
        return [_canonical(inner, ignore, strip_blanks) for inner in value]
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


def _headers(headers: Headers) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name = raw_name.decode("latin-1").lower()
        if name in _DROPPED_HEADERS:
            continue
        value = _text(raw_value)
        # httpx shows a repeated field as one, joined like this.
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


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
            return {"form": forms.parse(body)}
        except ValueError:
            pass
    try:
        return {"text": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"body_b64": base64.b64encode(body).decode("ascii")}
