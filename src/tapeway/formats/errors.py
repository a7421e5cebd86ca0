"""The error for a text that is no valid file of a format, with the line and place of the fault."""

import json
import math
import re
from collections.abc import Iterator

from tapeway.core.json_text import MAX_DEPTH, NotJson, Pointer
from tapeway.core.text import escape_surrogates, is_utf8

_LEXEME = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_PLACED = re.compile(r"line (\d+) column \d+: (.*)", re.DOTALL)


_BOM = b"\xef\xbb\xbf"
_BOMS_OF_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_MOST_STEPS = 16
_LAST_STEPS = 3
_LONGEST_STEP = 80


class FormatFault(ValueError):
    """The text is not a valid file: the reason, the place in the text, and the line if known.

    `advice` says what to do instead of a repair of the file.
    """

    def __init__(
        self, reason: str, pointer: Pointer = (), *, line: int | None = None, advice: str = ""
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.pointer = pointer
        self.line = line
        self.advice = advice

    def on_line(self, line: int) -> "FormatFault":
        """The fault with a line."""
        return FormatFault(self.reason, self.pointer, line=line, advice=self.advice)

    def __str__(self) -> str:
        return ": ".join(filter(None, (pointer_text(self.pointer), self.reason, self.advice)))


def pointer_text(pointer: Pointer) -> str:
    """A pointer as text: `interactions[3].response`; a long pointer without the middle."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{_shortened(step)}" for step in pointer]
    if len(steps) > _MOST_STEPS:
        steps[_MOST_STEPS - _LAST_STEPS : -_LAST_STEPS] = [" … "]
    return "".join(steps).removeprefix(".")


def without_bom(text: bytes) -> bytes:
    """The text without the byte order mark that some editors and tools begin UTF-8 with."""
    return text.removeprefix(_BOM)


def line_of(text: bytes, pointer: Pointer) -> int:
    """The line in a JSON text, from 1, of a value or of the innermost existing value around."""
    decoded = text.decode("utf-8")
    best, depth = 0, -1
    for value_pointer, offset, _ in _values(decoded):
        if len(value_pointer) > depth and pointer[: len(value_pointer)] == value_pointer:
            best, depth = offset, len(value_pointer)
    return decoded.count("\n", 0, best) + 1


def explain(text: bytes, refused: NotJson) -> FormatFault:
    """The fault for a JSON text that the parser refused, with the line of the refused part."""
    if text.startswith((_BOM, *_BOMS_OF_UTF_16)):
        mark = "a byte order mark" if text.startswith(_BOM) else "the byte order mark of UTF-16"
        return FormatFault(f"begins with {mark}: save it as UTF-8 without one", line=1)
    reason = str(refused)
    if placed := _PLACED.fullmatch(reason):
        return FormatFault(f"{placed[2]}: this is not JSON", line=int(placed[1]))
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as exc:
        return FormatFault(reason, line=text.count(b"\n", 0, exc.start) + 1)
    seen: set[Pointer] = set()
    for value_pointer, offset, lexeme in _values(decoded):
        if value_pointer in seen or len(value_pointer) >= MAX_DEPTH or _is_refused(lexeme):
            return FormatFault(reason, value_pointer, line=decoded.count("\n", 0, offset) + 1)
        seen.add(value_pointer)
    return FormatFault(reason)


def _shortened(step: str) -> str:
    return escape_surrogates(step if len(step) <= _LONGEST_STEP else f"{step[:_LONGEST_STEP]}…")


def _is_refused(lexeme: str) -> bool:
    if lexeme in "{[":
        return False
    try:
        value = json.loads(lexeme)
    except ValueError:
        return True
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, str) and not is_utf8(value)


def _values(text: str) -> Iterator[tuple[Pointer, int, str]]:
    """Each value with place and offset. The last value may be a text that is not JSON at all."""
    steps: list[str | int] = []
    key: str | None = None
    for match in _LEXEME.finditer(text):
        lexeme = match[0]
        inside = steps[-1] if steps else None
        if lexeme in "}]":
            if not steps:
                yield (), match.start(), lexeme
                return
            steps.pop()
        elif lexeme == ",":
            if isinstance(inside, int):
                steps[-1] = inside + 1
            else:
                key = None
        elif lexeme == ":":
            pass
        elif isinstance(inside, str) and key is None:
            try:
                key = str(json.loads(lexeme))
            except ValueError:
                yield tuple(steps[:-1]), match.start(), lexeme
                return
            steps[-1] = key
        else:
            yield tuple(steps), match.start(), lexeme
            if lexeme in "{[":
                steps.append("" if lexeme == "{" else 0)
                key = None
