"""Strict JSON: what is read here can be stored parsed and written again without loss.

A text is JSON here only if every reader would get the same value: UTF-8, no repeated key, no NaN or
Infinity, no lone surrogate, at most 200 levels. Anything else is stored as text or bytes.

Integers of any size stay exact. The standard library reads them, since orjson turns 2**64 into a
float.

AgentTape writes NaN and the infinities as Python does, without quotes. In memory and in databases
each is an object with one key, `{"__agenttape_float__": "NaN"}`. A cassette's file keeps the
number.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import NamedTuple, NoReturn, TypeAlias, cast

import orjson

from tapeway.core.text import is_utf8, occurs

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

Pointer: TypeAlias = tuple[str | int, ...]
"""The path to a value in a document: `("interactions", 3, "response", "status_code")`."""

MAX_DEPTH = 200
"""Deeper values are stored as text: people cannot edit them and recursive readers overflow."""

NON_FINITE_KEY = "__agenttape_float__"
"""The only key of an object that represents NaN or an infinity."""

_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_LONE_SURROGATE = "a string holds half a surrogate pair"
_CONTAINERS = frozenset({dict, list})
_CONTAINERS_AND_FLOATS = _CONTAINERS | {float}
_OPENING, _CLOSING = frozenset("[{"), frozenset("]}")
_TOO_LONG = "an integer has more digits than can be read"

# The closing quote is optional: otherwise an unclosed string is searched again from every quote
# inside it.
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_TOKEN = re.compile(rf"{_STRING.pattern}|[\[\]{{}}]", re.DOTALL)
_CLOSED = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
SLICE = 256 * 1024
"""How many characters are searched at once, while other threads wait."""
_LEVELS_ADDED = 254 - MAX_DEPTH
"""orjson refuses a value of more than MAX_DEPTH levels with so many levels around."""
_COUNTED = 4096
"""Below this length, counting brackets takes less time than adding levels."""
_MOST_AT_ONCE = 1024 * 1024
"""How many bytes orjson may read at once: no other thread runs meanwhile."""
_BLANKS = b" \n\r\t"
_LONG, _BEGINNING = 1024, 64
"""A line from the first length on is found by so many bytes, and compared as a whole."""
_VALUE_BYTES = 8
"""The rough length of a value as text."""
_AS_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_LINE = 100
MANY_VALUES = 20_000
"""A value with more values in it is written step by step."""

_PART = 1000
"""Items of a large list that are looked at together."""

_NON_FINITE: Mapping[str, float] = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}
# Inside a string the quotation marks would be escaped.
_NON_FINITE_OBJECT = re.compile(rb'\{\s*"__agenttape_float__":\s*"(NaN|-?Infinity)"\s*\}')


class NotJson(ValueError):
    """The text is not JSON that every reader understands alike."""


class ReadJson(NamedTuple):
    """The value of a JSON text by value, and its canonical form."""

    value: Json
    canonical: bytes
    exact: bool
    """Whether orjson read the text without loss: the value is also as written."""


def parse(
    text: bytes | str,
    *,
    by_value: bool = False,
    constant: Callable[[str], Json] | None = None,
) -> Json:
    """The value of a strict JSON text; by value, `1.0` and `1e0` are the integer 1.

    `constant` returns the value of `NaN`, `Infinity` and `-Infinity`; without it, these are errors.
    Raises NotJson, with line and column if the text is malformed.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as exc:
            raise NotJson(f"not UTF-8 at byte {exc.start}") from None
    elif not text.isascii() and not is_utf8(text):
        raise NotJson(_LONE_SURROGATE)
    _check_depth(text)
    large = len(text) > SLICE
    try:
        value: Json = _decoder(by_value, constant, large=large).decode(text)
    except RecursionError:
        raise NotJson(_TOO_DEEP) from None
    except json.JSONDecodeError as exc:
        raise NotJson(f"line {exc.lineno} column {exc.colno}: {exc.msg}") from None
    except NotJson:
        raise
    except ValueError:
        raise NotJson(_TOO_LONG) from None
    if occurs(_SURROGATE, text, len("\\ud8"), at_once=SLICE):
        _check_surrogates(value, large=large)
    return value


def peek_json(text: bytes) -> Json:
    """The value that orjson reads, for a look at some members; None for text that is not JSON."""
    try:
        value: Json = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value


def json_object(text: bytes) -> dict[str, Json] | None:
    """The object that orjson reads; None for any other text."""
    value = peek_json(text)
    return value if isinstance(value, dict) else None


def parse_as_dumped(text: bytes, *, levels: int = 0) -> Json:
    """The value of `parse` for a text that `dump` wrote, whatever the blanks.

    None for any other text, above a mebibyte, and above 200 levels, `levels` around the text
    included. orjson takes a third of the time of `parse`. Where the two read different values (a
    repeated key, an integer of more than 64 bits), orjson writes another text, so this returns
    None.
    """
    if len(text) > _MOST_AT_ONCE:
        return None
    try:
        value: Json = orjson.loads(text)
        written = _dump_of_few_levels(text, value, levels)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    return value if _are_same_but_for_blanks(text, written) else None


def _are_same_but_for_blanks(text: bytes, written: bytes) -> bool:
    parts = [(text, written)]
    middle = len(text) // 2
    start, end = text.rfind(b"\n", 0, middle) + 1, text.find(b"\n", middle)
    if end - start >= max(middle, _LONG):
        # Most of a large text is one string, and a string is compared as a whole.
        start = max(start, text.find(b'": ', start, end) + 3)
        string = text[start:end]
        at = written.find(string[:_BEGINNING])
        if at >= 0 and written.startswith(string, at):
            parts = [(text[:start], written[:at]), (text[end:], written[at + len(string) :])]
    return all(_without_blanks(a) == _without_blanks(b) for a, b in parts)


def _without_blanks(text: bytes) -> bytes:
    return text.translate(None, _BLANKS)


def _dump_of_few_levels(text: bytes, value: Json, levels: int) -> bytes:
    """orjson's text of the value; raises for too many levels."""
    if len(text) < _COUNTED and text.count(b"[") + text.count(b"{") <= MAX_DEPTH - levels:
        return orjson.dumps(value)
    nested, more = value, _LEVELS_ADDED + levels
    for _ in range(more):
        nested = [nested]
    return orjson.dumps(nested)[more:-more]


def dump(value: Json, *, indent: bool = False) -> bytes:
    """UTF-8 JSON, compact or indented by two; integers of any size are written exactly."""
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else None)
    except TypeError:
        if not isinstance(value, dict | list):
            return json.dumps(value, ensure_ascii=False).encode("utf-8")
        # Part by part: neighbours must not change the spelling of a number.
        return b"".join(_parts(value, indent=indent, before=b""))


def json_pieces(value: Json, *, indent: bool = False, before: bytes = b"") -> Iterator[bytes]:
    """What `dump` gives, in pieces of less than a mebibyte.

    While a large value is written, other threads get turns. `before` begins each further line.
    """
    if not value or not isinstance(value, str | dict | list) or not _is_long(value):
        text = dump(value, indent=indent)
        yield text.replace(b"\n", b"\n" + before) if before else text
    elif isinstance(value, str):
        yield from _string_pieces(value)
    elif isinstance(value, list) and not isinstance(value[0], dict | list | str):
        yield from _list_pieces(value, indent=indent, before=before)
    else:
        yield from _parts(value, indent=indent, before=before)


def _parts(value: dict[str, Json] | list[Json], *, indent: bool, before: bytes) -> Iterator[bytes]:
    within = b"\n%b  " % before if indent else b""
    colon = b": " if indent else b":"
    named = value.items() if isinstance(value, dict) else [("", member) for member in value]
    start, end = (b"{", b"}") if isinstance(value, dict) else (b"[", b"]")
    for name, inner in named:
        yield b"%b%b%b" % (start, within, _name(name) + colon if end == b"}" else b"")
        yield from json_pieces(inner, indent=indent, before=within[1:])
        start = b","
    yield (b"\n%b" % before if indent else b"") + end


def _name(name: object) -> bytes:
    if isinstance(name, str):
        return dump(name)
    # The object is no JSON: Python writes the name, or raises.
    return json.dumps({name: 0}, separators=(",", ":")).encode()[1:-3]


def _is_long(value: Json) -> bool:
    left, waiting = SLICE, [value]
    while waiting and left >= 0:
        part = waiting.pop()
        left -= _VALUE_BYTES
        if isinstance(part, str):
            left -= len(part)
        elif isinstance(part, dict | list):
            left -= len(part) * _VALUE_BYTES
            waiting += (part.values() if isinstance(part, dict) else part) if left >= 0 else ()
    return left < 0


def _string_pieces(value: str) -> Iterator[bytes]:
    # Each character is written without regard to its neighbours.
    yield b'"'
    for start in range(0, len(value), SLICE):
        yield dump(value[start : start + SLICE])[1:-1]
    yield b'"'


def _list_pieces(value: list[Json], *, indent: bool, before: bytes) -> Iterator[bytes]:
    opening = b"["
    for start in range(0, len(value), MANY_VALUES):
        part = dump(value[start : start + MANY_VALUES], indent=indent)
        within = part[1:-2] if indent else part[1:-1]
        yield opening + (within.replace(b"\n", b"\n" + before) if before else within)
        opening = b","
    yield b"\n%b]" % before if indent else b"]"


def python_text(
    value: Json,
    *,
    ascii_only: bool = False,
    indent: str | None = None,
    separators: tuple[str, str] = (",", ":"),
    sort_keys: bool = False,
    length: int | None = None,
) -> str:
    """The text of Python's `json.dumps`; other threads get turns while a large value is written.

    `length` is the length of the source text, if known.
    """
    encoder = _encoder(ascii_only, indent, separators, sort_keys)
    # A text has fewer values than characters.
    if (length is not None and length <= MANY_VALUES) or not _is_large(value):
        return encoder.encode(value)
    if indent is not None:
        return "".join(encoder.iterencode(value))
    return "".join(_python_pieces(value, encoder))


def _python_pieces(value: Json, encoder: json.JSONEncoder) -> Iterator[str]:
    """The encoder's text of a value, in pieces that are each written quickly."""
    if not isinstance(value, dict | list) or not _is_large(value):
        yield encoder.encode(value)
        return
    opening, end = ("{", "}") if isinstance(value, dict) else ("[", "]")
    for part in _parts_of(value, sort_keys=encoder.sort_keys):
        if not _is_large(part):
            yield opening + encoder.encode(part)[1:-1]
            opening = encoder.item_separator
            continue
        named = part.items() if isinstance(part, dict) else [("", member) for member in part]
        for name, inner in named:
            yield opening
            if isinstance(part, dict):
                yield encoder.encode(name) + encoder.key_separator
            yield from _python_pieces(inner, encoder)
            opening = encoder.item_separator
    yield end


def _parts_of(
    value: dict[str, Json] | list[Json], *, sort_keys: bool
) -> Iterator[dict[str, Json] | list[Json]]:
    """The items of a list or the members of an object, some at a time."""
    names = [] if isinstance(value, list) else sorted(value) if sort_keys else [*value]
    for start in range(0, len(value), _PART):
        if isinstance(value, list):
            yield value[start : start + _PART]
        else:
            yield {name: value[name] for name in names[start : start + _PART]}


def python_bytes(
    value: Json,
    *,
    indent: bool = False,
    blanks: bool = False,
    sort_keys: bool = False,
    alike: bool | None = None,
) -> bytes | None:
    """The bytes of `python_text`, written by orjson, or None.

    Compact, indented by two, or on one line with `blanks` after commas and colons. None if orjson
    writes a number differently, and for a large value: orjson lets no other thread run. `alike` is
    the result of `is_written_alike`, if known.
    """
    if not (is_written_alike(value) if alike is None else alike):
        return None
    options = orjson.OPT_INDENT_2 if indent or blanks else 0
    options |= orjson.OPT_SORT_KEYS if sort_keys else 0
    try:
        text = orjson.dumps(value, option=options)
    except orjson.JSONEncodeError:
        return None
    if blanks:
        text = _on_one_line(text)
    # A copy: orjson's result keeps its buffer of 4 KiB alive.
    return memoryview(text).tobytes()


def is_written_as(value: Json, text: bytes, *, blanks: bool) -> bool:
    """Whether `python_bytes` writes this text, for a value that `is_written_alike`."""
    try:
        if not blanks:
            return orjson.dumps(value) == text
        return _on_one_line(orjson.dumps(value, option=orjson.OPT_INDENT_2)) == text
    except orjson.JSONEncodeError:
        return False


def _on_one_line(text: bytes) -> bytes:
    """An indented text on one line, with blanks after commas and colons."""
    # Within a text a line break is an escape.
    if text.count(b"\n") * _LONG_LINE < len(text):
        # A long text has many commas, and a few lines are quickly looked at.
        lines = map(bytes.lstrip, text.split(b"\n"))
        return b"".join([line + b" " if line[-1:] == b"," else line for line in lines])
    return b"".join(map(bytes.lstrip, text.replace(b",\n", b", \n").split(b"\n")))


@lru_cache(maxsize=64)
def _encoder(
    ascii_only: bool, indent: str | None, separators: tuple[str, str], sort_keys: bool
) -> json.JSONEncoder:
    return json.JSONEncoder(
        ensure_ascii=ascii_only, indent=indent, separators=separators, sort_keys=sort_keys
    )


def python_value(text: str) -> Json:
    """The value that Python's `json.loads` reads, less strictly than `parse`. Raises ValueError.

    Other threads get turns during a large text.
    """
    if len(text) <= SLICE:
        return cast("Json", json.loads(text))
    return cast("Json", json.loads(text, parse_float=_float, parse_int=_integer))


def canonical(value: Json) -> bytes:
    """One text for all spellings of a value read by value; keys in order."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def same_json(left: Json, right: Json) -> bool:
    """Whether two values are the same JSON; `1`, `1.0` and `true` differ."""
    return python_text(left, sort_keys=True) == python_text(right, sort_keys=True)


def check_json(value: object, *, depth: int = 1) -> None:
    """Raise NotJson for a value that JSON cannot express, or that is nested too deep.

    `depth` is the level of the value itself.
    """
    if depth > MAX_DEPTH and isinstance(value, list | dict):
        raise NotJson(_TOO_DEEP)
    match value:
        case None | bool():
            return
        case int():
            _check_digits(value)
        case float():
            if not math.isfinite(value):
                raise NotJson(f"{value} is not JSON")
        case str():
            if not value.isascii() and not is_utf8(value):
                raise NotJson(_LONE_SURROGATE)
        case list():
            for inner in value:
                check_json(inner, depth=depth + 1)
        case dict():
            for name, inner in value.items():
                if not isinstance(name, str):
                    raise NotJson(f"a name in an object is a {type(name).__name__} and no text")
                check_json(name)
                check_json(inner, depth=depth + 1)
        case _:
            raise NotJson(f"a {type(value).__name__} is not JSON")


def non_finite_object(name: str) -> Json:
    """The object that represents `NaN`, `Infinity` or `-Infinity`."""
    return {NON_FINITE_KEY: name}


def non_finite_name(value: float) -> str:
    """`NaN`, `Infinity` or `-Infinity`, for a number that is not finite."""
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def non_finite_number(value: Json) -> float | None:
    """The number of an object that represents a number, None for any other value."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    name = value.get(NON_FINITE_KEY)
    return _NON_FINITE.get(name) if isinstance(name, str) else None


def write_non_finite(text: bytes) -> bytes:
    """A JSON text in which the number's name replaces each object for a number, as in Python."""
    return _NON_FINITE_OBJECT.sub(rb"\1", text) if NON_FINITE_KEY.encode() in text else text


def restore_non_finite(value: Json) -> Json:
    """The value, with each object that stands for a number replaced by the number."""
    if (number := non_finite_number(value)) is not None:
        return number
    if isinstance(value, dict):
        return {name: restore_non_finite(member) for name, member in value.items()}
    if isinstance(value, list):
        return [restore_non_finite(item) for item in value]
    return value


def _check_depth(text: str) -> None:
    openings = 0
    for start in range(0, len(text), SLICE):
        openings += text.count("[", start, start + SLICE) + text.count("{", start, start + SLICE)
        if openings > MAX_DEPTH:
            break
    else:
        return
    depth = 0
    for tokens in _tokens(text):
        for token in tokens:
            if token in _OPENING:
                depth += 1
                if depth > MAX_DEPTH:
                    raise NotJson(_TOO_DEEP)
            elif token in _CLOSING:
                depth -= 1


def _tokens(text: str) -> Iterator[list[str]]:
    """The strings and brackets of a text in order, slice by slice."""
    start = 0
    while start < len(text):
        end = start + SLICE
        tokens = _TOKEN.findall(text, start, end)
        if tokens and tokens[-1][0] == '"' and not _CLOSED.fullmatch(tokens[-1]):
            # The slice ends inside this string, maybe after a backslash.
            match = _TOKEN.match(text, text.rfind(tokens[-1], start, end))
            end = max(end, match.end() if match is not None else end)
        yield tokens
        start = end


def _check_surrogates(value: Json, *, large: bool) -> None:
    if large:
        # json.dumps would keep other threads waiting.
        check_json(value)
    elif not is_utf8(json.dumps(value, ensure_ascii=False)):
        raise NotJson(_LONE_SURROGATE)


def _check_digits(value: int) -> None:
    try:
        str(value)
    except ValueError:
        raise NotJson(_TOO_LONG) from None


def _decoder(
    by_value: bool, constant: Callable[[str], Json] | None, *, large: bool
) -> json.JSONDecoder:
    if constant is None and not large:
        return _BY_VALUE if by_value else _AS_WRITTEN
    return json.JSONDecoder(
        object_pairs_hook=_unique,
        parse_constant=constant or _refuse_constant,
        parse_float=_by_value if by_value else _finite,
        parse_int=_integer if large else None,
    )


def _is_large(value: Json) -> bool:
    left, containers = MANY_VALUES, [value]
    # It grows meanwhile.
    for container in containers:
        inner = (
            container.values()
            if isinstance(container, dict)
            else container
            if isinstance(container, list)
            else ()
        )
        if (left := left - len(inner)) < 0:
            return True
        containers += [one for one in inner if type(one) in _CONTAINERS]
    return False


def is_written_alike(value: Json) -> bool:
    """Whether Python and orjson write all numbers of a value alike, and the value is not large."""
    left, values = MANY_VALUES, [value]
    # It grows meanwhile.
    for part in values:
        if isinstance(part, float):
            # Without an exponent: Python has `1e-05` where orjson has 0.00001.
            if not (part == 0 or 1e-4 <= abs(part) < 1e16):
                return False
            continue
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        if (left := left - len(inner)) < 0:
            return False
        for one in inner:
            if type(one) in _CONTAINERS_AND_FLOATS:
                values.append(one)  # noqa: PERF401 - a comprehension takes longer than a few members
    return True


def is_text_written_alike(text: bytes) -> bool:
    """Whether the value of a text by orjson `is_written_alike`, by the bytes; may be False wrongly.

    Python and orjson differ where orjson writes an exponent after a digit, or four zeros after the
    point.
    """
    # A text has fewer values than octets.
    if len(text) > MANY_VALUES or text.find(b"0.0000") >= 0:
        return False
    return text.translate(_AS_ZEROS).find(b"0e") < 0


def _float(text: str) -> float:
    return float(text)


def _integer(text: str) -> int:
    """The integer; this function is Python code, so other threads get turns between calls."""
    return int(text)


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise NotJson("a key occurs twice in one object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise NotJson(f"{text} does not fit a number")
    return number


def _by_value(text: str) -> Json:
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
    object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_by_value
)
