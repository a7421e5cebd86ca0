"""How an answer ends badly, for a call whose model is named after it.

`cut`, `reset`, `stall` and `end` break the answer off in its middle, or behind so many bytes of its
body: `cut-after-120`. `unmarked` is a stream without its end mark, `stream-error` one that ends in
an error event under status 200. Whatever follows a further dash tells calls apart: `cut-second`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, cast

from tapeway.testing.answer import Answer
from tapeway.testing.call import Call

End = Literal["cut", "reset", "stall", "end"]
"""Close the connection, reset it, say nothing more, or end in good order as if that were all."""

_NAME = re.compile(r"(cut|reset|stall|end)(?:-after-(\d+))?(?:-.*)?")


@dataclass(frozen=True, slots=True)
class Mishap:
    """The end, and how much of the body comes before it: half of it where `after` is None."""

    how: End
    after: int | None = None


def mishap_of(call: Call) -> Mishap | None:
    """What the call asks for by the name of its model."""
    found = _NAME.fullmatch(call.model)
    return found and Mishap(cast(End, found[1]), int(found[2]) if found[2] else None)


def shortened(answer: Answer, mishap: Mishap) -> Answer:
    """What of the answer is sent before the end; its writes are where they were."""
    if mishap.after is None and len(answer.writes) > 1:
        return replace(answer, writes=answer.writes[: len(answer.writes) // 2])
    after = len(answer.body) // 2 if mishap.after is None else mishap.after
    starts = accumulate([0, *map(len, answer.writes)])
    kept = [write[: max(0, after - at)] for write, at in zip(answer.writes, starts, strict=False)]
    return replace(answer, writes=tuple(write for write in kept if write))


def as_asked(call: Call, events: Sequence[bytes], error: bytes) -> Sequence[bytes]:
    """The events of a stream, or what `stream-error` and `unmarked` make of them.

    The last event must be the end mark, or hold it.
    """
    match call.model.partition("-after-")[0]:
        case "stream-error":
            return [*events[: len(events) // 2], error]
        case "unmarked":
            return events[:-1]
        case _:
            return events
