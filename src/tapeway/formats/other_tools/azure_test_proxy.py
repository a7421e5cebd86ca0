"""Recordings of the Azure SDK's test proxy, read only: JSON with `Entries` and `Variables`.

The media type decides: text is a text or a list of lines, JSON a value, anything else base64. The proxy gives each recording once.
"""

import re
from typing import Literal

from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.messages import Headers
from tapeway.formats.conversion_loss import Loss
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Fields
from tapeway.formats.other_tools.reading.http_call import (
    CallReader,
    HttpCall,
    headers_in,
    json_or_text,
    text_bytes,
)

_ROOT = ("Entries", "Variables")
_ENTRY = (
    *("RequestUri", "RequestMethod", "RequestHeaders", "RequestBody", "EncodedRequestUri"),
    *("StatusCode", "ResponseHeaders", "ResponseBody", "IsTrack1Recording"),
)
_TEXT = re.compile(r"text/|application/json|.*(?:json|xml|-urlencoded)$", re.IGNORECASE)
_Side = Literal["Request", "Response"]
VARIABLES = "are not kept: the tests read them from the file, and a cassette answers requests alone"


def recognises(value: Json) -> bool:
    """Whether a document looks like a recording of the proxy."""
    match value:
        case {"Entries": [{"RequestUri": _}, *_]} | {"Entries": [], "Variables": _}:
            return True
        case _:
            return False


def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    """The cassette. Raises FormatFault with the place."""
    root = Fields.of(value, ())
    calls = CallReader()
    for fields in root.objects("Entries"):
        fields.require("RequestUri")
        calls.note_unknown(fields, _ENTRY)
        asked = headers_in(fields, "RequestHeaders")
        headers = headers_in(fields, "ResponseHeaders")
        call = HttpCall(
            method=fields.text("RequestMethod", "GET").upper(),
            url=fields.text("RequestUri"),
            request_headers=asked,
            request_body=_body(fields, "Request", asked),
            status=fields.integer("StatusCode", low=0, high=999),
            headers=headers,
            chunks=(_body(fields, "Response", headers),),
        )
        calls.add(fields.at, call)
    calls.note_unknown(root, _ROOT)
    if root.object("Variables").values:
        calls.note(("Variables",), VARIABLES)
    return calls.cassette(fresh, "miss")


def _body(fields: Fields, side: _Side, headers: Headers) -> bytes:
    name = f"{side}Body"
    value = fields.values.get(name)
    if isinstance(value, list):
        if not all(isinstance(item, str) for item in value):
            return dump(value)
        return text_bytes("".join(map(str, value)))
    if not isinstance(value, str) or _is_text(headers):
        return json_or_text(value)
    try:
        return fields.base64(name)
    except FormatFault:
        return text_bytes(value)


def _is_text(headers: Headers) -> bool:
    written = (find_header(headers, b"content-type") or b"").decode("latin-1").lower()
    kind = written.partition(";")[0].strip()
    return "charset=utf-8" in written or _TEXT.match(kind) is not None
