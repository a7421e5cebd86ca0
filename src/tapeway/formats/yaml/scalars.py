"""The values of YAML texts without quotes: those of JSON, and plain text for anything else.

`no`, `0644`, `12:30` and `2026-11-22` are text. Readers of YAML 1.1 take the four for values of
various kinds, and the writer quotes every text that any reader could misread.
"""

import math
import re

from tapeway.core.json_text import Json, non_finite_object

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
# AgentTape writes 0.00001 as `1e-05`, as JSON may.
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NON_FINITE = {
    **dict.fromkeys((".nan", ".NaN", ".NAN"), "NaN"),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), "Infinity"),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), "-Infinity"),
}


def resolve(text: str) -> Json:
    """The value of a text without quotes; a number that is not finite is an object (`json_text`).

    Raises ValueError for a number too large to be read.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "-+.0123456789":
        return text
    if _WHOLE.fullmatch(text):
        return _decimal_integer(text)
    if _NUMBER.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"{text} does not fit a number")
        return number
    return non_finite_object(_NON_FINITE[text]) if text in _NON_FINITE else text


def number(value: float) -> str:
    """A finite number that every reader takes for one: YAML 1.1 needs `1.0e-05`, not `1e-05`."""
    text = repr(value)
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}.0e{exponent}" if mark and "." not in mantissa else text


def _decimal_integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("an integer has more digits than can be read") from None
