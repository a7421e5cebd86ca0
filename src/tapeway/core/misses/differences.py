"""Where two documents differ, as paths that people can find and rules can name."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import TypeAlias

from tapeway.core.json_text import Json, canonical
from tapeway.core.matching import json_paths
from tapeway.core.text import escape_surrogates

Steps = tuple[str | int, ...]
"""The keys and positions that lead to a value."""

_MOST_SHOWN = 160
"""The most characters of a value in a message."""

_SHOWN_BEFORE = 40
"""The characters of a text to show before a difference."""

_MOST_CELLS = 10_000
"""Lists with a larger product of lengths are compared position by position: the product is the cost
of aligning them.
"""


class MissingValue(Enum):
    """Marks the side of a difference that has no value; null is a value."""

    ABSENT = "absent"


ABSENT = MissingValue.ABSENT
Value: TypeAlias = "Json | MissingValue"


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where two documents have different values."""

    steps: Steps
    recorded: Value
    requested: Value
    recorded_steps: Steps | None = field(default=None, compare=False)
    """The place in the recorded document, if different: lists are aligned."""
    varied: bool = field(default=False, compare=False)
    """Whether the difference is in a header that the recorded answer names in `Vary`."""

    @property
    def path(self) -> str:
        """The place as rules write it: `body.messages[2].content`."""
        return json_paths.path_text(self.steps)


def differences(recorded: Json, requested: Json, most: int) -> tuple[Difference, ...]:
    """The first places where two documents differ, at most `most`; none if they are equal.

    Lists are aligned by their equal elements, so that an inserted message is one difference and not
    one for each message behind it. A position is one in the requested list, or in the recorded list
    for an element that is missing from the request.
    """
    return tuple(islice(_walk((), (), recorded, requested), most))


def difference_document(difference: Difference) -> dict[str, Json]:
    """The difference as JSON for people: long values cut around the difference, absent ones left out."""
    recorded, requested = difference.recorded, difference.requested
    if isinstance(recorded, str) and isinstance(requested, str):
        start = max(0, common_prefix(recorded, requested) - _SHOWN_BEFORE)
        return {
            "path": escape_surrogates(difference.path),
            "recorded": _excerpt(recorded, start),
            "requested": _excerpt(requested, start),
        }
    members: dict[str, Json] = {"path": escape_surrogates(difference.path)}
    if not isinstance(recorded, MissingValue):
        members["recorded"] = _short(recorded)
    if not isinstance(requested, MissingValue):
        members["requested"] = _short(requested)
    return members


def common_prefix(left: str, right: str) -> int:
    """The length of the longest common prefix, by bisection: slices compare at the speed of C."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[:middle] == right[:middle] else (low, middle - 1)
    return low


def _walk(at: Steps, steps: Steps, recorded: Json, requested: Json) -> Iterator[Difference]:
    """The differences of two values: the recorded value at `at`, the requested value at `steps`."""
    if isinstance(recorded, dict) and isinstance(requested, dict):
        yield from _walk_objects(at, steps, recorded, requested)
    elif isinstance(recorded, list) and isinstance(requested, list):
        yield from _walk_lists(at, steps, recorded, requested)
    elif not _same_value(recorded, requested):
        yield _difference(at, steps, recorded, requested)


def _walk_objects(
    at: Steps, steps: Steps, recorded: dict[str, Json], requested: dict[str, Json]
) -> Iterator[Difference]:
    for name, value in recorded.items():
        if name in requested:
            yield from _walk((*at, name), (*steps, name), value, requested[name])
        else:
            yield _difference((*at, name), (*steps, name), value, ABSENT)
    for name, value in requested.items():
        if name not in recorded:
            yield _difference((*at, name), (*steps, name), ABSENT, value)


def _walk_lists(
    at: Steps, steps: Steps, recorded: list[Json], requested: list[Json]
) -> Iterator[Difference]:
    done_recorded = done_requested = 0
    for left, right in [*_aligned(recorded, requested), (len(recorded), len(requested))]:
        # Between two equal elements nothing is equal: the elements there are compared pairwise.
        for number in range(max(left - done_recorded, right - done_requested)):
            i, j = done_recorded + number, done_requested + number
            if j >= right:
                yield _difference((*at, i), (*steps, i), recorded[i], ABSENT)
            elif i >= left:
                yield _difference((*at, j), (*steps, j), ABSENT, requested[j])
            else:
                yield from _walk((*at, i), (*steps, j), recorded[i], requested[j])
        done_recorded, done_requested = left + 1, right + 1


def _difference(at: Steps, steps: Steps, recorded: Value, requested: Value) -> Difference:
    return Difference(steps, recorded, requested, None if at == steps else at)


def _aligned(recorded: list[Json], requested: list[Json]) -> list[tuple[int, int]]:
    """Positions of equal elements in both lists, in order: as many as can be aligned."""
    left, right = [*map(canonical, recorded)], [*map(canonical, requested)]
    shorter = min(len(left), len(right))
    head = next((at for at in range(shorter) if left[at] != right[at]), shorter)
    rest = shorter - head
    tail = next((at for at in range(rest) if left[-1 - at] != right[-1 - at]), rest)
    inner = _longest_common(left[head : len(left) - tail], right[head : len(right) - tail])
    return [
        *((at, at) for at in range(head)),
        *((head + i, head + j) for i, j in inner),
        *((len(left) - at, len(right) - at) for at in range(tail, 0, -1)),
    ]


def _longest_common(left: Sequence[bytes], right: Sequence[bytes]) -> list[tuple[int, int]]:
    """The longest common subsequence, as positions."""
    if not left or not right or len(left) * len(right) > _MOST_CELLS:
        return [(at, at) for at, (a, b) in enumerate(zip(left, right, strict=False)) if a == b]
    lengths = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i in range(len(left) - 1, -1, -1):
        row, below = lengths[i], lengths[i + 1]
        for j in range(len(right) - 1, -1, -1):
            row[j] = below[j + 1] + 1 if left[i] == right[j] else max(below[j], row[j + 1])
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _same_value(recorded: Json, requested: Json) -> bool:
    # In Python, True == 1.
    return isinstance(recorded, bool) == isinstance(requested, bool) and recorded == requested


def _excerpt(text: str, start: int) -> str:
    end = start + _MOST_SHOWN
    return escape_surrogates(
        f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
    )


def _short(value: Json) -> Json:
    if isinstance(value, str):
        return _excerpt(value, 0)
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else ""
    return (
        value if len(text) <= _MOST_SHOWN and text == escape_surrogates(text) else _excerpt(text, 0)
    )
