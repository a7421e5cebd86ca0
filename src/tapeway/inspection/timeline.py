"""A recorded answer in time: its chunks, the events in them, the first byte, the gaps, the pace."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise

from tapeway.core.json_text import Json
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Response
from tapeway.core.streams.documents import placed_documents

MOST_CHUNKS = 5000
MOST_EVENTS = 5000
MOST_EVENT_CHARACTERS = 1024 * 1024
"""For the texts of all events together."""

Times = Sequence[tuple[float, int]]
"""When each chunk arrived, in milliseconds since the request was sent, and its length."""


def timeline(item: Interaction) -> dict[str, Json] | None:
    """The chunks and events of an answer in time; None where no body was recorded."""
    times = [*item.response.arrivals()]
    if not times:
        return None
    starts = [0, *accumulate(length for _, length in times)]
    chunks: list[Json] = [
        {"at_ms": at_ms, "start": start, "size": length}
        for (at_ms, length), start in zip(times[:MOST_CHUNKS], starts, strict=False)
    ]
    events, left_out = _events(item.response, times, starts)
    return {
        "chunks": chunks,
        "chunks_left_out": max(0, len(times) - MOST_CHUNKS),
        "events": events,
        "events_left_out": left_out,
        **_pace(item, times),
    }


def _events(response: Response, times: Times, starts: Sequence[int]) -> tuple[list[Json], int]:
    events: list[Json] = []
    left_out, room = 0, MOST_EVENT_CHARACTERS
    for end, data in placed_documents(response):
        text = data.decode("utf-8", "replace")
        room -= len(text)
        if len(events) >= MOST_EVENTS or room < 0:
            left_out += 1
            continue
        # The first chunk that ends at or after this place completed the event.
        number = max(0, bisect_left(starts, end) - 1)
        events.append(
            {"at_ms": times[min(number, len(times) - 1)][0], "chunk": number, "text": text}
        )
    return events, left_out


def _pace(item: Interaction, times: Times) -> dict[str, Json]:
    """Figures in milliseconds; without recorded times, as in another tool's recording, all null."""
    if not any(at_ms for at_ms, _ in times):
        names = ("first_byte_ms", "last_byte_ms", "longest_gap_ms", "longest_gap_at_ms")
        return {**dict.fromkeys(names), "tokens_per_second": None}
    first, last = times[0][0], times[-1][0]
    gaps = [(after[0] - before[0], before[0]) for before, after in pairwise(times)]
    gap, gap_at = max(gaps, default=(None, None))
    return {
        "first_byte_ms": first,
        "last_byte_ms": last,
        "longest_gap_ms": gap,
        "longest_gap_at_ms": gap_at,
        "tokens_per_second": _tokens_per_second(item, last - first),
    }


def _tokens_per_second(item: Interaction, elapsed_ms: float) -> float | None:
    """The pace of a streamed answer; None for an answer in one piece, or without counts."""
    tokens = (item.usage or {}).get("completion_tokens")
    if type(tokens) is not int or tokens <= 0 or elapsed_ms <= 0:
        return None
    return round(tokens / elapsed_ms * 1000, 2)
