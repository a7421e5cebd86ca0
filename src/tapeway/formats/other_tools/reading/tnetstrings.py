"""Typed netstrings, the notation of mitmproxy's files: `LENGTH:CONTENT` and a letter for the type."""

from typing import TypeAlias

from tapeway.formats.errors import FormatFault

Tnet: TypeAlias = "bytes | str | int | float | bool | list[Tnet] | dict[str, Tnet] | None"
_MOST_DIGITS = 12
_DEEPEST = 100


def read_value(text: bytes, at: int, depth: int = 0) -> tuple[Tnet, int]:
    """The value at a position, and the position of the next value. Raises FormatFault."""
    colon = text.find(b":", at, at + _MOST_DIGITS + 1)
    length = text[at:colon] if colon > at else b""
    end = colon + 1 + int(length) if length.isdigit() else len(text)
    if end >= len(text):
        raise FormatFault("breaks off in the middle of a value")
    if depth > _DEEPEST:
        raise FormatFault("is nested too deep")
    return _value(text, colon + 1, end, depth), end + 1


def _value(text: bytes, start: int, end: int, depth: int) -> Tnet:
    match text[end : end + 1]:
        case b",":
            return text[start:end]
        case b";":
            return text[start:end].decode("utf-8", "surrogateescape")
        case b"]":
            return _items(text, start, end, depth)
        case b"}":
            items = _items(text, start, end, depth)
            return {_name(key): value for key, value in zip(items[::2], items[1::2], strict=True)}
        case kind:
            return _plain(kind, text[start:end])


def _plain(kind: bytes, content: bytes) -> Tnet:
    try:
        match kind:
            case b"#":
                return int(content)
            case b"^":
                return float(content)
            case b"!":
                return {b"true": True, b"false": False}[content]
            case b"~":
                return None
    except (ValueError, KeyError):
        pass
    raise FormatFault(f"has a value that cannot be read: type {kind!r}")


def _items(text: bytes, start: int, end: int, depth: int) -> list[Tnet]:
    values: list[Tnet] = []
    while start < end:
        value, start = read_value(text, start, depth + 1)
        values.append(value)
    if start != end:
        raise FormatFault("has a value that is longer than what is around it")
    return values


def _name(key: Tnet) -> str:
    return key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else str(key)
