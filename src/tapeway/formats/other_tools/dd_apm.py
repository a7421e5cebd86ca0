"""Cassettes of Datadog's test agent (dd-apm-test-agent), read only: JSON with one call.

Its older cassettes are VCR.py's. The agent removes content codings, and keeps the header.
"""

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

_BASE64 = "base64:"
_ROOT = ("request", "response")
_REQUEST = ("method", "url", "headers", "body")
_RESPONSE = ("status", "headers", "body")


def recognises(value: Json) -> bool:
    """Whether a document looks like a cassette of the agent."""
    match value:
        case {"request": {"method": _, "url": _}, "response": {"status": {"code": _}}, **rest}:
            return "kind" not in rest
        case _:
            return False


def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    """The cassette. Raises FormatFault with the place."""
    root = Fields.of(value, ())
    request, response = root.object("request"), root.object("response")
    status = response.object("status")
    calls = CallReader()
    calls.note_unknown(root, _ROOT)
    calls.note_unknown(request, _REQUEST)
    calls.note_unknown(response, _RESPONSE)
    call = HttpCall(
        method=request.text("method").upper(),
        url=request.text("url"),
        request_headers=headers_in(request),
        request_body=_body(request),
        status=status.integer("code", low=0, high=999),
        reason=status.text("message"),
        headers=headers_in(response),
        chunks=(_body(response),),
    )
    calls.add((), call, decoded=True)
    return calls.cassette(fresh, "last")


def _body(side: Fields) -> bytes:
    text = side.text("body")
    if text.startswith(_BASE64):
        return Fields({"body": text.removeprefix(_BASE64)}, side.at).base64("body")
    return text_bytes(text)
