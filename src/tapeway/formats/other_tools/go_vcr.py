"""Cassettes of go-vcr 1 to 4, read only: YAML or JSON of version 1 or 2 with `interactions`.

go-vcr gives each recording once, unless its caller made them replayable.
"""

import re

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.formats.conversion_loss import Loss
from tapeway.formats.fields import Fields
from tapeway.formats.other_tools.reading.http_call import (
    CallReader,
    HttpCall,
    headers_in,
    text_bytes,
)

_ROOT = ("version", "interactions")
_INTERACTION = ("id", "request", "response")
# What the other fields say too.
_REPEATED = ("proto", "proto_major", "proto_minor", "content_length", "transfer_encoding")
_REQUEST = (*_REPEATED, *("host", "remote_addr", "request_uri", "url", "method"))
_RESPONSE = (*_REPEATED, *("uncompressed", "status", "code", "duration"))
_MESSAGE = ("body", "headers", "form")
_DURATION = re.compile(r"([0-9]*\.?[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_UNITS_MS = {
    "ns": 1e-6,
    "us": 1e-3,
    "µs": 1e-3,
    "μs": 1e-3,
    "ms": 1,
    "s": 1e3,
    "m": 6e4,
    "h": 3.6e6,
}


def recognises(value: Json) -> bool:
    """Whether a document looks like a cassette of go-vcr."""
    match value:
        case {
            "interactions": [
                {
                    "request": {"url": _, "method": _},
                    "response": {"code": _} | {"status": _},
                    **rest,
                },
                *_,
            ]
        }:
            return "kind" not in rest
        case {"version": 2, "interactions": []}:
            return True
        case _:
            return False


def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    """The cassette. Raises FormatFault with the place."""
    root = Fields.of(value, ())
    root.require("interactions")
    calls = CallReader()
    for fields in root.objects("interactions"):
        fields.require("request", "response")
        calls.note_unknown(fields, _INTERACTION)
        _read_interaction(fields, calls)
    calls.note_unknown(root, _ROOT)
    return calls.cassette(fresh, "miss")


def _read_interaction(fields: Fields, calls: CallReader) -> None:
    request, response = fields.object("request"), fields.object("response")
    request.require("url")
    calls.note_unknown(request, (*_REQUEST, *_MESSAGE))
    calls.note_unknown(response, (*_RESPONSE, *_MESSAGE))
    body = text_bytes(request.text("body"))
    if not body and request.object("form").values and "?" not in request.text("url"):
        calls.note((*request.at, "form"), "is not kept: the file holds no body beside it")
    took = _duration(response)
    status, reason = _status(response)
    call = HttpCall(
        method=request.text("method").upper() or "GET",
        url=_url(request),
        request_headers=headers_in(request),
        request_body=body,
        status=status,
        reason=reason,
        version=response.text("proto"),
        headers=headers_in(response),
        chunks=(text_bytes(response.text("body")),),
        at_ms=took,
        latency_ms=took,
    )
    calls.add(fields.at, call, decoded=response.flag("uncompressed"))


def _url(request: Fields) -> str:
    url, host = request.text("url"), request.text("host")
    # Behind a server, go-vcr knows path and host.
    return f"http://{host}{url}" if url.startswith("/") and host else url


def _status(response: Fields) -> tuple[int, str]:
    status = response.values.get("status")
    written = str(status) if isinstance(status, int) else response.text("status")
    code, _, reason = written.partition(" ")
    if "code" not in response and code.isdecimal():
        return int(code), reason
    number = response.integer("code", low=0, high=999)
    return number, reason if code == str(number) else written


def _duration(response: Fields) -> float:
    written = response.values.get("duration")
    if isinstance(written, int | float):  # nanoseconds, in JSON
        return written / 1e6
    amounts = _DURATION.findall(written) if isinstance(written, str) else []
    return float(sum(float(number) * _UNITS_MS[unit] for number, unit in amounts))
