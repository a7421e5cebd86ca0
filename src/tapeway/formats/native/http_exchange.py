"""One HTTP exchange as an interaction of a cassette file, and back.

Encoding refuses everything that decoding would refuse: each written file can be read again. A large
body is stored as a reference to a file, a recorded failure as AgentTape's `error`.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from tapeway.core.agenttape.key import http_key
from tapeway.core.http.content_codings import (
    content_coding,
    decoder,
    has_content_coding,
    readable_response,
    without_coding_fields,
)
from tapeway.core.http.headers import HOP_BY_HOP, OWN, end_to_end, find_header
from tapeway.core.http.location import without_default_port
from tapeway.core.json_text import Json, Pointer, ReadJson
from tapeway.core.matching.document import read_value
from tapeway.core.matching.templates import TemplateFault, check_template
from tapeway.core.model.cassette import NOT_READ, ReadBodies
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    CONDITIONAL_STATUSES,
    FAILURE_MESSAGES,
    BodyFile,
    CredentialHeaders,
    Failure,
    FailureKind,
    Framing,
    Headers,
    PartDigest,
    Request,
    Response,
    ResponseHead,
    Verdict,
)
from tapeway.core.model.request_fields import RequestFields, stored_fields
from tapeway.core.redaction.spans import PLACEHOLDER
from tapeway.core.text import is_utf8
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document, Fields, millis
from tapeway.formats.native import bodies, chunk_times, header_map, multipart
from tapeway.formats.native.text_lines import joined

_BODY_FILE = "body_file"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BODY_FILE_FIELDS = ("sha256", "size", "parts", "placeholders")
_PART_FIELDS = ("name", "filename", "type", "sha256")
_MAX_SIZE = 2**53

_FAILURE_FIELDS = ("type", "module", "message", "failure")
"""All fields of an error; only tapeway's failures have `failure`."""

PARTIAL = "partial"
"""The field beside the error with the part received before. AgentTape ignores the field."""
_MODULE = "httpx"
_TYPES: Mapping[FailureKind, str] = {
    "cut": "RemoteProtocolError",
    "reset": "ReadError",
    "timeout": "ReadTimeout",
}
_KINDS: Mapping[str, FailureKind] = {kind: kind for kind in _TYPES}
_SHARED = 4096
"""How many different texts that recordings have in common are remembered."""
# Dictionaries find a name at once.
_AFTER_REQUESTS = "after_requests"
_TEMPLATE = "template"
INTERACTION = dict.fromkeys(
    (
        *("index", "kind", "boundary", "request", "response", "error", PARTIAL),
        *("again", "match_key", "latency_ms", "usage", "tags", "metadata"),
    )
)
_MOST_EDITIONS = 1000

REQUEST = dict.fromkeys(
    (
        *("method", "url", *header_map.NAMES, *bodies.NAMES, multipart.NAME),
        *("content_encoding", "vary", "headers_edition", "route", "base", "credentials"),
    )
)
RESPONSE = dict.fromkeys(
    (
        *("status_code", "reason_phrase", "reason", "reason_latin1", "http_version"),
        *(
            *header_map.NAMES,
            *bodies.NAMES,
            *chunk_times.NAMES,
            "verdict",
            _AFTER_REQUESTS,
            _TEMPLATE,
        ),
    )
)

_NOTHING: Mapping[str, Json] = {}
"""One object for nearly all recordings."""
_REST = ("match_key", "latency_ms", "usage", "tags", "metadata")
"""The fields of an interaction beside the messages, in order."""
_Rest = tuple[str, float, Mapping[str, Json] | None, tuple[str, ...], Mapping[str, Json]]
_ANNOUNCED = "length"
"""The Content-Length of a response with a shorter body."""
_VERDICTS: Mapping[str, Verdict] = {
    verdict: verdict for verdict in ("complete", "marked", "unmarked", "error", "truncated", "open")
}
_STATUSES = range(200, 600)
_MAX_LENGTH = 2**63
_MOST_REPEATS = 2**31
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VERSION = re.compile(r"HTTP/[0-9](\.[0-9])?")
_VERSIONS = frozenset({"HTTP/1.0", "HTTP/1.1"})
_OWN_AND_LENGTH = OWN | {b"content-length"}
_FRAMING = HOP_BY_HOP | _OWN_AND_LENGTH
_JSON_TYPE: Headers = ((b"Content-Type", b"application/json"),)
_PLAIN_REASONS = frozenset({"", "OK", "Created", "Accepted", "No Content", "Not Found"})
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_ORIGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)")

# Lone surrogates (bytes that are not UTF-8), which JSON cannot hold, and control characters.
_UNWRITABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def encode(
    interaction: Interaction, read: ReadBodies = NOT_READ, *, for_dump: bool = False
) -> dict[str, Json]:
    """The document, its fields in AgentTape's order. Raises FormatFault for invalid content.

    A document `for_dump` may have texts of JSON inside.
    """
    request, foreign = interaction.request, bool(interaction.stored_keys)
    url, boundary = _written_url(request.url)
    document: dict[str, Json] = {"index": interaction.index, "kind": request.kind}
    if boundary:
        document["boundary"] = boundary
    document["request"] = fields = _encode_request(request, url, read.request, foreign=foreign)
    if interaction.failure is None:
        document["response"] = _encode_response(
            interaction.response, request.method, read.response, for_dump=for_dump
        )
    else:
        document["error"] = _encode_failure(interaction.failure)
        if interaction.response.status:
            document[PARTIAL] = _encode_partial(interaction.response, request.method)
    if interaction.again:
        document["again"] = interaction.again
    key = interaction.stored_keys[0] if foreign else http_key(request, fields, read.request)
    if key:
        document["match_key"] = key
    document["latency_ms"] = millis(interaction.latency_ms)
    if interaction.usage is not None:
        document["usage"] = dict(interaction.usage)
    if interaction.tags:
        document["tags"] = list(interaction.tags)
    if interaction.metadata:
        document["metadata"] = dict(interaction.metadata)
    return document


def decode(document: Mapping[str, Json], index: int, at: Pointer) -> Interaction:
    """The interaction in a document. Raises FormatFault with the place of the fault."""
    # Rare fields are only tested for presence: a cassette has many thousands of recordings.
    fields = Fields(document, at)
    fields.only(INTERACTION)
    failure = None
    if "error" in document or PARTIAL in document:
        failure = _decode_failure(fields.object("error")) if "error" in fields else None
        forbidden = "response" if failure else PARTIAL
        if forbidden in fields:
            raise fields.fault(forbidden, "contradicts the 'response' or 'error' beside it")
    fields.require("request", *(() if failure else ("response",)))
    request = decode_request(fields.object("request"))
    response = (
        _decode_partial(fields, request.method)
        if failure
        else _decode_response(fields.object("response"), request.method)
    )
    return Interaction(
        index,
        request,
        response if request.route else _without_stale_coding(response, request.method),
        *_decode_rest(fields),
        # A foreign tool computed the key before redaction: the stored key cannot be recomputed.
        stored_keys=() if request.route else (fields.text("match_key"),),
        failure=failure,
        again=fields.integer("again", low=0, high=_MOST_REPEATS) if "again" in document else 0,
    )


def _decode_rest(fields: Fields) -> _Rest:
    values = fields.values
    return (
        fields.text("match_key"),
        fields.number("latency_ms"),
        fields.object("usage").values if values.get("usage") is not None else None,
        fields.texts("tags"),
        fields.object("metadata").values if "metadata" in values else _NOTHING,
    )


def is_all_in(document: Mapping[str, Json]) -> bool:
    """Whether an exchange recorded by tapeway is whole, on a route, and completely in the document.

    The answer must fit requests without a condition and for the whole.
    """
    request, response = document.get("request"), document.get("response")
    return (
        isinstance(request, dict)
        and isinstance(response, dict)
        and isinstance(status := response.get("status_code"), int)
        and status not in CONDITIONAL_STATUSES
        and "method" in request
        and request.get("route") != ""
        and _BODY_FILE not in request
        and _BODY_FILE not in response
        and "error" not in document
        and "again" not in document
        and PARTIAL not in document
    )


def check(
    document: Mapping[str, Json], at: Pointer, *, as_sent: bool = False
) -> tuple[Request, ReadJson | None]:
    """The request in the document. Raises FormatFault where `decode` would, in half of the time.

    Unless wanted `as_sent`, a plain JSON body is in canonical form, and returned as read too. Only
    for a document that `is_all_in`.
    """
    fields = Fields(document, at)
    fields.only(INTERACTION)
    request = _check_request(fields.object("request"), as_sent=as_sent)
    response = fields.object("response")
    _decode_status(response)
    _decode_verdict(response)
    header_map.check(response)
    bodies.decode(response, written=False)
    chunk_times.decode(response, None, "")
    if _AFTER_REQUESTS in response.values:
        _decode_after_requests(response)
    if _TEMPLATE in response.values:
        _decode_template(response)
    _decode_rest(fields)
    return request


def filed_content(document: Document, *, request: bool) -> Mapping[str, object]:
    """Fields of a checked recording by name: the request, or else the rest."""
    fields = Fields(joined(document), ())
    if request:
        return {"request": decode_request(fields.object("request"))}
    method = fields.object("request").text("method")
    return {
        "response": _decode_response(fields.object("response"), method),
        **dict(zip(_REST, _decode_rest(fields), strict=True)),
    }


def decode_request(fields: Fields) -> Request:
    """The request in a document. Raises FormatFault."""
    header = stored_fields(header_map.decode(fields))
    return _request(fields, header, _decode_request_body(fields, header.headers))


def _check_request(fields: Fields, *, as_sent: bool) -> tuple[Request, ReadJson | None]:
    header, read = stored_fields(header_map.decode(fields)), None
    if not as_sent and bodies.is_plain_json(fields) and header.is_plain_json:
        bodies.decode(fields, written=False)
        read = read_value(fields.values["json"])
    body = _decode_request_body(fields, header.headers) if read is None else read.canonical
    return _request(fields, header, body), read


def _request(fields: Fields, header: RequestFields, body: bytes) -> Request:
    fields.only(REQUEST)
    fields.require("method", "url")
    method, route = _shared(fields.text("method")), _shared(fields.text("route"))
    if not _is_token(method):
        raise fields.fault("method", f"'{method}' is no method name")
    base, target = _split_url(fields)
    if not route:
        target = target.partition("#")[0]
        target = target if target.startswith("/") else f"/{target}"
    return Request(
        route=route,
        method=method,
        target=target,
        headers=header.headers,
        body=body,
        base=base,
        file=_decode_body_file(fields),
        credentials=_decode_credentials(fields),
        coding=_decode_coding(fields),
        varied=_decode_varied(fields),
        edition=_decode_edition(fields),
        read=header,
    )


def is_ours(error: Json) -> bool:
    """Whether an error is a failure recorded by tapeway, and not another tool's exception."""
    return isinstance(error, dict) and "failure" in error


def _encode_request(
    request: Request, url: str, read: ReadJson | None, *, foreign: bool
) -> dict[str, Json]:
    if not _is_token(request.method):
        raise FormatFault("is no method name", ("request", "method"))
    shown, others, kind = header_map.encode_request(request.headers)
    fields: dict[str, Json] = {"method": request.method, "url": url, "headers": {**shown}}
    if request.file is not None:
        fields |= _encode_body_file(request.file)
    else:
        # Tested first: every recording passes here, and nearly none is affected.
        parts = multipart.encode(request.body, kind) if "multipart/" in kind.lower() else {}
        fields |= parts or bodies.encode(request.body, kind, None if read is None else read.value)
    if request.coding:
        fields["content_encoding"] = request.coding.decode("latin-1")
    if request.varied:
        fields["vary"] = [*request.varied]
    if request.edition > 1:
        fields["headers_edition"] = request.edition
    if request.credentials:
        fields["credentials"] = dict(request.credentials)
    # Only recordings of tapeway have a route.
    if not foreign:
        fields["route"] = request.route
        if base := _path_of(request.base):
            fields["base"] = base
    return fields | others if others else fields


def _decode_request_body(fields: Fields, headers: Headers) -> bytes:
    if multipart.NAME not in fields:
        return bodies.decode(fields)
    if other := next((name for name in bodies.NAMES if name in fields), None):
        raise fields.fault(other, f"the body is there twice, as '{multipart.NAME}' too: keep one")
    return multipart.decode(fields, content_type(headers))


def _decode_coding(fields: Fields) -> bytes:
    if "content_encoding" not in fields.values:
        return b""
    coding = fields.text("content_encoding")
    if not all(_is_token(part.strip()) for part in coding.split(",")):
        raise fields.fault("content_encoding", f"'{coding}' is no list of content codings")
    return coding.encode("ascii")


def _decode_varied(fields: Fields) -> tuple[str, ...]:
    if "vary" not in fields.values:
        return ()
    names = tuple([name.lower() for name in fields.texts("vary")])
    if other := next((name for name in names if not _is_token(name)), None):
        raise fields.fault("vary", f"'{other}' is no header name")
    return _shared_names(names)


def _decode_edition(fields: Fields) -> int:
    if "headers_edition" not in fields.values:
        return 1
    return fields.integer("headers_edition", low=1, high=_MOST_EDITIONS)


@lru_cache(maxsize=256)
def _shared_names(names: tuple[str, ...]) -> tuple[str, ...]:
    return names


def _decode_credentials(fields: Fields) -> CredentialHeaders:
    if "credentials" not in fields.values:
        return ()
    credentials = fields.object("credentials")
    return tuple([(name, credentials.text(name)) for name in credentials.values])


@lru_cache(maxsize=_SHARED)
def _shared(text: str) -> str:
    """The text, one object for many recordings."""
    return text


@lru_cache(maxsize=256)
def _shared_head(
    status: int, reason: str, headers: Headers, framing: Framing, version: str
) -> ResponseHead:
    """The head, one object for many recordings."""
    return ResponseHead(status, reason, headers, framing, version)


@lru_cache(maxsize=_SHARED)
def _is_token(text: str) -> bool:
    return _TOKEN.fullmatch(text) is not None


def _split_url(fields: Fields) -> tuple[str, str]:
    # Without a route, nobody knows how much of the path belongs to the base URL.
    base = fields.text("base") if "base" in fields.values and fields.text("route") else ""
    try:
        return _parts_of_url(fields.text("url"), base)
    except ValueError as exc:
        raise fields.fault("url", str(exc)) from None


@lru_cache(maxsize=_SHARED)
def _parts_of_url(url: str, base: str) -> tuple[str, str]:
    """The base URL and the target below it; `base` is the path of the former."""
    origin = _ORIGIN.match(url)
    if _CONTROL.search(url) or not (origin or url.startswith("/")):
        raise ValueError("must be an absolute URL or a path beginning with '/'")
    start = origin.end() if origin else 0
    if not url.startswith(base, start):
        raise ValueError(f"is not below 'base', which is '{base}': change or remove that too")
    end = start + len(base)
    return _shared(url[:end]), url[end:]


def _encode_response(
    response: Response, method: str, value: Json = None, *, for_dump: bool = False
) -> dict[str, Json]:
    head = response.head
    if head.status not in _STATUSES:
        reason = f"must be between 200 and 599, not {head.status}"
        raise FormatFault(reason, ("response", "status_code"))
    stored = head.headers
    if not _are_stored(head.names):
        stored = _stored_headers(stored, method, head.status)
    headers = header_map.encode(stored, "response")
    fields: dict[str, Json] = {"status_code": head.status, "headers": headers.pop("headers")}
    fields["reason_phrase"] = head.reason
    fields["http_version"] = head.version
    if response.file is not None:
        fields |= _encode_body_file(response.file)
    else:
        fields |= bodies.encode(response.body, content_type(stored), value)
    fields |= headers
    if response.verdict:
        fields["verdict"] = response.verdict
    if response.template:
        fields[_TEMPLATE] = True
    if response.after_requests:
        fields[_AFTER_REQUESTS] = list(response.after_requests)
    fields |= chunk_times.encode(response, for_dump=for_dump)
    if not (head.reason in _PLAIN_REASONS and head.version in _VERSIONS):
        if _UNWRITABLE.search(head.reason):
            raw = head.reason.encode("utf-8", "surrogateescape")
            fields |= {"reason_phrase": raw.decode("latin-1"), "reason_latin1": True}
        _check_head(Fields(fields, ("response",)))
    return fields


def _encode_partial(response: Response, method: str) -> dict[str, Json]:
    fields = _encode_response(response, method)
    if response.head.length is not None:
        fields[_ANNOUNCED] = response.head.length
    return fields


def _decode_partial(interaction: Fields, method: str) -> Response:
    if PARTIAL not in interaction:
        return Response(ResponseHead(0))
    fields = interaction.object(PARTIAL)
    plain = {name: value for name, value in fields.values.items() if name != _ANNOUNCED}
    part = _decode_response(Fields(plain, fields.at), method)
    if _ANNOUNCED not in fields:
        return part
    length = fields.integer(_ANNOUNCED, low=0, high=_MAX_LENGTH)
    return replace(part, head=replace(part.head, length=length))


def _decode_response(fields: Fields, method: str) -> Response:
    head, verdict = _decode_head(fields, method), _decode_verdict(fields)
    if _TEMPLATE in fields.values:
        return replace(_decode_body_of(fields, head, verdict), template=_decode_template(fields))
    if _AFTER_REQUESTS in fields.values:
        return replace(
            _decode_body_of(fields, head, verdict), after_requests=_decode_after_requests(fields)
        )
    return _decode_body_of(fields, head, verdict)


def _decode_template(fields: Fields) -> bool:
    if not fields.flag(_TEMPLATE):
        return False
    if "json" not in fields.values:
        raise fields.fault(_TEMPLATE, "fills a body of JSON: write it as 'json'")
    try:
        check_template(fields.values["json"])
    except TemplateFault as exc:
        raise fields.fault("json", str(exc)) from exc
    return True


def _decode_body_of(fields: Fields, head: ResponseHead, verdict: Verdict) -> Response:
    if (file := _decode_body_file(fields)) is not None:
        bodies.decode(fields)
        at_ms, times = chunk_times.decode_of_file(fields, file.size)
        return Response(head, b"", at_ms, times, file=file, verdict=verdict)
    kind = content_type(head.headers) if "chunks" in fields.values else ""
    body = bodies.decode(fields)
    at_ms, times = chunk_times.decode(fields, body, kind)
    return Response(head, body, at_ms, times, verdict=verdict)


def _decode_head(fields: Fields, method: str) -> ResponseHead:
    status, reason = _decode_status(fields)
    headers = _stored_headers(header_map.decode(fields), method, status)
    if "json" in fields.values and not find_header(headers, b"content-type"):
        # Only people leave the field out: without the field no recorder takes a body for JSON.
        headers += _JSON_TYPE
    framing = chunk_times.framing(fields)
    version = fields.text("http_version", "HTTP/1.1")
    return _shared_head(status, reason, headers, framing, version)


def _decode_status(fields: Fields) -> tuple[int, str]:
    """The status and its reason, all of the status line checked."""
    fields.only(RESPONSE)
    fields.require("status_code")
    status = fields.integer("status_code", low=_STATUSES.start, high=_STATUSES.stop - 1)
    _check_head(fields)
    reason = fields.text("reason_phrase") or fields.text("reason")
    if "reason_latin1" in fields.values and fields.flag("reason_latin1"):
        reason = reason.encode("latin-1", "replace").decode("utf-8", "surrogateescape")
    return status, reason


def _decode_verdict(fields: Fields) -> Verdict:
    return fields.choice("verdict", _VERDICTS) if "verdict" in fields else ""


def _decode_after_requests(fields: Fields) -> tuple[int, ...]:
    written = fields.list(_AFTER_REQUESTS)
    counts = [count for count in written if type(count) is int and count >= 0]
    if len(counts) < len(written):
        raise fields.fault(_AFTER_REQUESTS, "must be a list of whole numbers from 0 on")
    return tuple(counts)


def _without_stale_coding(response: Response, method: str) -> Response:
    # AgentTape 0.1.0 wrote decoded bodies beside the headers of the encoded ones.
    coding = content_coding(response.headers)
    if response.file is not None or not response.body or not has_content_coding(response, method):
        return response
    if not is_utf8(response.body) or readable_response(response, method) is not response:
        return response
    if decoder(coding) is None:
        return response
    return replace(
        response, head=replace(response.head, headers=without_coding_fields(response.headers))
    )


def _check_head(fields: Fields) -> None:
    reason, values = fields.text("reason_phrase"), fields.values
    other = fields.text("reason") if "reason" in values else ""
    version = fields.text("http_version", "HTTP/1.1")
    if _is_head(reason, other, version):
        return
    for name in ("reason_phrase", "reason"):
        if _CONTROL.search(fields.text(name)):
            raise fields.fault(name, "cannot hold a control character")
    if not _VERSION.fullmatch(version):
        raise fields.fault("http_version", f"must be such as HTTP/1.1, not '{version}'")


@lru_cache(maxsize=_SHARED)
def _is_head(phrase: str, reason: str, version: str) -> bool:
    """Whether the text is a status line; nearly all recordings have few texts in common."""
    controls = _CONTROL.search(phrase) or _CONTROL.search(reason)
    return not controls and _VERSION.fullmatch(version) is not None


def _stored_headers(headers: Headers, method: str, status: int) -> Headers:
    if _are_stored(tuple([name for name, _ in headers])):
        return headers
    # Each delivery has separate framing; Content-Length is information only where no body follows.
    bodyless = method.upper() == "HEAD" or status == 304
    return end_to_end(headers, drop=OWN if bodyless else _OWN_AND_LENGTH)


@lru_cache(maxsize=_SHARED)
def _are_stored(names: tuple[bytes, ...]) -> bool:
    """Whether fields with the names are all stored; most answers of a service have equal names."""
    return _FRAMING.isdisjoint([name.lower() for name in names])


def content_type(headers: Headers) -> str:
    """The Content-Type, empty where missing."""
    return (find_header(headers, b"content-type") or b"").decode("latin-1")


@lru_cache(maxsize=_SHARED)
def _written_url(url: str) -> tuple[str, str]:
    """The URL as it is written, and its boundary; many recordings have the same one."""
    written = _UNWRITABLE.sub(_percent, url)
    return written, _boundary(written)


@lru_cache(maxsize=_SHARED)
def _path_of(base: str) -> str:
    """The path of a base URL."""
    origin = _ORIGIN.match(base)
    return base[origin.end() if origin else 0 :]


def _boundary(url: str) -> str:
    # As AgentTape writes URLs: lower case, without user and default port.
    origin = _ORIGIN.match(url)
    if origin is None:
        return ""
    scheme, authority = origin[1].lower(), origin[2].rpartition("@")[2].lower()
    return without_default_port(f"{scheme}://{authority}")


def _percent(match: "re.Match[str]") -> str:
    return "".join([f"%{octet:02X}" for octet in _bytes_of(match[0])])


def _bytes_of(character: str) -> bytes:
    try:
        return character.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return character.encode("utf-8", "surrogatepass")


def _encode_body_file(file: BodyFile) -> dict[str, Json]:
    """The field that refers to a large body's file."""
    reference: dict[str, Json] = {"sha256": file.digest, "size": file.size}
    if file.parts is not None:
        reference["parts"] = [_encode_part_digest(part) for part in file.parts]
    if file.placeholders:
        reference["placeholders"] = [*file.placeholders]
    return {_BODY_FILE: reference}


def _decode_body_file(fields: Fields) -> BodyFile | None:
    """The file that a request's or response's fields refer to; its store knows the path.

    None without a reference, or for an empty file. Raises FormatFault.
    """
    if _BODY_FILE not in fields.values or _BODY_FILE not in fields:
        return None
    reference = fields.object(_BODY_FILE)
    reference.only(_BODY_FILE_FIELDS)
    reference.require("sha256", "size")
    parts = [*map(_decode_part_digest, reference.objects("parts"))]
    file = BodyFile(
        path="",
        size=reference.integer("size", low=0, high=_MAX_SIZE),
        digest=_digest(reference),
        parts=tuple(parts) if "parts" in reference else None,
        placeholders=_placeholders(reference),
    )
    return file if file.size else None


def _placeholders(reference: Fields) -> tuple[str, ...]:
    placeholders = reference.texts("placeholders")
    for text in placeholders:
        if not PLACEHOLDER.fullmatch(text.encode("utf-8", "surrogatepass")):
            raise reference.fault(
                "placeholders", "must be placeholders such as REDACTED.key.abcdefgh"
            )
    return placeholders


def _encode_part_digest(part: PartDigest) -> Json:
    known = {"name": part.name, "filename": part.filename, "type": part.content_type}
    fields: dict[str, Json] = {name: value for name, value in known.items() if value is not None}
    return fields | {"sha256": part.digest}


def _decode_part_digest(fields: Fields) -> PartDigest:
    fields.only(_PART_FIELDS)
    name, filename, kind = [
        fields.text(key) if key in fields else None for key in ("name", "filename", "type")
    ]
    return PartDigest(name, filename, kind, _digest(fields))


def _digest(fields: Fields) -> str:
    digest = fields.text("sha256")
    if not _DIGEST.fullmatch(digest):
        raise FormatFault("must be 64 hexadecimal digits, lower case", (*fields.at, "sha256"))
    return digest


def _encode_failure(failure: Failure) -> dict[str, Json]:
    """The error, as AgentTape stores httpx's exception for such an upstream."""
    return {
        "type": _TYPES[failure.kind],
        "module": _MODULE,
        "message": failure.message,
        "failure": failure.kind,
    }


def _decode_failure(fields: Fields) -> Failure:
    """The failure in an error. Raises FormatFault."""
    fields.only(_FAILURE_FIELDS)
    kind = fields.choice("failure", _KINDS)
    return Failure(kind, fields.text("message") or FAILURE_MESSAGES[kind])
