"""Reads and changes members of a JSON object inside the text, and keeps all remaining bytes."""

import json
import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from tapeway.core.json_text import json_object

_BLANKS = re.compile(r"[ \t\n\r]*")
# Numbers stay text: a number may have more digits than Python converts.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)


class _MemberSpan(NamedTuple):
    name: str
    start: int
    value: int
    end: int


def without_members(data: bytes, names: Collection[str]) -> bytes:
    """The text of an object without these members; `data` itself if none of them is present."""
    if not _may_have(data, names) or json_object(data) is None:
        return data
    text = data.decode()
    members = _members(text)
    if members is None:
        return data
    kept = [member for member in members if member.name not in names]
    if len(kept) == len(members):
        return data
    if not kept:
        return b"{}"
    # The separator before a kept member is the separator before this member in the original.
    parts = [text[: members[0].start], text[kept[0].start : kept[0].end]]
    before = {member: members[at - 1] for at, member in enumerate(members) if at}
    parts += [text[before[member].end : member.end] for member in kept[1:]]
    return "".join([*parts, text[members[-1].end :]]).encode()


def with_member(data: bytes, name: str, value: bytes) -> bytes:
    """The text of an object with this JSON value for a member; a new member comes first."""
    if json_object(data) is None:
        return data
    text, written = data.decode(), value.decode()
    members = _members(text)
    if members is None:
        return data
    parts, done = [], 0
    for member in members:
        if member.name == name:
            parts += [text[done : member.value], written]
            done = member.end
    if done:
        return "".join([*parts, text[done:]]).encode()
    brace = text.index("{") + 1
    comma = "," if members else ""
    return f"{text[:brace]}{json.dumps(name)}:{written}{comma}{text[brace:]}".encode()


def member_text(data: bytes, name: str) -> bytes | None:
    """The raw JSON text of a member's value; the last of several, None without the member."""
    if not _may_have(data, (name,)) or json_object(data) is None:
        return None
    text = data.decode()
    named = [member for member in _members(text) or () if member.name == name]
    return text[named[-1].value : named[-1].end].encode() if named else None


def elements(data: bytes) -> list[bytes] | None:
    """The texts of the elements of a JSON array; None if the text is no array."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    spans = _elements(text)
    return None if spans is None else [text[start:end].encode() for start, end in spans]


def with_elements(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The text of an array with each element changed; separators stay."""
    if elements(data) is None:
        return data
    text = data.decode()
    parts: list[str] = []
    done = 0
    for start, end in _elements(text) or ():
        parts += [text[done:start], change(text[start:end].encode()).decode()]
        done = end
    return "".join([*parts, text[done:]]).encode()


def _may_have(data: bytes, names: Collection[str]) -> bool:
    # A name may be written with escapes.
    return b"\\u" in data or any(f'"{name}"'.encode() in data for name in names)


def _members(text: str) -> list[_MemberSpan] | None:
    """The members of a JSON object; None if the text is no object."""
    try:
        at = _after_blanks(text, 0)
        if text[at : at + 1] != "{":
            return None
        spans: list[_MemberSpan] = []
        at = _after_blanks(text, at + 1)
        if text[at : at + 1] == "}":
            return spans
        while True:
            start = at
            name, at = _DECODER.raw_decode(text, at)
            at = _after_blanks(text, at)
            if not isinstance(name, str) or text[at : at + 1] != ":":
                return None
            value = _after_blanks(text, at + 1)
            _, at = _DECODER.raw_decode(text, value)
            spans.append(_MemberSpan(name, start, value, at))
            at = _after_blanks(text, at)
            if text[at : at + 1] != ",":
                return spans if text[at : at + 1] == "}" else None
            at = _after_blanks(text, at + 1)
    except (ValueError, RecursionError):
        return None


def _elements(text: str) -> list[tuple[int, int]] | None:
    """Start and end of each element of a JSON array; None if the text is no array."""
    try:
        at = _after_blanks(text, 0)
        if text[at : at + 1] != "[":
            return None
        places: list[tuple[int, int]] = []
        at = _after_blanks(text, at + 1)
        if text[at : at + 1] == "]":
            return places
        while True:
            start = at
            _, at = _DECODER.raw_decode(text, at)
            places.append((start, at))
            at = _after_blanks(text, at)
            if text[at : at + 1] != ",":
                return places if text[at : at + 1] == "]" else None
            at = _after_blanks(text, at + 1)
    except (ValueError, RecursionError):
        return None


def _after_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match is not None else at
