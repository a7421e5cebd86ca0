"""The texts that people read: a miss in a test's report, and the summary of the run."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MOST_MISSES = 10
_MOST_DIFFERENCES = 5


def miss_section(misses: Sequence[Mapping[str, Any]]) -> str:
    """The misses of one test: message, difference and suggestion of each."""
    lines = [line for miss in misses[:_MOST_MISSES] for line in _miss_lines(miss)]
    if (more := len(misses) - _MOST_MISSES) > 0:
        lines.append(f"{more} more misses")
    return "\n".join(lines)


def _miss_lines(miss: Mapping[str, Any]) -> Iterator[str]:
    yield str(miss["message"])
    for nearest in miss["nearest"][:1]:
        for difference in nearest["differences"][:_MOST_DIFFERENCES]:
            yield f"  {difference['path']}"
            for side in ("recorded", "requested"):
                if side in difference:
                    shown = json.dumps(difference[side], ensure_ascii=False)
                    yield f"    {side:<9} {shown}"
        more = len(nearest["differences"][_MOST_DIFFERENCES:]) + nearest["more"]
        if more:
            yield f"  {more} more differences"
    if miss["suggestion"] is not None:
        for line in str(miss["suggestion"]).splitlines():
            yield f"  rule that would match: {line}"
