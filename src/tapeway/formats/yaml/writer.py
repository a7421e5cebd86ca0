"""Writes a JSON value as YAML for people, laid out as AgentTape's files.

PyYAML and tapeway read back the same value. So does the fallback parser of AgentTape, except for
names with control characters or of more than a thousand letters.
"""

import re
from collections.abc import Iterator

from tapeway.core import json_text
from tapeway.core.json_text import Json
from tapeway.formats.yaml.scalars import number

_PLAIN = re.compile(r"[A-Za-z_](?:[A-Za-z0-9 _./@+-]*[A-Za-z0-9_./@+-])?")
_UNFIT_FOR_PLAIN = re.compile(r"[^A-Za-z0-9 _./@+-]")
# Words that some reader takes for a boolean or null.
_WORDS = frozenset(["true", "false", "yes", "no", "on", "off", "y", "n", "null", "none"])
_LONGEST_WORD = max(map(len, _WORDS))

# Characters that a reader refuses or takes for a line break, or that are invisible.
_HIDDEN = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff"
_UNFIT_FOR_A_LINE = re.compile(f"[{_HIDDEN}\t\n]")
_UNFIT_FOR_A_BLOCK = re.compile(f"[{_HIDDEN}]|[^\\S\n]\n")
_ESCAPED = re.compile(f'[{_HIDDEN}\t\n"\\\\]')
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}

# AgentTape's parser takes the text after such a quotation mark for a value, ` #` for a comment.
_LIKE_A_KEY = re.compile(r'[^"]*"\s*:')
SLICE = 256 * 1024
"""A large text is searched and changed in slices, to keep no other thread waiting."""

_LONGEST_KEY = 1000
"""YAML requires the colon within 1024 characters."""
_MAX_ROW_LENGTH = 4

_STEP = "  "
_NON_FINITE = {"NaN": ".nan", "Infinity": ".inf", "-Infinity": "-.inf"}


def dump(value: Json) -> str:
    """The document. It ends with `...` where a text's blank lines would otherwise be its end."""
    return b"".join(pieces(value)).decode()


def pieces(value: Json) -> Iterator[bytes]:
    """The document as UTF-8 in pieces. While a large value is written, other threads get turns."""
    lines = _block(value, "") if _is_block(value) else iter([_scalar(value, in_list=True)])
    last, waiting, size = "", [], 0
    for last in lines:
        waiting.append(last)
        size += len(last)
        if size > SLICE:
            yield "".join([f"{line}\n" for line in waiting]).encode()
            waiting, size = [], 0
    if last == "":
        waiting.append("...")
    yield "".join([f"{line}\n" for line in waiting]).encode()


def _pair(name: str, value: Json, indent: str) -> Iterator[str]:
    key = _text(name)
    if len(key) > _LONGEST_KEY:
        yield f"{indent}? {key}"
        key = ""
    start = f"{indent}{key}:"
    if _is_block(value):
        yield start
        yield from _block(value, indent + _STEP)
    elif isinstance(value, str) and _fits_a_block(value):
        yield f"{start} {_header(value)}"
        yield from _content(value, indent + _STEP)
    else:
        yield f"{start} {_scalar(value)}"


def _item(value: Json, indent: str) -> Iterator[str]:
    if not _is_block(value):
        yield f"{indent}- {_scalar(value, in_list=True)}"
        return
    inside = indent + _STEP
    for position, line in enumerate(_block(value, inside)):
        yield f"{indent}- {line[len(inside) :]}" if position == 0 else line


def _block(value: Json, indent: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _pair(name, inner, indent)
    elif isinstance(value, list):
        for inner in value:
            yield from _item(inner, indent)


def _is_block(value: Json) -> bool:
    if not isinstance(value, dict | list) or not value:
        return False
    return not _is_row(value) and json_text.non_finite_number(value) is None


def _is_row(value: Json) -> bool:
    # A chunk of a stream, [milliseconds, bytes]: there are hundreds of them.
    return (
        isinstance(value, list)
        and 0 < len(value) <= _MAX_ROW_LENGTH
        and all(isinstance(item, int | float) for item in value)
    )


def _scalar(value: Json, *, in_list: bool = False) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return number(value)
        case str():
            return _text(value, in_list=in_list)
        case {json_text.NON_FINITE_KEY: str(name)}:
            return _NON_FINITE[name]
        case dict():
            return "{}"
        case list():
            return f"[{', '.join(map(_scalar, value))}]"


def _text(text: str, *, in_list: bool = False) -> str:
    if _is_plain(text):
        return text
    if not _has(_UNFIT_FOR_A_LINE, text):
        return "'" + text.replace("'", "''") + "'"
    return _quoted(text, in_list=in_list)


def _quoted(text: str, *, in_list: bool) -> str:
    escapes = _ESCAPES
    if in_list and _LIKE_A_KEY.match(text):
        escapes = escapes | {'"': "\\u0022"}
    written = "".join(
        [
            _ESCAPED.sub(lambda match: escapes.get(match[0]) or f"\\u{ord(match[0]):04x}", part)
            for part in _slices(text)
        ]
    )
    return '"' + (written.replace(" #", " \\u0023") if '"' in text else written) + '"'


def _is_plain(text: str) -> bool:
    if len(text) <= _LONGEST_WORD and text.lower() in _WORDS:
        return False
    if len(text) <= SLICE:
        return _PLAIN.fullmatch(text) is not None
    ends = _PLAIN.fullmatch(text[0]) and _PLAIN.fullmatch(f"a{text[-1]}")
    return ends is not None and not _has(_UNFIT_FOR_PLAIN, text)


def _fits_a_block(text: str) -> bool:
    if "\n" not in text or text[0] in " \t\n" or _has(_UNFIT_FOR_A_BLOCK, text):
        return False
    return text[-1] == "\n" or not text[-1].isspace()


def _has(pattern: re.Pattern[str], text: str) -> bool:
    """Whether a pattern of one or two characters occurs."""
    starts = range(0, len(text), SLICE)
    return any(pattern.search(text, start, start + SLICE + 1) for start in starts)


def _slices(text: str) -> Iterator[str]:
    return (text[start : start + SLICE] for start in range(0, len(text), SLICE))


def _header(text: str) -> str:
    if not text.endswith("\n"):
        return "|-"
    return "|+" if text.endswith("\n\n") else "|"


def _content(text: str, indent: str) -> Iterator[str]:
    for line in text.removesuffix("\n").split("\n"):
        yield indent + line if line else ""
