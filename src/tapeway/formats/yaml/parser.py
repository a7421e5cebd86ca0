"""Reads a YAML text as a JSON value, safely, and finds the line of each value.

It works on the events of PyYAML's parser: nothing builds objects, so a text cannot run code. Size,
depth and the number of documents are bounded. A cassette's tags and aliases are refused; files of
other tools may have both, and what aliases stand for is bounded.
"""

import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import yaml

from tapeway.core.json_text import MAX_DEPTH, Json, Pointer
from tapeway.core.text import escape_surrogates
from tapeway.formats.errors import FormatFault
from tapeway.formats.yaml.scalars import resolve

MAX_SIZE = 256 * 1024 * 1024
"""A larger text is refused: it would take gigabytes of memory and minutes."""

# libyaml is five times as fast as PyYAML's own parser, and not compiled in everywhere.
PARSER: "Callable[[_Source], _Parser]" = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

# YAML forbids these or, before 1.2, takes them for line breaks; AgentTape writes them unescaped.
_MISREAD = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|\r(?!\n)"
)
PRIVATE = (0xF0000, 0xF8000, 0x100000, 0x108000)
_IS_PRIVATE = re.compile("[\U000f0000-\U0010ffff]")
_MOST_REPEATED = 64 * 1024 * 1024
"""So many characters aliases may stand for: a few lines could stand for gigabytes."""
_COST_OF_A_VALUE = 64
_LONGEST_TAG = 80
SLICE = 256 * 1024
"""Decoded or searched as a whole, a large text would keep other threads waiting."""


@dataclass(frozen=True, slots=True)
class Tags:
    """What a file of another tool may have beside plain YAML.

    `texts` are tags with the function that converts the text after each. The text may be the only
    item of a list: so PyYAML writes an object that is made from a text. `ignored` are beginnings of
    tags that change nothing.
    """

    texts: Mapping[str, Callable[[str], str]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    aliases: bool = False


NO_TAGS = Tags()


class _Parser(Protocol):
    def get_event(self) -> Any: ...


def parse(text: bytes, tags: Tags = NO_TAGS, meaning: Callable[[str], Json] = resolve) -> Json:
    """The value. Raises FormatFault with line and reason for one that JSON could not hold.

    A key is its text as written, also `1` or `true`; a repeated key is refused. `meaning` is the value
    of a text without quotes. The functions of tags, and `meaning`, raise ValueError for a text without
    a value.
    """
    return _Reader(text, tags, meaning).document()


def line_of(text: bytes, pointer: Pointer, tags: Tags = NO_TAGS) -> int:
    """The line, from 1, of a value or else of the innermost existing value around the place."""
    reader = _Reader(text, tags, str, pointer)
    reader.document()
    return reader.found[1]


_Text = tuple[str, bool]
"""A text, and whether it stands for itself, as one in quotes does."""
_Container = dict[str, Json] | list[Json]


class _Reader:
    """Builds the value of the one document in a text while the parser goes through it."""

    def __init__(
        self,
        data: bytes,
        tags: Tags,
        meaning: Callable[[str], Json],
        wanted: Pointer | None = None,
    ) -> None:
        self.found = (-1, 1)
        """The depth and line of the innermost value around the wanted place."""
        if len(data) > MAX_SIZE:
            reason = (
                f"it has more than {MAX_SIZE >> 20} MiB, too much for YAML: split it, or use JSON"
            )
            raise FormatFault(reason)
        source, self._plain = _readable(data)
        self._parser = PARSER(source)
        self._tags = tags
        self._meaning = meaning
        self._wanted = wanted
        self._line = 1
        self._place: list[str | int] = []
        self._anchored: dict[str | None, _Text | _Container] = {}
        self._left = _MOST_REPEATED

    def document(self) -> Json:
        """The value, null without a document."""
        value: Json = None
        documents = 0
        try:
            while not isinstance(event := self._next(), yaml.StreamEndEvent):
                if isinstance(event, yaml.DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        raise self._fault("a second document begins: one is read")
                elif isinstance(event, yaml.NodeEvent):
                    value = self._value(event, self._line)
        except yaml.MarkedYAMLError as exc:
            mark = exc.problem_mark or exc.context_mark
            reason = f"{exc.problem or exc.context}: this is not YAML"
            raise FormatFault(reason, line=mark.line + 1 if mark else None) from None
        except yaml.YAMLError:
            raise FormatFault("this is not YAML") from None
        return value

    def _next(self) -> Any:
        event = self._parser.get_event()
        if event.start_mark:
            self._line = event.start_mark.line + 1
        return event

    def _value(self, event: Any, line: int) -> Json:
        if self._wanted is not None:
            self._look(self._wanted, line)
        if (text := self._text(event)) is not None:
            try:
                return text[0] if text[1] else self._meaning(text[0])
            except ValueError as exc:
                raise self._fault(str(exc), tuple(self._place)) from None
        if isinstance(event, yaml.AliasEvent):
            return self._repeated(self._anchored_by(event), len(self._place))
        self._refuse_tag(event.tag)
        self._refuse_depth(len(self._place))
        is_object = isinstance(event, yaml.MappingStartEvent)
        value: _Container = self._object() if is_object else self._list()
        self._keep(event, value)
        return value

    def _object(self) -> dict[str, Json]:
        value: dict[str, Json] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            # For people a value on the line below its key is on the line of the key.
            line, key = self._line, self._text(event)
            if key is None:
                raise self._fault("a key must be text", tuple(self._place))
            self._place.append(key[0])
            if key[0] in value:
                raise self._fault("a key occurs twice in one object", tuple(self._place))
            value[key[0]] = self._value(self._next(), line)
            self._place.pop()
        return value

    def _list(self) -> list[Json]:
        value: list[Json] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            self._place.append(len(value))
            value.append(self._value(event, self._line))
            self._place.pop()
        return value

    def _text(self, event: Any) -> _Text | None:
        """The text that an event is or begins."""
        if isinstance(event, yaml.ScalarEvent):
            text = self._scalar(event)
        elif isinstance(event, yaml.AliasEvent):
            anchored = self._anchored_by(event)
            if not isinstance(anchored, tuple):
                return None
            self._spend(anchored[0])
            return anchored
        elif isinstance(event, yaml.SequenceStartEvent) and event.tag in self._tags.texts:
            item, end = self._next(), self._next()
            if not isinstance(item, yaml.ScalarEvent) or not isinstance(end, yaml.SequenceEndEvent):
                raise self._fault("a tag is read here only before one text: write the text")
            text = self._read(self._tags.texts[event.tag or ""], item.value)
        else:
            return None
        self._keep(event, text)
        return text

    def _scalar(self, event: yaml.ScalarEvent) -> _Text:
        if (read := self._tags.texts.get(event.tag or "")) is None:
            self._refuse_tag(event.tag)
            return self._plain(event.value), bool(event.style) or event.tag is not None
        return self._read(read, event.value)

    def _read(self, read: Callable[[str], str], text: str) -> _Text:
        try:
            return read(self._plain(text)), True
        except ValueError as exc:
            raise self._fault(str(exc)) from None

    def _keep(self, event: Any, value: _Text | _Container) -> None:
        if event.anchor and self._tags.aliases:
            self._anchored[event.anchor] = value

    def _anchored_by(self, alias: yaml.AliasEvent) -> Any:
        if alias.anchor in self._anchored:
            return self._anchored[alias.anchor]
        raise self._fault("an alias is not read here: write the value in its place")

    def _repeated(self, value: Json, depth: int) -> Json:
        """A copy of a value that is not only text, so that all values together stay a tree."""
        match value:
            case list():
                self._refuse_depth(depth)
                copy: Json = [self._repeated(item, depth + 1) for item in value]
            case dict():
                self._refuse_depth(depth)
                copy = {key: self._repeated(item, depth + 1) for key, item in value.items()}
            case _:
                copy = value
        self._spend(value)
        return copy

    def _spend(self, value: Json) -> None:
        texts = value if isinstance(value, dict) else [value] if isinstance(value, str) else []
        self._left -= _COST_OF_A_VALUE + sum(map(len, texts))
        if self._left < 0:
            raise self._fault("the aliases stand for too much: write the values")

    def _look(self, wanted: Pointer, line: int) -> None:
        depth = len(self._place)
        if depth > self.found[0] and tuple(self._place) == wanted[:depth]:
            self.found = depth, line

    def _refuse_depth(self, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise self._fault(f"nested deeper than {MAX_DEPTH} levels")

    def _refuse_tag(self, tag: str | None) -> None:
        if tag is not None and not tag.startswith(self._tags.ignored):
            shown = escape_surrogates(tag.replace("tag:yaml.org,2002:", "!!"))[:_LONGEST_TAG]
            raise self._fault(f"the tag {shown} is not read: write the value without it")

    def _fault(self, reason: str, pointer: Pointer = ()) -> FormatFault:
        return FormatFault(reason, pointer, line=self._line)


class _Source:
    """The text as PyYAML reads it: in slices, of any size."""

    def __init__(self, slices: Iterator[str]) -> None:
        self._slices = slices

    def read(self, _size: int = 0, /) -> str:
        return next(self._slices, "")


def _slices(data: bytes) -> Iterator[str]:
    decoder = getincrementaldecoder("utf-8-sig")()
    held = ""
    for start in range(0, len(data), SLICE):
        end = start + SLICE
        text = held + decoder.decode(data[start:end], end >= len(data))
        # What ends a line is not cut in two.
        held = "\r" if text.endswith("\r") and end < len(data) else ""
        if text := text.removesuffix(held):
            yield text


def _readable(data: bytes) -> tuple[_Source, Callable[[str], str]]:
    # Characters that YAML would misread pass the parser as unused private ones and are put back.
    misread: set[str] = set()
    used: set[str] = set()
    try:
        for part in _slices(data):
            misread.update(_MISREAD.findall(part))
            used.update(_IS_PRIVATE.findall(part))
    except UnicodeDecodeError:
        raise _no_utf8(data) from None
    if not misread:
        return _Source(_slices(data)), str
    choices = ([chr(start + number) for number in range(len(misread))] for start in PRIVATE)
    unused = next((choice for choice in choices if used.isdisjoint(choice)), None)
    if unused is None:
        reason = "there is a control character: write it as an escape in quotes"
        raise FormatFault(reason, line=_line_of_misread(data))
    substitutes = dict(zip(sorted(misread), unused, strict=True))
    back = {ord(substitute): character for character, substitute in substitutes.items()}
    disguised = (_MISREAD.sub(lambda match: substitutes[match[0]], part) for part in _slices(data))
    return _Source(disguised), lambda text: text.translate(back)


def _no_utf8(data: bytes) -> FormatFault:
    try:
        data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        return FormatFault(f"not UTF-8 at byte {exc.start}", line=line)
    return FormatFault("not UTF-8")


def _line_of_misread(data: bytes) -> int:
    line = 1
    for part in _slices(data):
        if match := _MISREAD.search(part):
            return line + part.count("\n", 0, match.start())
        line += part.count("\n")
    return line
