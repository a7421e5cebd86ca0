"""The size and time of each chunk of a body, in fields beside a body that people may edit."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import cast

import orjson

from tapeway.core.json_text import Json, dump
from tapeway.core.model.messages import NO_CHUNK_TIMES, ChunkTimes, Framing, Response
from tapeway.core.streams.framings import FRAMINGS
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Fields, millis

NAMES = ("framing", "at_ms", "chunks")
"""All fields about chunks; `framing` is written only where not `length`."""

_FRAMINGS: dict[str, Framing] = {"length": "length", "chunked": "chunked", "close": "close"}
_PACKED_CHUNK = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\+(\d{1,15})(?: |\Z)")
_UNFRAMED = "needs a 'framing' of chunked or close beside it"
_MANY_CHUNKS = 10_000
"""From so many on, chunks are written as a single text: lists would fill the memory."""
_CHUNKS_OF_A_SEGMENT = 8
"""Where fewer came together on average, writing whole segments takes longer than writing chunks."""


def encode(response: Response, *, for_dump: bool = False) -> dict[str, Json]:
    """The fields beside the body. A body under `length` framing is one chunk.

    Fields `for_dump` may have the text of a list in place of the list, for `dump` to copy.
    """
    fields: dict[str, Json] = {}
    framing, times = response.head.framing, response.chunk_times.times
    if framing != "length":
        fields["framing"] = framing
        if times:
            packed = response.file is not None and len(times) >= _MANY_CHUNKS
            text = _text_of_segments(response.chunk_times) if for_dump and not packed else None
            if text is None:
                fields["chunks"] = _encode_times(response.chunk_times, packed=packed)
            else:
                fields["chunks"] = cast(Json, orjson.Fragment(text))
            return fields
    at_ms = millis(times[-1] if times else response.at_ms)
    if at_ms and response.size:
        fields["at_ms"] = at_ms
    return fields


def framing(fields: Fields) -> Framing:
    """How the end of the body was marked. Raises FormatFault."""
    return fields.choice("framing", _FRAMINGS, "length") if "framing" in fields.values else "length"


def decode(fields: Fields, body: bytes | None, content_type: str) -> tuple[float, ChunkTimes]:
    """The `at_ms` and `chunk_times` of a body; a body of edited length is divided anew.

    An edited event stream is divided after each event, JSON Lines after each line; any other body
    is one chunk. The chunks get the recorded times, all further ones the last. Without a body the
    fields are only checked. Raises FormatFault.
    """
    pairs = fields.list("chunks") if "chunks" in fields.values else ()
    recorded = [_pair(pair, fields, index) for index, pair in enumerate(pairs)] if pairs else ()
    marked = framing(fields)
    if not recorded:
        return fields.number("at_ms") if body or body is None else 0.0, NO_CHUNK_TIMES
    if marked == "length":
        raise fields.fault("chunks", _UNFRAMED)
    if body is None:
        return 0.0, NO_CHUNK_TIMES
    chunk_times = ChunkTimes(recorded)
    if chunk_times.total != len(body):
        pieces = _divided_by_media_type(body, content_type.partition(";")[0].strip().lower())
        last = len(recorded) - 1
        times = [recorded[min(at, last)][0] for at in range(len(pieces))]
        chunk_times = ChunkTimes(zip(times, map(len, pieces), strict=True))
    return chunk_times.of_response()


def decode_of_file(fields: Fields, size: int) -> tuple[float, ChunkTimes]:
    """The `at_ms` and `chunk_times` of a body in a file of this size. Raises FormatFault."""
    if isinstance(packed := fields.values.get("chunks"), str):
        chunk_times = _unpacked(packed, fields)
    else:
        pairs = fields.list("chunks")
        chunk_times = ChunkTimes(_pair(pair, fields, index) for index, pair in enumerate(pairs))
    if not chunk_times:
        return fields.number("at_ms") if size else 0.0, NO_CHUNK_TIMES
    if framing(fields) == "length":
        raise fields.fault("chunks", _UNFRAMED)
    if chunk_times.total != size:
        reason = f"they are {chunk_times.total} bytes together, the file has {size}: correct or remove them"
        raise fields.fault("chunks", reason)
    return chunk_times.of_response()


def _encode_times(chunk_times: ChunkTimes, *, packed: bool) -> Json:
    pairs = _written(chunk_times)
    return " ".join([f"{at_ms}+{length}" for at_ms, length in pairs]) if packed else [*pairs]


def _written(chunk_times: ChunkTimes) -> Iterator[list[Json]]:
    """Each time as written, and the length."""
    last = written = 0.0
    for at_ms, length in zip(chunk_times.times, chunk_times.lengths, strict=True):
        # Chunks of one segment have one time.
        if at_ms != last:
            last, written = at_ms, millis(at_ms)
        yield [written, length]


def _text_of_segments(chunk_times: ChunkTimes) -> bytes | None:
    """The list as `dump` writes it, None where hardly any chunks came together.

    The chunks of a segment have one time. To make and dump a list for each chunk takes twice the
    instructions.
    """
    times, lengths = chunk_times.times, chunk_times.lengths
    most = len(lengths) // _CHUNKS_OF_A_SEGMENT
    segments: list[bytes] = []
    start = 0
    while start < len(lengths):
        end = bisect_right(times, at_ms := times[start], start)
        # Whoever edits a file may write times in any order.
        same = times[start:end].tobytes() == array("d", (at_ms,)).tobytes() * (end - start)
        if len(segments) == most or not same:
            return None
        before = b"[%b," % dump(millis(at_ms))
        sizes = dump([*lengths[start:end]])[1:-1]
        segments.append(before + sizes.replace(b",", b"]," + before))
        start = end
    return b"[%b]]" % b"],".join(segments)


def _unpacked(packed: str, fields: Fields) -> ChunkTimes:
    chunk_times, end = ChunkTimes(), 0
    while end < len(packed):
        if (pair := _PACKED_CHUNK.match(packed, end)) is None:
            shown = packed[end : end + 20]
            raise fields.fault("chunks", f"must be milliseconds+bytes at '{shown}'")
        chunk_times.add(float(pair[1]), int(pair[2]))
        end = pair.end()
    return chunk_times


def _pair(value: Json, fields: Fields, index: int) -> tuple[float, int]:
    match value:
        case [int() | float() as at_ms, int(length)] if at_ms >= 0 and length >= 0:
            return float(at_ms), length
        case _:
            pointer = (*fields.at, "chunks", index)
            raise FormatFault("must be [milliseconds, bytes], neither below 0", pointer)


def _divided_by_media_type(body: bytes, media: str) -> list[bytes]:
    framing = FRAMINGS.get(media.encode("utf-8", "replace"))
    if framing is None or framing.pieces is None:
        return [body] if body else []
    return [piece.encode("latin-1") for piece in framing.pieces.findall(body.decode("latin-1"))]
