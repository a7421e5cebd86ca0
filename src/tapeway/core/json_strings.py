"""Where the strings of a JSON text stand in it."""

import re
from collections.abc import Iterator

import orjson

Path = tuple[str | int, ...]

_TOKEN = re.compile(rb'("((?:[^"\\]|\\.)*)")(\s*:)?|([\[\]{},])')
_UNIT = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", re.DOTALL)


def placed(text: bytes, start: int, end: int) -> Iterator[tuple[Path, int, int]]:
    """Path and content of each string that is a value, as start and end, in order.

    The text between the two has to be JSON.
    """
    path: list[str | int] = []
    for token in _TOKEN.finditer(text, start, end):
        match token[4]:
            case None if token[3]:
                path[-1] = orjson.loads(token[1])
            case None:
                yield tuple(path), *token.span(2)
            case b"{":
                path.append("")
            case b"[":
                path.append(0)
            case b"," if isinstance(number := path[-1], int):
                path[-1] = number + 1
            case b"]" | b"}":
                path.pop()


def units(content: bytes) -> list[str]:
    """The content of a JSON string, each item what one character of its value is written as."""
    return _UNIT.findall(content.decode())
