"""The size and time of each chunk of a body, in fields beside a body that people may edit."""

import re
from collections.abc import Sequence

from tapeway.core.json_text import Json
from tapeway.core.model.messages import (
    ChunkTimes,
    Framing,
    Response,
    ResponseChunk,
    data_of,
    time_of,
)
from tapeway.core.streams import json_lines, sse
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Fields, millis

NAMES = ("framing", "at_ms", "chunks")
"""All fields about chunks; `framing` is written only where it is not `length`."""

_FRAMINGS: dict[str, Framing] = {"length": "length", "chunked": "chunked", "close": "close"}
_EVENT = re.compile(rb".+?(?:\r\n\r\n|\n\n|\r\r|\Z)", re.DOTALL)
_LINE = re.compile(rb"[^\n]*\n|[^\n]+\Z")
_PACKED_CHUNK = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\+(\d{1,15})(?: |\Z)")
_UNFRAMED = "needs a 'framing' of chunked or close beside it"
_MANY_CHUNKS = 10_000
"""From this number of chunks on they are written as one text: lists would fill the memory."""


def encode(response: Response) -> dict[str, Json]:
    """The fields beside the body. A body under `length` framing is one chunk."""
    fields: dict[str, Json] = {}
    framing = response.head.framing
    if framing != "length":
        fields["framing"] = framing
    if response.file is not None:
        return fields | _encode_times(response.chunk_times, framing)
    # On the wire an empty chunk would end the body.
    chunks = [*filter(data_of, response.chunks)]
    if len(chunks) > 1 and framing != "length":
        # Those that came in one segment have one time.
        times = {at_ms: millis(at_ms) for at_ms in {*map(time_of, chunks)}}
        pairs = zip(map(time_of, chunks), map(len, map(data_of, chunks)), strict=True)
        fields["chunks"] = [[times[at_ms], length] for at_ms, length in pairs]
    elif chunks and (at_ms := millis(chunks[-1].at_ms)):
        fields["at_ms"] = at_ms
    return fields


def framing(fields: Fields) -> Framing:
    """How the end of the body was marked. Raises FormatFault."""
    return fields.choice("framing", _FRAMINGS, "length") if "framing" in fields.values else "length"


def decode(fields: Fields, body: bytes, content_type: str) -> tuple[ResponseChunk, ...]:
    """The body in its recorded chunks; one that was edited to another length is divided again.

    An edited event stream is divided after each event, JSON Lines after each line; any other body
    is one chunk. The chunks get the recorded times, all further ones the last. Raises FormatFault.
    """
    pairs = fields.list("chunks") if "chunks" in fields.values else ()
    recorded = [_pair(pair, fields, index) for index, pair in enumerate(pairs)] if pairs else ()
    if not recorded:
        return (ResponseChunk(body, fields.number("at_ms")),) if body else ()
    if framing(fields) == "length":
        raise fields.fault("chunks", _UNFRAMED)
    if sum(length for _, length in recorded) == len(body):
        return tuple(_divided_as_recorded(body, recorded))
    pieces = _divided_by_media_type(body, content_type.partition(";")[0].strip().lower())
    last = len(recorded) - 1
    return tuple(
        [ResponseChunk(piece, recorded[min(at, last)][0]) for at, piece in enumerate(pieces)]
    )


def decode_of_file(fields: Fields, size: int) -> ChunkTimes:
    """The chunks of a body that is in a file of this size. Raises FormatFault."""
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
        reason = (
            f"they are {found.total} bytes together, the file has {size}: correct or remove them"
        )
        raise fields.fault("chunks", reason)
    return found


def _encode_times(times: ChunkTimes, framing: Framing) -> dict[str, Json]:
    if len(times) < 2 or framing == "length":
        at_ms = millis(times[-1][0]) if times else 0.0
        return {"at_ms": at_ms} if at_ms else {}
    if len(times) < _MANY_CHUNKS:
        return {"chunks": [[millis(at_ms), length] for at_ms, length in times]}
    return {"chunks": " ".join([f"{millis(at_ms)}+{length}" for at_ms, length in times])}


def _unpacked(packed: str, fields: Fields) -> ChunkTimes:
    found, end = ChunkTimes(), 0
    while end < len(packed):
        if (pair := _PACKED_CHUNK.match(packed, end)) is None:
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


def _divided_as_recorded(body: bytes, recorded: Sequence[tuple[float, int]]) -> list[ResponseChunk]:
    chunks: list[ResponseChunk] = []
    start = 0
    for at_ms, length in recorded:
        chunks.append(ResponseChunk(body[start : start + length], at_ms))
        start += length
    return chunks


def _divided_by_media_type(body: bytes, media: str) -> list[bytes]:
    media_type = media.encode("utf-8", "replace")
    if media_type == sse.MEDIA_TYPE:
        return _EVENT.findall(body)
    if media_type in json_lines.MEDIA_TYPES:
        return _LINE.findall(body)
    return [body] if body else []
