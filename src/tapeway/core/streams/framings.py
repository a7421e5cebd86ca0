"""The framings of streams, one row for each: by what a body of a media type is divided into events."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tapeway.core.streams.aws_frames import MEDIA_TYPE as AWS_FRAMES
from tapeway.core.streams.aws_frames import FrameEvents
from tapeway.core.streams.events import BOM, SSE, Event, EventReader, LineEvents, SseEvents

_BETWEEN_LINES = re.compile(rb"\}[ \t]*\r?\n[ \t]*\{")
_ANY_SIZE = 2**63


class Framing(NamedTuple):
    """How a body is divided into events.

    `pieces` finds the events of a framing of text, each with what ends it, as files and edited bodies
    have them; a binary framing has none.
    """

    reader: type[EventReader]
    pieces: re.Pattern[str] | None = None


_EVENTS = Framing(SseEvents, re.compile(r".+?(?:\r\n\r\n|\n\n|\r\r|\Z)", re.DOTALL))
LINES = Framing(LineEvents, re.compile(r"[^\n]*\n|[^\n]+\Z"))

FRAMINGS: Mapping[bytes, Framing] = {
    SSE: _EVENTS,
    AWS_FRAMES: Framing(FrameEvents),
    # One JSON text a line; only the last is standardised (RFC 7464).
    b"application/x-ndjson": LINES,
    b"application/ndjson": LINES,
    b"application/stream+json": LINES,
    b"application/jsonl": LINES,
    b"application/x-jsonl": LINES,
    b"application/jsonlines": LINES,
    b"application/x-jsonlines": LINES,
    b"application/json-seq": LINES,
}
"""By media type. The body of any other type is one document."""


def framing_of(media: bytes, body: bytes) -> Framing | None:
    """The framing of a body, by its media type or by what it looks like."""
    if media in FRAMINGS:
        return FRAMINGS[media]
    if body.removeprefix(BOM).startswith((b"data:", b"event:")):
        return _EVENTS
    # Some services use different media types for lines of JSON.
    return LINES if body.startswith(b"{") and _BETWEEN_LINES.search(body) else None


def events_of(framing: Framing, body: bytes, wanted: Sequence[bytes] = ()) -> Iterator[Event]:
    """The events of a whole body that have data, and one that its end cuts off.

    With `wanted`, events without any of these texts may be left out.
    """
    reader = framing.reader(wanted, _ANY_SIZE)
    yield from [event for event in reader.feed(body) if event.lines]
    yield from [event for event in reader.finish() if event.lines]
