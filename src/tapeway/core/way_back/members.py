"""Rewrites addresses at chosen members of a JSON body; the other bytes do not change."""

import re
from collections.abc import Iterator, Sequence

import orjson

from tapeway.core.matching.json_paths import ANY_DEPTH, ONE, Path
from tapeway.core.way_back.addresses import WayBack

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+', re.DOTALL)
_ADDRESS = re.compile(rb'"https?:\\?/\\?/', re.IGNORECASE)

_Place = list[str | int | None]


def may_hold(body: bytes, members: Sequence[Path]) -> bool:
    """Whether a body may have an address at one of these members; it is not read for that."""
    # Nearly no body has an address. `find`, since `in` first tries to take the bytes for a number.
    if body.find(b":/") < 0 and body.find(b":\\") < 0:
        return False
    names = [last for *_, last in members if isinstance(last, str)]
    anywhere = len(names) < len(members)
    has_name = anywhere or any(f'{name}"'.encode() in body for name in names)
    return has_name and _ADDRESS.search(body) is not None


def lead_members(body: bytes, members: Sequence[Path], way_back: WayBack) -> bytes:
    """The body with rewritten addresses at these members; `body` itself if nothing changes.

    A body that is no JSON does not change.
    """
    if not may_hold(body, members):
        return body
    changes: list[tuple[int, int, bytes]] = []
    for at, start, end in _texts(body):
        if start < 0:
            return body
        if any(_matches(at, member) for member in members):
            led = _rewritten_member(body[start:end], way_back)
            changes.append((start, end, led))
    parts, done = [], 0
    for start, end, led in changes:
        parts += [body[done:start], led]
        done = end
    return b"".join([*parts, body[done:]])


def _texts(body: bytes) -> Iterator[tuple[tuple[str | int, ...], int, int]]:
    """The place, start and end of each text that begins like an address; -1 at a fault."""
    fault = ((), -1, -1)
    steps: _Place = []
    closing: list[bytes] = []
    is_name, name = False, ""
    for token in _TOKEN.finditer(body):
        text = token[0]
        if text in (b"{", b"["):
            closing.append(b"}" if text == b"{" else b"]")
            steps.append(None if text == b"{" else 0)
            is_name = text == b"{"
        elif text in (b"}", b"]"):
            if not closing or closing.pop() != text:
                yield fault
                return
            steps.pop()
            is_name = False
        elif text == b",":
            if not steps:
                yield fault
                return
            last = steps[-1]
            if isinstance(last, int):
                steps[-1] = last + 1
            else:
                is_name = True
        elif text == b":":
            is_name = False
        elif text.startswith(b'"'):
            if is_name:
                name = _text(text)
                steps[-1] = name
            elif _ADDRESS.match(text):
                yield tuple([step for step in steps if step is not None]), *token.span()
    if closing:
        yield fault


def _text(token: bytes) -> str:
    """The text of a JSON string; an invalid string is no member's name."""
    try:
        text = orjson.loads(token) if b"\\" in token else token[1:-1].decode()
    except (UnicodeDecodeError, orjson.JSONDecodeError):
        return ""
    return str(text)


def _rewritten_member(token: bytes, way_back: WayBack) -> bytes:
    url = _text(token)
    led = way_back.lead(url)
    if led == url:
        return token
    written = orjson.dumps(led)
    # Some services escape every slash.
    return written.replace(b"/", rb"\/") if rb"\/" in token else written


def _matches(steps: Sequence[str | int], member: Path) -> bool:
    if not member:
        return not steps
    step, rest = member[0], member[1:]
    if step is ANY_DEPTH:
        return any(_matches(steps[at:], rest) for at in range(len(steps) + 1))
    return bool(steps) and (step is ONE or step == steps[0]) and _matches(steps[1:], rest)
