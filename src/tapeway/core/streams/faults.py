"""Where a fault stands in a recorded body, and what goes out there in place of the recording."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from tapeway.core.model.faults import STATUSES, Fault, Place
from tapeway.core.model.messages import ResponseHead
from tapeway.core.streams.aws_frames import parse_frames
from tapeway.core.streams.events import Event
from tapeway.core.streams.framings import FRAMINGS, Framing, events_of, framing_of

Then = Literal["on", "end", "reset", "hang"]
_THEN: dict[str, Then] = {"error_event": "end", "end": "end", "reset": "reset", "timeout": "hang"}
NEEDS_REST = frozenset({"end", "slow", "corrupt"})
"""Faults that change nothing behind the last byte."""
CALL_EVENT = re.compile(
    rb'"(?:input_json_delta|tool-call-delta|response\.(?:function_call_arguments|'
    rb'mcp_call_arguments|custom_tool_call_input)\.delta|functionCall|toolUse)"'
    rb'|"tool_calls"\s*:\s*\['
)
"""Finds an event with a part of a tool's call: by its type at Anthropic, Cohere and in OpenAI's
Responses, by its member at Gemini, Bedrock and in chat completions.
"""
_CALL = re.compile(CALL_EVENT.pattern + rb'|"(?:tool_use|function_call)"')
"""Finds a call in a whole document."""


@dataclass(frozen=True, slots=True)
class LaidFault:
    """A fault at its place in a body, None before the head.

    There the answer pauses for `wait_s`, `insert` goes out, and `skip` bytes of the recording do not.
    `then` the answer goes on, ends in order, is reset, or stops. Each chunk behind the place waits for
    `chunk_s`.
    """

    fault: Fault
    at: int | None
    then: Then = "on"
    insert: bytes = b""
    skip: int = 0
    wait_s: float = 0.0
    chunk_s: float = 0.0

    def head(self, head: ResponseHead, size: int) -> ResponseHead:
        """The head of an answer whose recorded body has this size, with the right length if any."""
        if head.length is None:
            return head
        rest = 0 if self.then == "end" else size - self.skip - (self.at or 0)
        # Only a body that is cut off has more than comes.
        cut = self.then in ("reset", "hang")
        return replace(head, length=(self.at or 0) + len(self.insert) + rest + cut)


def lay(
    fault: Fault, head: ResponseHead, body: bytes, error_event: Callable[[bytes], bytes]
) -> LaidFault | None:
    """The fault at its place in a recorded answer, None if the answer ends before.

    `error_event` makes the provider's error for the media type of a stream.
    """
    then, seconds = _THEN.get(fault.do, "on"), fault.seconds or 0.0
    if fault.do == "close":
        # WebSocket alone has it.
        return None
    if fault.do in STATUSES or (fault.place.kind == "head" and fault.do != "slow"):
        return LaidFault(fault, None, then, wait_s=seconds)
    media = (head.value(b"content-type") or b"").partition(b";")[0].strip().lower()
    framing = framing_of(media, body)
    at, last = _behind(fault.place, framing, body)
    if at > len(body) or (at == len(body) and fault.do in NEEDS_REST):
        return None
    laid = LaidFault(fault, at, then)
    match fault.do:
        case "stall":
            return replace(laid, wait_s=seconds)
        case "slow":
            return replace(laid, chunk_s=seconds)
        case "repeat":
            return None if last is None else replace(laid, insert=body[last.start : at])
        case "corrupt":
            return _corrupted(laid, framing, body, at)
        case "error_event":
            if framing is None:
                return None
            event = error_event(_media_of(framing, media))
            is_crlf = framing.pieces is not None and b"\r\n\r\n" in body
            return replace(laid, insert=event.replace(b"\n", b"\r\n") if is_crlf else event)
    return laid


def _behind(place: Place, framing: Framing | None, body: bytes) -> tuple[int, Event | None]:
    """The offset of a place, beyond the body for none, and the event that ends there."""
    if place.kind in ("head", "bytes"):
        return place.number, None
    if framing is None:
        call = _CALL.search(body) if place.kind == "tool_call" else None
        return len(body) + 1 if call is None else call.end(), None
    events = events_of(framing, body)
    if place.kind == "events":
        last = next(islice(events, place.number - 1, None), None)
    else:
        last = next((event for event in events if CALL_EVENT.search(event.data)), None)
    return len(body) + 1 if last is None else last.end, last


def _corrupted(laid: LaidFault, framing: Framing | None, body: bytes, at: int) -> LaidFault | None:
    """The fault with half of the next event's JSON; of a document half of the rest goes out."""
    if framing is None:
        half = body[at : (at + len(body)) // 2]
        return replace(laid, insert=half, skip=len(body) - at)
    for event in events_of(framing, body):
        if event.start < at or not event.data.startswith((b"{", b"[{")):
            continue
        place, text = event.lines[0]
        if framing.pieces is None:
            broken = parse_frames(body[event.start : event.end])[0].halved()
        else:
            broken = (
                body[event.start : place + len(text) // 2] + body[place + len(text) : event.end]
            )
        return replace(laid, at=event.start, insert=broken, skip=event.end - event.start)
    return None


def _media_of(framing: Framing, media: bytes) -> bytes:
    """The media type of a framing, also of a body that only looks like it."""
    return next((known for known, row in FRAMINGS.items() if row is framing), media)
