"""JSON read strictly, so that what is stored parsed can be given back without loss.

A text is JSON here only if every reader would see the same value: UTF-8, no repeated key, no NaN
or Infinity, no lone surrogate, no absurd depth. Anything else is kept as text or bytes.
Integers of any size stay exact, which is why reading is the standard library's and not orjson's
(orjson turns 2**64 into a float).

NaN and infinities, for which JSON has no name: an object with one name stands for each.

AgentTape writes them as Python does. They are held like this wherever a cassette is in memory or in
a database, and written to a cassette's file as they were found.

Where two documents differ, as paths that a person can find and a rule can name.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import NoReturn, TypeAlias

import orjson

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

MAX_DEPTH = 200
"""Deeper values are kept as text: people cannot edit them and recursive readers overflow."""

# The closing quote is optional: else an unclosed string is searched anew from every quote inside it.
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
NAME = "__agenttape_float__"
_NUMBERS: Mapping[str, float] = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}

# Inside a string the quotation marks would be escaped.
_WRITTEN = re.compile(rb'\{\s*"__agenttape_float__":\s*"(NaN|-?Infinity)"\s*\}')


class NotJson(ValueError):
    """The text is not JSON that every reader understands alike."""


def parse(
    text: bytes | str,
    *,
    by_value: bool = False,
    constant: Callable[[str], Json] | None = None,
) -> Json:
    """The value of a strict JSON text; by value, `1.0` and `1e0` are the integer 1.

    `constant` says what `NaN`, `Infinity` and `-Infinity` stand for, which are refused without it.

    Raises NotJson, with line and column where the text is malformed.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as exc:
            raise NotJson(f"not UTF-8 at byte {exc.start}") from None
    elif not text.isascii() and _cannot_be_encoded(text):
        raise NotJson("a string holds half a surrogate pair")
    _refuse_depth(text)
    try:
        value: Json = _decoder(by_value, constant).decode(text)
    except RecursionError:
        raise NotJson(f"nested deeper than {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as exc:
        raise NotJson(f"line {exc.lineno} column {exc.colno}: {exc.msg}") from None
    except NotJson:
        raise
    except ValueError:
        raise NotJson("an integer has more digits than can be read") from None
    if "\\u" in text and _has_lone_surrogate(value):
        raise NotJson("a string holds half a surrogate pair")
    return value


def dump(value: Json, *, indent: bool = False) -> bytes:
    """UTF-8 JSON, compact or indented by two; integers of any size are written exactly."""
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else None)
    except TypeError:
        separators = None if indent else (",", ":")
        text = json.dumps(
            value, ensure_ascii=False, indent=2 if indent else None, separators=separators
        )
        return text.encode("utf-8")


def require(value: object, *, depth: int = 1) -> None:
    """Raise NotJson for what would not be read again as the value it is.

    That is what JSON has no word for, and what lies too deep; the value itself lies at this depth.
    """
    if depth > MAX_DEPTH and isinstance(value, list | dict):
        raise NotJson(f"nested deeper than {MAX_DEPTH} levels")
    match value:
        case None | bool():
            return
        case int():
            _refuse_length(value)
        case float():
            if not math.isfinite(value):
                raise NotJson(f"{value} is not JSON")
        case str():
            if not value.isascii() and _cannot_be_encoded(value):
                raise NotJson("a string holds half a surrogate pair")
        case list():
            for inner in value:
                require(inner, depth=depth + 1)
        case dict():
            for name, inner in value.items():
                if not isinstance(name, str):
                    raise NotJson(f"a name in an object is a {type(name).__name__} and no text")
                require(name)
                require(inner, depth=depth + 1)
        case _:
            raise NotJson(f"a {type(value).__name__} is not JSON")


def _refuse_length(value: int) -> None:
    try:
        str(value)
    except ValueError:
        raise NotJson("an integer has more digits than can be read") from None


def canonical(value: Json) -> bytes:
    """One text for all ways to write a value that was read by value; keys in order."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def same(left: Json, right: Json) -> bool:
    """Whether two values are the same JSON, `1`, `1.0` and `true` being three different ones."""
    return _ordered(left) == _ordered(right)


def _decoder(by_value: bool, constant: Callable[[str], Json] | None) -> json.JSONDecoder:
    if constant is None:
        return _BY_VALUE if by_value else _AS_WRITTEN
    return json.JSONDecoder(object_pairs_hook=_unique, parse_constant=constant, parse_float=_finite)


def _ordered(value: Json) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True)


def _refuse_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            raise NotJson(f"nested deeper than {MAX_DEPTH} levels")


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise NotJson("a key stands twice in one object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise NotJson(f"{text} does not fit a number")
    return number


def _has_lone_surrogate(value: Json) -> bool:
    return _cannot_be_encoded(json.dumps(value, ensure_ascii=False))


def _cannot_be_encoded(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _whole(text: str) -> Json:
    number = _finite(text)
    try:
        exact = Decimal(text)
    except InvalidOperation:  # an exponent of twenty digits
        return number
    # Never as a fraction: the denominator of 1e-999999999 has a billion digits.
    return int(exact) if exact == exact.to_integral_value() else number


_AS_WRITTEN = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
)
_BY_VALUE = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_whole
)


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


def legible(text: str) -> str:
    """The text with octets that are no UTF-8, which came in as lone surrogates, written out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
