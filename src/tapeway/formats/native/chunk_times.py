"""Where a body's chunks ended and when they came, beside a body that may be edited."""

import re
from collections.abc import Sequence

from tapeway.core.json_text import Json
from tapeway.core.model.messages import ChunkTimes, Framing, Response, ResponseChunk
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Fields, millis

NAMES = ("framing", "at_ms", "chunks")
"""All fields that speak of arrival; `framing` stands there only when it is not `length`."""

_FRAMINGS: dict[str, Framing] = {"length": "length", "chunked": "chunked", "close": "close"}
_EVENT = re.compile(rb".+?(?:\r\n\r\n|\n\n|\r\r|\Z)", re.DOTALL)
_LINE = re.compile(rb"[^\n]*\n|[^\n]+\Z")
_PACKED = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\+(\d{1,15})(?: |\Z)")
_UNFRAMED = "needs a 'framing' of chunked or close beside it"
_MANY = 10_000
"""From so many pieces on they stand as one text: as lists they would fill the memory."""
_LINES_OF_JSON = frozenset(
    {
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/jsonlines",
        "application/x-jsonlines",
    }
)


def encode(response: Response) -> dict[str, Json]:
    """The fields beside the body. A body under `length` framing came as one piece."""
    fields: dict[str, Json] = {}
    framing = response.head.framing
    if framing != "length":
        fields["framing"] = framing
    if response.file is not None:
        return fields | _encode_times(response.chunk_times, framing)
    # An empty chunk is nothing on the wire: it would end the body.
    chunks = [chunk for chunk in response.chunks if chunk.data]
    if len(chunks) > 1 and framing != "length":
        fields["chunks"] = [[millis(chunk.at_ms), len(chunk.data)] for chunk in chunks]
    elif chunks and (at_ms := millis(chunks[-1].at_ms)):
        fields["at_ms"] = at_ms
    return fields


def cuts(fields: Fields, size: int) -> ChunkTimes:
    """The pieces of a body that lies in a file of this size. Raises FormatFault."""
    if isinstance(packed := fields.values.get("chunks"), str):
        found = _unpacked(packed, fields)
    else:
        pairs = fields.list("chunks")
        found = ChunkTimes(_pair(pair, fields, index) for index, pair in enumerate(pairs))
    if not found:
        return ChunkTimes([(fields.number("at_ms"), size)] if size else ())
    if framing(fields) == "length":
        raise fields.fault("chunks", _UNFRAMED)
    if found.total != size:
        reason = f"they are {found.total} bytes together, the file has {size}: mend or remove them"
        raise fields.fault("chunks", reason)
    return found


def framing(fields: Fields) -> Framing:
    """How the body's end was marked. Raises FormatFault."""
    said = fields.text("framing", "length")
    if said not in _FRAMINGS:
        raise fields.fault("framing", f"must be one of {', '.join(_FRAMINGS)}, not '{said}'")
    return _FRAMINGS[said]


def decode(fields: Fields, body: bytes, content_type: str) -> tuple[ResponseChunk, ...]:
    """The body in its recorded pieces; one that was edited to another length is cut anew.

    An edited stream of events is cut after each event, lines of JSON after each line, anything
    else is one piece; the pieces come at the recorded times, the last of which serves the rest.
    """
    recorded = [_pair(pair, fields, index) for index, pair in enumerate(fields.list("chunks"))]
    if not recorded:
        return (ResponseChunk(body, fields.number("at_ms")),) if body else ()
    if framing(fields) == "length":
        raise fields.fault("chunks", _UNFRAMED)
    if sum(length for _, length in recorded) == len(body):
        return tuple(_cut(body, recorded))
    pieces = _pieces(body, content_type.partition(";")[0].strip().lower())
    last = len(recorded) - 1
    return tuple(
        [ResponseChunk(piece, recorded[min(at, last)][0]) for at, piece in enumerate(pieces)]
    )


def _encode_times(times: ChunkTimes, framing: Framing) -> dict[str, Json]:
    if len(times) < 2 or framing == "length":
        at_ms = millis(times[-1][0]) if times else 0.0
        return {"at_ms": at_ms} if at_ms else {}
    if len(times) < _MANY:
        return {"chunks": [[millis(at_ms), length] for at_ms, length in times]}
    return {"chunks": " ".join([f"{millis(at_ms)}+{length}" for at_ms, length in times])}


def _unpacked(packed: str, fields: Fields) -> ChunkTimes:
    found, end = ChunkTimes(), 0
    while end < len(packed):
        if (pair := _PACKED.match(packed, end)) is None:
            shown = packed[end : end + 20]
            raise fields.fault("chunks", f"must be milliseconds+bytes at '{shown}'")
        found.add(float(pair[1]), int(pair[2]))
        end = pair.end()
    return found


def _pair(value: Json, fields: Fields, index: int) -> tuple[float, int]:
    match value:
        case [int() | float() as at_ms, int(length)] if at_ms >= 0 and length >= 0:
            return float(at_ms), length
        case _:
            place = (*fields.at, "chunks", index)
            raise FormatFault("must be [milliseconds, bytes], neither below 0", place)


def _cut(body: bytes, recorded: Sequence[tuple[float, int]]) -> list[ResponseChunk]:
    chunks: list[ResponseChunk] = []
    start = 0
    for at_ms, length in recorded:
        chunks.append(ResponseChunk(body[start : start + length], at_ms))
        start += length
    return chunks


def _pieces(body: bytes, media: str) -> list[bytes]:
    if media == "text/event-stream":
        return _EVENT.findall(body)
    if media in _LINES_OF_JSON:
        return _LINE.findall(body)
    return [body] if body else []
