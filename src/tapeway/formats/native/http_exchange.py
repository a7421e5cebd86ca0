"""One HTTP exchange as an interaction of a cassette, and back.

Encoding refuses what decoding would refuse, so that nothing is written that cannot be read again.

What a cassette says of a body that lies in a file beside it, named by its SHA-256.

A recorded failure: AgentTape's `error`, which its tools raise, and what had come until then.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tapeway.core.agenttape.key import http_key
from tapeway.core.http.content_codings import (
    content_coding,
    decoder,
    has_content_coding,
    without_coding_fields,
)
from tapeway.core.http.headers import OWN, end_to_end, find_header
from tapeway.core.json_text import Json, Pointer
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    FAILURE_MESSAGES,
    BodyFile,
    Failure,
    FailureKind,
    Headers,
    PartDigest,
    Request,
    Response,
    ResponseHead,
    Verdict,
)
from tapeway.core.text import is_utf8
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Fields, millis
from tapeway.formats.native import bodies, chunk_times, header_map

BODY_FILE = "body_file"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BODY_FILE_FIELDS = ("sha256", "size", "parts")
_PART_FIELDS = ("name", "filename", "type", "sha256")
_LARGEST = 2**53

FAILURE_FIELDS = ("type", "module", "message", "failure")
"""All fields of the error; `failure` is what tells ours from another tool's."""

PARTIAL = "partial"
"""The field beside the error with what had come. AgentTape reads over it."""
_MODULE = "httpx"
_TYPES: Mapping[FailureKind, str] = {
    "cut": "RemoteProtocolError",
    "reset": "ReadError",
    "timeout": "ReadTimeout",
}
_KINDS: Mapping[str, FailureKind] = {kind: kind for kind in _TYPES}
INTERACTION = (
    *("index", "kind", "boundary", "request", "response", "error", PARTIAL),
    *("match_key", "latency_ms", "usage", "tags", "metadata"),
)
REQUEST = ("method", "url", *header_map.NAMES, *bodies.NAMES, "route", "base", "credentials")
RESPONSE = (
    *("status_code", "reason_phrase", "reason", "reason_latin1", "http_version"),
    *(*header_map.NAMES, *bodies.NAMES, *chunk_times.NAMES, "verdict"),
)

ANNOUNCED = "length"
"""Stands beside a body that is shorter than its head had said."""
_VERDICTS: Mapping[str, Verdict] = {
    each: each for each in ("complete", "marked", "error", "truncated")
}
_STATUSES = range(200, 600)
_LONGEST = 2**63
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VERSION = re.compile(r"HTTP/[0-9](\.[0-9])?")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_ORIGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)")
_DEFAULT_PORTS = {"http": "80", "https": "443"}

# What JSON cannot hold (octets that are no UTF-8) and what no URL may (control characters).
_UNWRITABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def encode_body_file(file: BodyFile) -> dict[str, Json]:
    """The field that refers to the file."""
    reference: dict[str, Json] = {"sha256": file.digest, "size": file.size}
    if file.parts is not None:
        reference["parts"] = [_encode_part_digest(part) for part in file.parts]
    return {BODY_FILE: reference}


def decode_body_file(fields: Fields) -> BodyFile | None:
    """The file a request's or response's fields refer to; where it lies, its store knows.

    None where they refer to none, or to an empty one: that is no body. Raises FormatFault.
    """
    if BODY_FILE not in fields:
        return None
    reference = fields.object(BODY_FILE)
    reference.only(_BODY_FILE_FIELDS)
    reference.require("sha256", "size")
    parts = reference.list("parts")
    file = BodyFile(
        path="",
        size=reference.integer("size", low=0, high=_LARGEST),
        digest=_digest(reference),
        parts=tuple(
            [
                _decode_part_digest(Fields.of(part, (*reference.at, "parts", position)))
                for position, part in enumerate(parts)
            ]
        )
        if "parts" in reference
        else None,
    )
    return file if file.size else None


def _encode_part_digest(part: PartDigest) -> Json:
    said = {"name": part.name, "filename": part.filename, "type": part.content_type}
    fields: dict[str, Json] = {name: value for name, value in said.items() if value is not None}
    return fields | {"sha256": part.digest}


def _decode_part_digest(fields: Fields) -> PartDigest:
    fields.only(_PART_FIELDS)
    name, filename, kind = [
        fields.text(each) if each in fields else None for each in ("name", "filename", "type")
    ]
    return PartDigest(name, filename, kind, _digest(fields))


def _digest(fields: Fields) -> str:
    digest = fields.text("sha256")
    if not _DIGEST.fullmatch(digest):
        raise FormatFault("must be 64 hexadecimal digits, lower case", (*fields.at, "sha256"))
    return digest


def encode_failure(failure: Failure) -> dict[str, Json]:
    """The error. In AgentTape's terms it is what httpx raises for such an upstream."""
    return {
        "type": _TYPES[failure.kind],
        "module": _MODULE,
        "message": failure.message,
        "failure": failure.kind,
    }


def decode_failure(fields: Fields) -> Failure:
    """The failure an error says. Raises FormatFault."""
    fields.only(FAILURE_FIELDS)
    said = fields.text("failure")
    if said not in _KINDS:
        raise fields.fault("failure", f"must be one of {', '.join(_KINDS)}, not '{said}'")
    kind = _KINDS[said]
    return Failure(kind, fields.text("message") or FAILURE_MESSAGES[kind])


def is_ours(error: Json) -> bool:
    """Whether an error is a failure that can be replayed, and not another tool's exception."""
    return isinstance(error, dict) and "failure" in error


def encode(interaction: Interaction) -> dict[str, Json]:
    """The interaction in AgentTape's order of fields. Raises FormatFault for an illegal one."""
    request, foreign = interaction.request, bool(interaction.stored_keys)
    url = _UNWRITABLE.sub(_percent, request.url)
    document: dict[str, Json] = {"index": interaction.index, "kind": "http"}
    if boundary := _boundary(url):
        document["boundary"] = boundary
    document["request"] = _encode_request(request, url, foreign=foreign)
    if interaction.failure is None:
        document["response"] = _encode_response(interaction.response, request.method)
    else:
        document["error"] = encode_failure(interaction.failure)
        if interaction.response.status:
            document[PARTIAL] = _encode_part(interaction.response, request.method)
    key = interaction.stored_keys[0] if foreign else http_key(request)
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
    """The interaction a document says. Raises FormatFault with the place of what is wrong."""
    fields = Fields(document, at)
    fields.only(INTERACTION)
    failure = decode_failure(fields.object("error")) if "error" in fields else None
    unfit, needed = ("response", ()) if failure else (PARTIAL, ("response",))
    if unfit in fields:
        raise fields.fault(unfit, "says otherwise than the 'response' or 'error' beside it")
    fields.require("request", *needed)
    request = decode_request(fields.object("request"))
    key = fields.text("match_key")
    response = (
        _decode_part(fields, request.method)
        if failure
        else _decode_response(fields.object("response"), request.method)
    )
    return Interaction(
        index=index,
        request=request,
        response=response if request.route else _as_it_stands(response, request.method),
        match_key=key,
        latency_ms=fields.number("latency_ms"),
        usage=fields.object("usage").values if "usage" in fields else None,
        tags=fields.texts("tags"),
        metadata=fields.object("metadata").values,
        # Another tool took its key before it redacted: only the stored one can be found again.
        stored_keys=() if request.route else (key,),
        failure=failure,
    )


def _encode_request(request: Request, url: str, *, foreign: bool) -> dict[str, Json]:
    if not _TOKEN.fullmatch(request.method):
        raise FormatFault("is no method name", ("request", "method"))
    fields: dict[str, Json] = {"method": request.method, "url": url}
    headers = header_map.encode(request.headers, "request")
    fields["headers"] = headers.pop("headers")
    if request.file is not None:
        fields |= encode_body_file(request.file)
    else:
        fields |= bodies.encode(request.body, _content_type(request.headers))
    if request.credentials:
        fields["credentials"] = dict(request.credentials)
    # The route is what tells a recording of ours from another tool's.
    if not foreign:
        fields["route"] = request.route
        origin = _ORIGIN.match(request.base)
        if base := request.base[origin.end() if origin else 0 :]:
            fields["base"] = base
    return fields | headers


def decode_request(fields: Fields) -> Request:
    """The request a document says. Raises FormatFault."""
    fields.only(REQUEST)
    fields.require("method", "url")
    method = fields.text("method")
    if not _TOKEN.fullmatch(method):
        raise fields.fault("method", f"'{method}' is no method name")
    route = fields.text("route")
    base, target = _divide(fields)
    if not route:
        target = target.partition("#")[0]
        target = target if target.startswith("/") else f"/{target}"
    return Request(
        route=route,
        method=method,
        target=target,
        headers=header_map.decode(fields),
        body=bodies.decode(fields),
        base=base,
        file=decode_body_file(fields),
        credentials=tuple(_texts(fields.object("credentials"))),
    )


def _texts(fields: Fields) -> Iterator[tuple[str, str]]:
    for name in fields.values:
        yield name, fields.text(name)


def _divide(fields: Fields) -> tuple[str, str]:
    # Where there is no route, nobody knows how much of the path is its own.
    url, base = fields.text("url"), fields.text("base") if fields.text("route") else ""
    origin = _ORIGIN.match(url)
    if _CONTROL.search(url) or not (origin or url.startswith("/")):
        raise fields.fault("url", "must be an absolute URL or a path beginning with '/'")
    start = origin.end() if origin else 0
    if not url.startswith(base, start):
        reason = f"does not lead below 'base', which says '{base}': change or remove that too"
        raise fields.fault("url", reason)
    end = start + len(base)
    return url[:end], url[end:]


def _encode_response(response: Response, method: str) -> dict[str, Json]:
    head = response.head
    if head.status not in _STATUSES:
        reason = f"must be between 200 and 599, not {head.status}"
        raise FormatFault(reason, ("response", "status_code"))
    kept = _replayable(head.headers, method, head.status)
    headers = header_map.encode(kept, "response")
    fields: dict[str, Json] = {"status_code": head.status, "headers": headers.pop("headers")}
    fields["reason_phrase"] = head.reason
    fields["http_version"] = head.version
    if response.file is not None:
        fields |= encode_body_file(response.file)
    else:
        fields |= bodies.encode(response.body, _content_type(kept))
    fields |= chunk_times.encode(response) | headers
    if response.verdict:
        fields["verdict"] = response.verdict
    if _UNWRITABLE.search(head.reason):
        octets = head.reason.encode("utf-8", "surrogateescape")
        fields |= {"reason_phrase": octets.decode("latin-1"), "reason_latin1": True}
    _check_head(Fields(fields, ("response",)))
    return fields


def _encode_part(response: Response, method: str) -> dict[str, Json]:
    fields = _encode_response(response, method)
    if response.head.length is not None:
        fields[ANNOUNCED] = response.head.length
    return fields


def _decode_part(interaction: Fields, method: str) -> Response:
    if PARTIAL not in interaction:
        return Response(ResponseHead(0))
    fields = interaction.object(PARTIAL)
    plain = {name: value for name, value in fields.values.items() if name != ANNOUNCED}
    part = _decode_response(Fields(plain, fields.at), method)
    if ANNOUNCED not in fields:
        return part
    length = fields.integer(ANNOUNCED, low=0, high=_LONGEST)
    return replace(part, head=replace(part.head, length=length))


def _decode_response(fields: Fields, method: str) -> Response:
    fields.only(RESPONSE)
    fields.require("status_code")
    status = fields.integer("status_code", low=_STATUSES.start, high=_STATUSES.stop - 1)
    _check_head(fields)
    reason = fields.text("reason_phrase") or fields.text("reason")
    if fields.flag("reason_latin1"):
        reason = reason.encode("latin-1", "replace").decode("utf-8", "surrogateescape")
    headers = _replayable(header_map.decode(fields), method, status)
    framing = chunk_times.framing(fields)
    version = fields.text("http_version", "HTTP/1.1")
    head = ResponseHead(status, reason, headers, framing, version)
    if (file := decode_body_file(fields)) is not None:
        bodies.decode(fields)
        times = chunk_times.cuts(fields, file.size)
        return Response(head, file=file, chunk_times=times, verdict=_verdict(fields))
    chunks = chunk_times.decode(fields, bodies.decode(fields), _content_type(headers))
    return Response(head, chunks, verdict=_verdict(fields))


def _as_it_stands(response: Response, method: str) -> Response:
    # AgentTape 0.1.0 wrote bodies decoded beside the headers of the coded ones.
    coding = content_coding(response.headers)
    if response.file is not None or not response.body or not has_content_coding(response, method):
        return response
    if decoder(coding) is None or not is_utf8(response.body):
        return response
    return replace(
        response, head=replace(response.head, headers=without_coding_fields(response.headers))
    )


def _verdict(fields: Fields) -> Verdict:
    if "verdict" not in fields:
        return ""
    said = fields.text("verdict")
    if said not in _VERDICTS:
        raise fields.fault("verdict", f"must be one of {', '.join(_VERDICTS)}, not '{said}'")
    return _VERDICTS[said]


def _check_head(fields: Fields) -> None:
    for name in ("reason_phrase", "reason"):
        if _CONTROL.search(fields.text(name)):
            raise fields.fault(name, "cannot hold a control character")
    version = fields.text("http_version", "HTTP/1.1")
    if not _VERSION.fullmatch(version):
        raise fields.fault("http_version", f"must be such as HTTP/1.1, not '{version}'")


def _replayable(headers: Headers, method: str, status: int) -> Headers:
    # Framing is made anew for each delivery; where no body follows, a length is news.
    bodyless = method.upper() == "HEAD" or status == 304
    return end_to_end(headers, drop=OWN if bodyless else OWN | {b"content-length"})


def _content_type(headers: Headers) -> str:
    return (find_header(headers, b"content-type") or b"").decode("latin-1")


def _boundary(url: str) -> str:
    # As AgentTape has it: lower case, no user, no default port.
    origin = _ORIGIN.match(url)
    if origin is None:
        return ""
    scheme, authority = origin[1].lower(), origin[2].rpartition("@")[2].lower()
    return f"{scheme}://{authority.removesuffix(':' + _DEFAULT_PORTS.get(scheme, ''))}"


def _percent(found: "re.Match[str]") -> str:
    return "".join([f"%{octet:02X}" for octet in _octets(found[0])])


def _octets(character: str) -> bytes:
    try:
        return character.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return character.encode("utf-8", "surrogatepass")
