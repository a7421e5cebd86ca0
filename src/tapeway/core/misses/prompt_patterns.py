"""Patterns for opaque values by which two prompts differ: `Session: [0-9]{8}_[0-9a-f]{6}`.

A pattern has literal text beside the value, and is anchored at both ends. It matches neither a
value of that form elsewhere nor a part of a longer word.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

_LONGEST_CONTEXT = 40
_LONGEST_NAME = 32

_SEPARATORS = re.compile(r"([^0-9A-Za-z]+)")
_SIMPLE_SEPARATORS = frozenset("_-")
_LETTERS = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_LETTER = re.compile(r"[^\W\d_]")

_SHORTEST = 6
"""Characters of an opaque value: a shorter one may be a count, a year or a version."""
_CLASSES = (
    *("[0-9]", "[0-9a-f]", "[0-9A-F]", "[0-9a-z]", "[0-9A-Z]", "[0-9A-Za-z]"),
    "[0-9A-Za-z_-]",
)
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])[0-9A-Za-z_-]{16,}")
"""Base64url: `-` and `_` are digits here, at places that differ."""


@dataclass(frozen=True, slots=True)
class NamedPattern:
    """A pattern, and a name for it: the word before the value."""

    name: str
    pattern: str


@dataclass(frozen=True, slots=True)
class _Value:
    """A varying value: the pattern, and whether `\\b` can end the pattern."""

    pattern: str
    ends_in_word: bool


class _Barrier:
    """A placeholder in the texts: no literal text of a pattern may contain a placeholder."""


_BARRIER = _Barrier()
_Part = str | _Value | _Barrier


def prompt_patterns(
    recorded: str, requested: str, placeholders: Collection[str] = ()
) -> tuple[NamedPattern, ...] | None:
    """Patterns under which two texts are equal; None if more than opaque values differ.

    `placeholders` are the names in angle brackets that rules have put in.
    """
    recorded_lines, requested_lines = recorded.split("\n"), requested.split("\n")
    if len(recorded_lines) != len(requested_lines):
        return None
    patterns: list[NamedPattern] = []
    barrier = _barrier_pattern(placeholders)
    for one, other in zip(recorded_lines, requested_lines, strict=True):
        if one == other:
            continue
        parts = _parts_of_line(one, other, barrier)
        if parts is None:
            return None
        for first, last in _groups(parts):
            pattern = _pattern(parts, first, last)
            if pattern is None:
                return None
            patterns.append(pattern)
    return tuple(dict.fromkeys(patterns))


def _barrier_pattern(placeholders: Collection[str]) -> re.Pattern[str] | None:
    return re.compile(f"<(?:{'|'.join(map(re.escape, placeholders))})>") if placeholders else None


def _parts_of_line(one: str, other: str, barrier: re.Pattern[str] | None) -> Sequence[_Part] | None:
    """A line as literal texts, values and barriers, no two literal texts in a row."""
    words, asked = re.split(r"(\s+)", one), re.split(r"(\s+)", other)
    if len(words) != len(asked):
        return None
    literal, parts = "", list[_Part]()
    for word, requested in zip(words, asked, strict=True):
        if word == requested:
            literal += word
            continue
        split = _split_word(word, requested)
        if split is None:
            return None
        before, value, after = split
        parts += [*_literals(literal + before, barrier), value]
        literal = after
    return [*parts, *_literals(literal, barrier)]


def _literals(text: str, barrier: re.Pattern[str] | None) -> Iterator[_Part]:
    pieces = [text] if barrier is None else barrier.split(text)
    for number, piece in enumerate(pieces):
        if number:
            yield _BARRIER
        if piece:
            yield piece


def _split_word(one: str, other: str) -> tuple[str, _Value, str] | None:
    """Two words that differ in an opaque value: the text before, the value, the text after."""
    pieces, asked = _SEPARATORS.split(one), _SEPARATORS.split(other)
    if pieces[1::2] == asked[1::2] and (patterns := _structured(pieces, asked)) is not None:
        return patterns
    before = _up_to_separator(one, other)
    rests = one[len(before) :], other[len(before) :]
    after = _up_to_separator(rests[0][::-1], rests[1][::-1])[::-1]
    values = [rest.removesuffix(after) for rest in rests]
    if not all(map(_RANDOM.fullmatch, values)) or len(values[0]) != len(values[1]):
        return None
    return before, _Value(_class_pattern(*values), ends_in_word=False), after


def _structured(pieces: Sequence[str], asked: Sequence[str]) -> tuple[str, _Value, str] | None:
    """The value of words with equal separators, such as `20261125_160506_ab12cd`."""
    differing = [at for at, piece in enumerate(pieces) if piece != asked[at]]
    first, last = differing[0], differing[-1]
    while first >= 2 and _is_opaque(pieces[first - 2]) and _is_simple(pieces[first - 1]):
        first -= 2
    while last + 2 < len(pieces) and _is_opaque(pieces[last + 2]) and _is_simple(pieces[last + 1]):
        last += 2
    if not _may_vary(pieces, asked, range(first, last + 1)):
        return None
    value = ""
    for at in range(first, last + 1):
        varies = pieces[at] != asked[at] or (at % 2 == 0 and _is_opaque(pieces[at]))
        value += _class_pattern(pieces[at], asked[at]) if varies else escaped(pieces[at])
    return "".join(pieces[:first]), _Value(value, ends_in_word=True), "".join(pieces[last + 1 :])


def _may_vary(pieces: Sequence[str], asked: Sequence[str], places: range) -> bool:
    """Whether some pieces are a machine's value: no word, count or version."""
    pairs = [(pieces[at], asked[at]) for at in places if at % 2 == 0]
    differing = [(one, other) for one, other in pairs if one != other]
    joined = ["".join(side) for side in zip(*pairs, strict=True)]
    if any(len(text) < _SHORTEST or not re.search("[0-9]", text) for text in joined):
        return False
    if not all(_is_simple(pieces[at]) for at in places if at % 2) and not any(
        _is_opaque(one) and _is_opaque(other) for one, other in differing
    ):
        return False
    if all(_HEX.fullmatch("".join(side)) for side in zip(*differing, strict=True)):
        return all(len(one) == len(other) or _have_digits(one, other) for one, other in differing)
    return all(_have_digits(one, other) for one, other in differing)


def _is_opaque(piece: str) -> bool:
    return len(piece) >= _SHORTEST and re.search("[0-9]", piece) is not None


def _is_simple(separator: str) -> bool:
    return separator in _SIMPLE_SEPARATORS


def _have_digits(one: str, other: str) -> bool:
    return bool(re.search("[0-9]", one) and re.search("[0-9]", other))


def _class_pattern(one: str, other: str) -> str:
    """The narrowest class of characters for both, and how many of them."""
    kind = next(letters for letters in _CLASSES if re.fullmatch(f"{letters}*", one + other))
    shorter, longer = sorted((len(one), len(other)))
    return f"{kind}{{{shorter}}}" if shorter == longer else f"{kind}{{{shorter},{longer}}}"


def _up_to_separator(one: str, other: str) -> str:
    """What two words begin with alike, up to the last character that is no letter and no digit."""
    at = 0
    while at < min(len(one), len(other)) and one[at] == other[at]:
        at += 1
    while at and one[at - 1].isalnum():
        at -= 1
    return one[:at]


def _groups(parts: Sequence[_Part]) -> Iterator[tuple[int, int]]:
    """The first and the last value of each group that no word divides."""
    values = [at for at, part in enumerate(parts) if isinstance(part, _Value)]
    first = last = values[0]
    for at in values[1:]:
        between = parts[last + 1 : at]
        if any(isinstance(piece, _Barrier) or _LETTER.search(_text(piece)) for piece in between):
            yield first, last
            first = at
        last = at
    yield first, last


def _text(part: _Part) -> str:
    return part if isinstance(part, str) else ""


def _pattern(parts: Sequence[_Part], first: int, last: int) -> NamedPattern | None:
    """The pattern of a group of values; None where no word stands beside it."""
    value = "".join(
        [
            part.pattern if isinstance(part, _Value) else escaped(_text(part))
            for part in parts[first : last + 1]
        ]
    )
    before = _text(parts[first - 1]) if first else ""
    after = _text(parts[last + 1]) if last + 1 < len(parts) else ""
    context = _end_of(before)
    if _LETTER.search(context):
        start = "(?m)^" if first == 1 and context == before else _start(before, context)
        pattern = start + escaped(context) + value + _end(parts, last, after)
        return NamedPattern(_name(context), pattern)
    following = _beginning_of(after)
    # Without a word before, the value must begin the line.
    if not _LETTER.search(following) or any(part != before for part in parts[:first]):
        return None
    pattern = f"(?m)^{escaped(before)}{value}{escaped(following)}{_edge(following[-1])}"
    return NamedPattern(_name(following), pattern)


def _start(before: str, context: str) -> str:
    cut = before.removesuffix(context)[-1:]
    return "" if _edge(cut) else _edge(context[0])


def _end(parts: Sequence[_Part], last: int, after: str) -> str:
    value = parts[last]
    if isinstance(value, _Value) and value.ends_in_word:
        return r"\b"
    return escaped(after[0]) if after else "(?m:$)"


def _edge(character: str) -> str:
    # RE2 knows only the words of ASCII.
    return r"\b" if re.fullmatch("[0-9A-Za-z_]", character) else ""


def _end_of(text: str) -> str:
    """The last words of a text."""
    if len(text) <= _LONGEST_CONTEXT:
        return text
    cut = text[-_LONGEST_CONTEXT:]
    words = cut.partition(" ")[2]
    return words if _LETTER.search(words) else cut


def _beginning_of(text: str) -> str:
    """The first words of a text."""
    if len(text) <= _LONGEST_CONTEXT:
        return text.rstrip()
    cut = text[:_LONGEST_CONTEXT]
    words = cut.rpartition(" ")[0]
    return words if _LETTER.search(words) else cut


def _name(context: str) -> str:
    words = _LETTERS.findall(context)
    return words[-1].lower()[:_LONGEST_NAME] if words else "id"


def escaped(text: str) -> str:
    """A pattern that matches exactly the text."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)
