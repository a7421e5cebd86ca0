"""An answer: status, header fields and body, the writes it is sent in, and faults at its end.

A call asks for a fault by the name of its model. `cut`, `reset`, `stall` and `end` break the answer
off in the middle, or after so many bytes of its body: `cut-after-120`. `unmarked` is a stream without
its end mark, `stream-error` one that ends in an error event under status 200. Anything after a
further dash only tells calls apart: `cut-second`.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, cast

import orjson

from tapeway.testing.request import StandInRequest

Headers = tuple[tuple[str, str], ...]

End = Literal["cut", "reset", "stall", "end"]
"""Close the connection, reset it, send nothing more, or end as if the answer were complete."""
_NAME = re.compile(r"(cut|reset|stall|end)(?:-after-(\d+))?(?:-.*)?")


def awkward_writes(events: Sequence[bytes]) -> tuple[bytes, ...]:
    """The events cut badly: a character in two, an event over two writes, two events in one write.

    A character outside ASCII is always cut; of the other events each fourth goes alone, the
    next shares a write with its follower, and the last is cut in its middle.
    """
    writes: list[bytes] = []
    pending = b""
    for position, event in enumerate(events):
        cut = _cut(event, position)
        if cut:
            writes += [pending + event[:cut], event[cut:]]
            pending = b""
        elif position % 4 == 1 and position + 1 < len(events):
            pending += event
        else:
            writes.append(pending + event)
            pending = b""
    return tuple(writes)


def _cut(event: bytes, position: int) -> int:
    for offset, byte in enumerate(event):
        if byte >= 0xC0:  # the first byte of a character that has more
            return offset + 1
    return len(event) // 2 if position % 4 == 3 else 0


@dataclass(frozen=True, slots=True)
class StandInAnswer:
    """Each of `writes` becomes a chunk of its own if `chunked`, else they go under one length."""

    status: int
    headers: Headers
    writes: tuple[bytes, ...]
    chunked: bool = False

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.writes)


def pretty(value: object) -> bytes:
    """JSON as OpenAI and Google write it: indented by two, with a line feed at the end."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def compact(value: object) -> bytes:
    """JSON without any spacing."""
    return orjson.dumps(value)


def spaced(value: object) -> bytes:
    """JSON on one line with a space behind each colon, as Google's streams have it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ": ")).encode()


def with_length(status: int, headers: Headers, body: bytes) -> StandInAnswer:
    """An answer under a Content-Length."""
    return StandInAnswer(status, headers, (body,))


def in_two_chunks(status: int, headers: Headers, body: bytes) -> StandInAnswer:
    """A chunked answer in two chunks, as a large JSON answer comes through a load balancer."""
    middle = (len(body) + 1) // 2
    writes = tuple(part for part in (body[:middle], body[middle:]) if part)
    return StandInAnswer(status, headers, writes, chunked=True)


def stream(headers: Headers, events: Sequence[bytes]) -> StandInAnswer:
    """A chunked answer whose events are cut and joined at awkward places."""
    return StandInAnswer(200, headers, awkward_writes(events), chunked=True)


@dataclass(frozen=True, slots=True)
class AnswerFault:
    """How an answer ends, and after how many bytes of its body: after half of it for None."""

    how: End
    after: int | None = None


def fault_of(call: StandInRequest) -> AnswerFault | None:
    """The fault that the call asks for by the name of its model."""
    match = _NAME.fullmatch(call.model)
    return match and AnswerFault(cast(End, match[1]), int(match[2]) if match[2] else None)


def cut_short(answer: StandInAnswer, fault: AnswerFault) -> StandInAnswer:
    """The part of the answer that is sent before the fault."""
    if fault.after is None and len(answer.writes) > 1:
        return replace(answer, writes=answer.writes[: len(answer.writes) // 2])
    after = len(answer.body) // 2 if fault.after is None else fault.after
    starts = accumulate([0, *map(len, answer.writes)])
    sent = [write[: max(0, after - at)] for write, at in zip(answer.writes, starts, strict=False)]
    return replace(answer, writes=tuple(write for write in sent if write))


def with_stream_fault(
    call: StandInRequest, events: Sequence[bytes], error: bytes
) -> Sequence[bytes]:
    """The events of a stream, changed if the call asks for `stream-error` or `unmarked`.

    The last event must be the end mark or contain it.
    """
    match call.model.partition("-after-")[0]:
        case "stream-error":
            return [*events[: len(events) // 2], error]
        case "unmarked":
            return events[:-1]
        case _:
            return events
