"""Recordings of nock, read only: the JSON that `output_objects` and nock.back write.

nock answers with each definition once. A body is JSON, a text, or hexadecimal digits; one with a
content coding is a list of chunks in hexadecimal digits.
"""

import re
from collections.abc import Iterator

from tapeway.core.http.content_codings import content_coding
from tapeway.core.http.headers import find_header
from tapeway.core.http.location import without_default_port
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.messages import Headers
from tapeway.core.text import is_utf8
from tapeway.formats.conversion_loss import Loss
from tapeway.formats.fields import Fields
from tapeway.formats.other_tools.reading.http_call import (
    JSON_TYPE,
    CallReader,
    HttpCall,
    header_bytes,
    header_pairs,
    headers_in,
    json_or_text,
)

_KNOWN = (
    *("scope", "port", "method", "path", "body", "status", "reply", "response", "responseIsBinary"),
    *("rawHeaders", "headers", "reqheaders"),
)
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_BINARY_TYPES = (b"image/", b"audio/", b"video/", b"font/", b"application/octet-stream")
_BINARY_ENDINGS = (b"zip", b"pdf", b"protobuf", b"eventstream")
HEX = "is taken for the hexadecimal digits of bytes, as nock writes what is not UTF-8"
ANY_BODY = "takes any body: only requests without one are answered"


def recognises(value: Json) -> bool:
    """Whether a document looks like definitions of nock."""
    match value:
        case [{"scope": _, "path": _} | {"scope": _, "method": _}, *_] | {"scope": _, "path": _}:
            return True
        case _:
            return False


def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    """The cassette. Raises FormatFault with the place."""
    calls = CallReader()
    for position, item in enumerate(value if isinstance(value, list) else [value]):
        fields = Fields.of(item, (position,) if isinstance(value, list) else ())
        fields.require("scope", "path")
        calls.note_unknown(fields, _KNOWN)
        _read_definition(fields, calls)
    return calls.cassette(fresh, "miss")


def _read_definition(fields: Fields, calls: CallReader) -> None:
    headers = header_bytes(_raw_headers(fields))
    response = fields.values.get("response")
    if not find_header(headers, b"content-type") and isinstance(response, dict):
        headers += JSON_TYPE
    asked = headers_in(fields, "reqheaders")
    wanted = fields.values.get("body")
    if wanted == "*":
        calls.note((*fields.at, "body"), ANY_BODY)
        wanted = None
    elif isinstance(wanted, dict | list) and not find_header(asked, b"content-type"):
        asked += JSON_TYPE
    call = HttpCall(
        method=fields.text("method", "GET").upper(),
        url=without_default_port(_scope(fields)) + fields.text("path"),
        request_headers=asked,
        request_body=_request_body(wanted, fields, calls),
        status=_status(fields),
        headers=headers,
        chunks=tuple(_response_chunks(response, headers, fields, calls)),
    )
    calls.add(fields.at, call)


def _scope(fields: Fields) -> str:
    scope = fields.text("scope").rstrip("/")
    port = fields.values.get("port")
    return f"{scope}:{port}" if port and not re.search(r":[0-9]+$", scope) else scope


def _status(fields: Fields) -> int:
    reply = fields.values.get("reply")
    if isinstance(reply, str) and reply.isdecimal():
        return int(reply)
    return fields.integer("status", low=0, high=999) if "status" in fields else 200


def _raw_headers(fields: Fields) -> Iterator[tuple[str, str]]:
    """The headers of the response: a flat list, a list of pairs, or an object."""
    written = fields.values.get("rawHeaders")
    if not isinstance(written, list):
        yield from header_pairs(fields.object("rawHeaders" if written else "headers"))
        return
    flat = [
        part
        for element in written
        for part in (element if isinstance(element, list) else [element])
    ]
    names = iter(flat)
    for name, value in zip(names, names, strict=False):
        for item in value if isinstance(value, list) else [value]:
            yield str(name), str(item)


def _request_body(value: Json, fields: Fields, calls: CallReader) -> bytes:
    if isinstance(value, str) and (raw := _binary(value)) is not None:
        calls.note((*fields.at, "body"), HEX)
        return raw
    return json_or_text(value)


def _response_chunks(
    value: Json, headers: Headers, fields: Fields, calls: CallReader
) -> Iterator[bytes]:
    if content_coding(headers) and isinstance(value, list) and all(map(_is_hex, value)):
        yield from [bytes.fromhex(str(piece)) for piece in value]
    elif isinstance(value, str) and fields.values.get("responseIsBinary") is True:
        if not _is_hex(value):
            raise fields.fault("response", "must be hexadecimal digits: responseIsBinary is set")
        yield bytes.fromhex(value)
    elif isinstance(value, str) and _is_old_binary(value, headers, fields):
        calls.note((*fields.at, "response"), HEX)
        yield bytes.fromhex(value)
    else:
        yield json_or_text(value)


def _is_old_binary(value: str, headers: Headers, fields: Fields) -> bool:
    """Whether a nock before 11, without `responseIsBinary`, wrote a binary body."""
    kind = (find_header(headers, b"content-type") or b"").partition(b";")[0].strip().lower()
    is_binary = kind.startswith(_BINARY_TYPES) or kind.endswith(_BINARY_ENDINGS)
    return "responseIsBinary" not in fields.values and is_binary and _binary(value) is not None


def _is_hex(value: Json) -> bool:
    return isinstance(value, str) and (not value or _HEX.fullmatch(value) is not None)


def _binary(value: str) -> bytes | None:
    """The bytes in hexadecimal digits, None for UTF-8: nock writes UTF-8 as text."""
    if not _HEX.fullmatch(value) or is_utf8(raw := bytes.fromhex(value)):
        return None
    return raw
