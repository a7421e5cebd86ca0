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
# Words that some reader takes for a boolean or null.
_WORDS = frozenset(["true", "false", "yes", "no", "on", "off", "y", "n", "null", "none"])

# Characters that a reader refuses or takes for a line break, or that are invisible.
_HIDDEN = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff"
_UNFIT_FOR_A_LINE = re.compile(f"[{_HIDDEN}\t\n]")
_UNFIT_FOR_A_BLOCK = re.compile(f"[{_HIDDEN}]|[^\\S\n](?:\n|\\Z)")
_ESCAPED = re.compile(f'[{_HIDDEN}\t\n"\\\\]')
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}

# AgentTape's parser takes the text after such a quotation mark for a value, ` #` for a comment.
_LIKE_A_KEY = re.compile(r'[^"]*"\s*:')
_LIKE_A_COMMENT = re.compile(r"(?<= )#")

_LONGEST_KEY = 1000
"""YAML requires the colon within 1024 characters."""
_MAX_ROW_LENGTH = 4

_STEP = "  "
_NON_FINITE = {"NaN": ".nan", "Infinity": ".inf", "-Infinity": "-.inf"}


def dump(value: Json) -> str:
    """The document. It ends with `...` where a text's blank lines would otherwise be its end."""
    lines = list(_block(value, "")) if _is_block(value) else [_scalar(value, in_list=True)]
    if lines[-1] == "":
        lines.append("...")
    return "\n".join(lines) + "\n"


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
        and all(isinstance(each, int | float) for each in value)
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
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    if not _UNFIT_FOR_A_LINE.search(text):
        return "'" + text.replace("'", "''") + "'"
    return _quoted(text, in_list=in_list)


def _quoted(text: str, *, in_list: bool) -> str:
    escapes = _ESCAPES
    if in_list and _LIKE_A_KEY.match(text):
        escapes = escapes | {'"': "\\u0022"}
    written = _ESCAPED.sub(lambda found: escapes.get(found[0]) or f"\\u{ord(found[0]):04x}", text)
    return '"' + (_LIKE_A_COMMENT.sub(r"\\u0023", written) if '"' in text else written) + '"'


def _fits_a_block(text: str) -> bool:
    return "\n" in text and text[0] not in " \t\n" and not _UNFIT_FOR_A_BLOCK.search(text)


def _header(text: str) -> str:
    if not text.endswith("\n"):
        return "|-"
    return "|+" if text.endswith("\n\n") else "|"


def _content(text: str, indent: str) -> Iterator[str]:
    for line in text.removesuffix("\n").split("\n"):
        yield indent + line if line else ""
