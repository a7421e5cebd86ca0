"""Cassettes of Ruby's VCR, read only: YAML or JSON with `http_interactions`, and the list of VCR 1.

VCR gives each recording once. A body is base64, or a text with its encoding. VCR
decodes bodies only if `decode_compressed_response` is set, and then removes the header.
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

_ROOT = ("http_interactions", "recorded_with")
_INTERACTION = ("request", "response", "recorded_at")
_REQUEST = ("method", "uri", "body", "headers")
_RESPONSE = ("status", "headers", "body", "http_version", "adapter_metadata")
_ADAPTER = ("effective_url", "vcr_decompressed")
_BINARY = ("ascii-8bit", "binary")
_TEMPLATE = "<%"
NOT_RUN = "holds ERB, which VCR runs only with its option erb: the text is taken as written"


def recognises(value: Json) -> bool:
    """Whether a document looks like a cassette of Ruby's VCR."""
    match value:
        case {"http_interactions": [*_]}:
            return True
        case [{"request": {"method": str(method), "uri": _}, "response": {}}, *_]:
            return method.startswith(":")
        case _:
            return False


def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    """The cassette. Raises FormatFault with the place."""
    calls = CallReader()
    if isinstance(value, list):
        interactions = [Fields.of(item, (position,)) for position, item in enumerate(value)]
    else:
        interactions = [*Fields.of(value, ()).objects("http_interactions")]
    for fields in interactions:
        fields.require("request", "response")
        _read_interaction(fields, calls)
    if isinstance(value, dict):
        calls.note_unknown(Fields(value, ()), _ROOT)
    return calls.cassette(fresh, "miss")


def _read_interaction(fields: Fields, calls: CallReader) -> None:
    request, response = fields.object("request"), fields.object("response")
    request.require("method", "uri")
    status, metadata = response.object("status"), response.object("adapter_metadata")
    calls.note_unknown(fields, _INTERACTION)
    calls.note_unknown(request, _REQUEST)
    calls.note_unknown(response, _RESPONSE)
    calls.note_unknown(metadata, _ADAPTER)
    if any(
        _TEMPLATE in text for text in (request.text("uri"), *map(_written, (request, response)))
    ):
        calls.note(fields.at, NOT_RUN)
    recorded_at = fields.values.get("recorded_at")
    call = HttpCall(
        method=request.text("method").lstrip(":").upper(),
        url=request.text("uri"),
        request_headers=headers_in(request),
        request_body=_body(request, calls),
        status=status.integer("code", low=0, high=999),
        reason=status.text("message"),
        version=_version(response),
        headers=headers_in(response),
        chunks=(_body(response, calls),),
        metadata={"recorded_at": recorded_at} if isinstance(recorded_at, str) else {},
    )
    calls.add(fields.at, call)


def _version(response: Fields) -> str:
    written = response.values.get("http_version")
    return str(written) if isinstance(written, str | float) else ""


def _written(side: Fields) -> str:
    body = side.values.get("body")
    string = body.get("string") if isinstance(body, dict) else body
    return string if isinstance(string, str) else ""


def _body(side: Fields, calls: CallReader) -> bytes:
    if not isinstance(side.values.get("body"), dict):
        return text_bytes(side.text("body"))
    body = side.object("body")
    calls.note_unknown(body, ("encoding", "string", "base64_string"))
    if "base64_string" in body:
        return body.base64("base64_string")
    text, encoding = body.text("string"), body.text("encoding").lower()
    if encoding in _BINARY:
        return text_bytes(text)
    try:
        return text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        # So does VCR.
        return text_bytes(text)
    except LookupError:
        calls.note((*body.at, "encoding"), f"'{encoding}' is not known: the body is UTF-8")
        return text_bytes(text)
