"""Recordings of Google's test-server, read only: JSON with a `recordID` and its `interactions`.

test-server keeps JSON objects alone, and nothing of other bodies. The data of a stream
are separate objects.
"""

import re
from collections.abc import Iterator

from tapeway.core.http.location import origin_at
from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.formats.conversion_loss import Loss
from tapeway.formats.fields import Fields
from tapeway.formats.other_tools.reading.http_call import (
    CallReader,
    HttpCall,
    event,
    header_bytes,
    header_pairs,
)

_ROOT = ("recordID", "interactions")
_INTERACTION = ("request", "response", "shaSum")
_REQUEST = (
    *("method", "url", "request", "headers", "bodySegments", "previousRequest"),
    *("serverAddress", "port", "protocol"),
)
_RESPONSE = ("statusCode", "headers", "bodySegments", "sdkResponseSegments")
_WITHOUT_BODY = ("GET", "HEAD", "DELETE", "OPTIONS")
_BETWEEN_COOKIES = re.compile(r", (?=[^;,= ]+=)")
NO_BODY = "has no body in the file: test-server keeps JSON objects alone"
ONE_BODY = "has several values, and is no stream: the first is its body"


def recognises(value: Json) -> bool:
    """Whether a document looks like a recording of test-server."""
    match value:
        case {"recordID": _, "interactions": [*_]}:
            return True
        case {"interactions": [{"request": {"serverAddress": _}}, *_]}:
            return True
        case _:
            return False


def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    """The cassette. Raises FormatFault with the place."""
    root = Fields.of(value, ())
    calls = CallReader()
    for fields in root.objects("interactions"):
        fields.require("request")
        if "response" not in fields:
            calls.leave_out(fields.at, "has no response")
            continue
        calls.note_unknown(fields, _INTERACTION)
        _read_interaction(fields, calls)
    calls.note_unknown(root, _ROOT)
    return calls.cassette(fresh, "last")


def _read_interaction(fields: Fields, calls: CallReader) -> None:
    request, response = fields.object("request"), fields.object("response")
    calls.note_unknown(request, _REQUEST)
    calls.note_unknown(response, _RESPONSE)
    headers = header_bytes(_headers(response))
    method, url = _target(request)
    chunks = tuple(_chunks(url, response, calls))
    call = HttpCall(
        method=method,
        url=_origin(request) + url,
        request_headers=header_bytes(_headers(request)),
        request_body=_request_body(method, request),
        status=response.integer("statusCode", low=0, high=999) if "statusCode" in response else 200,
        headers=headers,
        chunks=chunks,
    )
    calls.add(fields.at, call, decoded=True)


def _target(request: Fields) -> tuple[str, str]:
    line = request.text("request").split(" ")
    method = request.text("method") or line[0]
    return method, request.text("url") or (line[1] if len(line) > 1 else "")


def _origin(request: Fields) -> str:
    host = request.text("serverAddress")
    if not host:
        return ""
    port = request.integer("port", low=1, high=65535) if "port" in request else None
    return origin_at(request.text("protocol", "https"), host, port)


def _headers(side: Fields) -> Iterator[tuple[str, str]]:
    """The headers. The file joins equal names, and joined cookies are separated."""
    for name, value in header_pairs(side.object("headers")):
        if name.lower() == "set-cookie":
            yield from [(name, part) for part in _BETWEEN_COOKIES.split(value)]
        else:
            yield name, value


def _request_body(method: str, request: Fields) -> bytes:
    segments = [segment for segment in request.list("bodySegments") if segment is not None]
    if not segments or (segments == [{}] and method.upper() in _WITHOUT_BODY):
        return b""
    return dump(segments[0])


def _chunks(url: str, response: Fields, calls: CallReader) -> Iterator[bytes]:
    segments = [segment for segment in response.list("bodySegments") if segment is not None]
    kinds = [value for name, value in _headers(response) if name.lower() == "content-type"]
    at = (*response.at, "bodySegments")
    if not segments:
        if kinds:
            calls.note(at, NO_BODY)
    elif "alt=sse" in url or any("event-stream" in kind for kind in kinds):
        yield from map(event, segments)
    else:
        if len(segments) > 1:
            calls.note(at, ONE_BODY)
        yield dump(segments[0])
