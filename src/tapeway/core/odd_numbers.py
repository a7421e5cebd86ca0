"""NaN and infinities, for which JSON has no name: an object with one name stands for each.

AgentTape writes them as Python does. They are held like this wherever a cassette is in memory or in
a database, and written to a cassette's file as they were found.
"""

import math
import re
from collections.abc import Mapping

from tapeway.core.json_text import Json

NAME = "__agenttape_float__"

_NUMBERS: Mapping[str, float] = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}
# Inside a string the quotation marks would be escaped.
_WRITTEN = re.compile(rb'\{\s*"__agenttape_float__":\s*"(NaN|-?Infinity)"\s*\}')


def held(name: str) -> Json:
    """What stands for the number that JavaScript calls so."""
    return {NAME: name}


def name_of(value: float) -> str:
    """What JavaScript calls a number that is not finite."""
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def number(value: Json) -> float | None:
    """The number an object stands for, None for any other value."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    name = value.get(NAME)
    return _NUMBERS.get(name) if isinstance(name, str) else None


def named(text: bytes) -> bytes:
    """A written JSON text with the numbers named as Python names them."""
    return _WRITTEN.sub(rb"\1", text) if NAME.encode() in text else text


def restored(value: Json) -> Json:
    """The value with the numbers themselves in it, for what writes or compares them as Python does."""
    if (found := number(value)) is not None:
        return found
    if isinstance(value, dict):
        return {name: restored(each) for name, each in value.items()}
    if isinstance(value, list):
        return [restored(each) for each in value]
    return value
