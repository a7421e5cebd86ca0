"""Reads a YAML text as a JSON value, safely, and finds the line of each value.

It works on the events of PyYAML's parser: nothing builds objects, so a text cannot run code. Size,
depth and the number of documents are bounded. A cassette's tags and aliases are refused; files of
other tools may have both, and what aliases stand for is bounded.
"""

import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple, Protocol

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
    def get_event(self) -> yaml.Event | None: ...


class YamlEvent(NamedTuple):
    """A text, or the start or end of an object or list; lines are counted from 1."""

    kind: Literal["text", "object", "list", "end"]
    text: str
    quoted: bool
    line: int


def events(data: bytes, tags: Tags = NO_TAGS) -> Iterator[YamlEvent]:
    """The events of the one document in a text. Raises FormatFault with the line.

    A tag's function raises ValueError for a text it cannot convert.
    """
    if len(data) > MAX_SIZE:
        reason = f"it has more than {MAX_SIZE >> 20} MiB, too much for YAML: split it, or use JSON"
        raise FormatFault(reason)
    source, plain = _readable(data)
    try:
        yield from _events(PARSER(source), plain, tags)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        reason = f"{exc.problem or exc.context}: this is not YAML"
        raise FormatFault(reason, line=mark.line + 1 if mark else None) from None
    except yaml.YAMLError:
        raise FormatFault("this is not YAML") from None


def _events(parser: "_Parser", plain: Callable[[str], str], tags: Tags) -> Iterator[YamlEvent]:
    documents = 0
    written = _Written(tags.aliases)
    while (event := parser.get_event()) is not None:
        line = event.start_mark.line + 1 if event.start_mark else 1
        match event:
            case yaml.SequenceStartEvent(tag=str(tag)) if tag in tags.texts:
                yield written.text(_only_item(parser, plain, tags.texts[tag], line), event.anchor)
            case yaml.ScalarEvent():
                yield written.text(_text(event, plain(event.value), tags, line), event.anchor)
            case yaml.CollectionEndEvent():
                yield written.end(line)
            case yaml.CollectionStartEvent():
                _refuse_tag(event.tag, tags, line)
                is_object = isinstance(event, yaml.MappingStartEvent)
                opened = YamlEvent("object" if is_object else "list", "", False, line)
                yield written.start(opened, event.anchor)
            case yaml.AliasEvent():
                yield from written.again(event.anchor, line)
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    raise FormatFault("a second document begins: one is read", line=line)


class _Written:
    """The events up to now, which aliases may repeat, and how deep the last of them is."""

    def __init__(self, aliases: bool) -> None:
        self._keeps = aliases
        self._events: list[YamlEvent] = []
        self._anchored: dict[str, slice] = {}
        self._open: list[tuple[str | None, int]] = []
        self._left = _MOST_REPEATED

    def text(self, event: YamlEvent, anchor: str | None) -> YamlEvent:
        self._keep(event)
        if anchor:
            self._anchored[anchor] = slice(len(self._events) - 1, len(self._events))
        return event

    def start(self, event: YamlEvent, anchor: str | None) -> YamlEvent:
        if len(self._open) >= MAX_DEPTH:
            raise FormatFault(f"nested deeper than {MAX_DEPTH} levels", line=event.line)
        self._open.append((anchor, len(self._events)))
        self._keep(event)
        return event

    def end(self, line: int) -> YamlEvent:
        event = YamlEvent("end", "", False, line)
        self._keep(event)
        anchor, start = self._open.pop()
        if anchor:
            self._anchored[anchor] = slice(start, len(self._events))
        return event

    def again(self, anchor: str | None, line: int) -> Iterator[YamlEvent]:
        """The events of the value with this anchor."""
        if not self._keeps or anchor is None or anchor not in self._anchored:
            raise FormatFault("an alias is not read here: write the value in its place", line=line)
        for event in self._events[self._anchored[anchor]]:
            self._left -= len(event.text) + _COST_OF_A_VALUE
            if self._left < 0:
                raise FormatFault("the aliases stand for too much: write the values", line=line)
            repeated = event._replace(line=line)
            match event.kind:
                case "end":
                    yield self.end(line)
                case "text":
                    yield self.text(repeated, None)
                case _:
                    yield self.start(repeated, None)

    def _keep(self, event: YamlEvent) -> None:
        if self._keeps:
            self._events.append(event)


def _only_item(
    parser: "_Parser", plain: Callable[[str], str], read: Callable[[str], str], line: int
) -> YamlEvent:
    """The text that is the only item of the list that has just begun."""
    item, end = parser.get_event(), parser.get_event()
    if not isinstance(item, yaml.ScalarEvent) or not isinstance(end, yaml.SequenceEndEvent):
        raise FormatFault("a tag is read here only before one text: write the text", line=line)
    return YamlEvent("text", read(plain(item.value)), True, line)


def _text(event: yaml.ScalarEvent, text: str, tags: Tags, line: int) -> YamlEvent:
    if (read := tags.texts.get(event.tag or "")) is None:
        _refuse_tag(event.tag, tags, line)
        return YamlEvent("text", text, bool(event.style) or event.tag is not None, line)
    try:
        return YamlEvent("text", read(text), True, line)
    except ValueError as exc:
        raise FormatFault(str(exc), line=line) from None


def _refuse_tag(tag: str | None, tags: Tags, line: int) -> None:
    if tag is not None and not tag.startswith(tags.ignored):
        shown = escape_surrogates(tag.replace("tag:yaml.org,2002:", "!!"))[:_LONGEST_TAG]
        raise FormatFault(f"the tag {shown} is not read: write the value without it", line=line)


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
        try:
            text = held + decoder.decode(data[start:end], end >= len(data))
        except UnicodeDecodeError:
            raise _no_utf8(data) from None
        # What ends a line is not cut in two.
        held = "\r" if text.endswith("\r") and end < len(data) else ""
        if text := text.removesuffix(held):
            yield text


def _no_utf8(data: bytes) -> FormatFault:
    try:
        data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        return FormatFault(f"not UTF-8 at byte {exc.start}", line=line)
    return FormatFault("not UTF-8")


def _readable(data: bytes) -> tuple[_Source, Callable[[str], str]]:
    # Characters that YAML would misread pass the parser as unused private ones and are put back.
    misread: set[str] = set()
    used: set[str] = set()
    for part in _slices(data):
        misread.update(_MISREAD.findall(part))
        used.update(_IS_PRIVATE.findall(part))
    if not misread:
        return _Source(_slices(data)), str
    for start in PRIVATE:
        substitutes = {
            character: chr(start + number) for number, character in enumerate(sorted(misread))
        }
        if used.isdisjoint(substitutes.values()):
            substitute = partial(_MISREAD.sub, partial(_lookup, substitutes))
            back = {ord(substitute): character for character, substitute in substitutes.items()}
            return _Source(map(substitute, _slices(data))), partial(_translated, back)
    raise FormatFault(
        "there is a control character: write it as an escape in quotes", line=_line_of_misread(data)
    )


def _line_of_misread(data: bytes) -> int:
    line = 1
    for part in _slices(data):
        if match := _MISREAD.search(part):
            return line + part.count("\n", 0, match.start())
        line += part.count("\n")
    return line


def _lookup(table: dict[str, str], match: re.Match[str]) -> str:
    return table[match[0]]


def _translated(table: dict[int, str], text: str) -> str:
    return text.translate(table)


def parse(text: bytes, tags: Tags = NO_TAGS, meaning: Callable[[str], Json] = resolve) -> Json:
    """The value. Raises FormatFault with line and reason for one that JSON could not hold.

    A key is its text as written, also `1` or `true`; a repeated key is refused.
    """
    composer = _Composer(meaning)
    for event in events(text, tags):
        composer.take(event)
    return composer.value


def line_of(text: bytes, pointer: Pointer, tags: Tags = NO_TAGS) -> int:
    """The line, from 1, of a value or else of the innermost existing value around the place."""
    best, depth = 1, -1
    for value_pointer, line in _lines(text, tags):
        if len(value_pointer) > depth and pointer[: len(value_pointer)] == value_pointer:
            best, depth = line, len(value_pointer)
    return best


class _Composer:
    def __init__(self, meaning: Callable[[str], Json]) -> None:
        self.value: Json = None
        self._meaning = meaning
        self._open: list[dict[str, Json] | list[Json]] = []
        self._keys: list[str | None] = []

    def take(self, event: YamlEvent) -> None:
        kind, text, quoted, line = event
        if kind == "end":
            self._open.pop()
            self._keys.pop()
        elif self._open and isinstance(self._open[-1], dict) and self._keys[-1] is None:
            self._name(event, self._open[-1])
        elif kind == "text":
            self._put(text if quoted else self._resolved(text, line))
        else:
            container: dict[str, Json] | list[Json] = {} if kind == "object" else []
            self._put(container)
            self._open.append(container)
            self._keys.append(None)

    def _name(self, event: YamlEvent, into: dict[str, Json]) -> None:
        if event.kind != "text":
            raise FormatFault("a key must be text", self._place(), line=event.line)
        if event.text in into:
            pointer = (*self._place(), event.text)
            raise FormatFault("a key occurs twice in one object", pointer, line=event.line)
        self._keys[-1] = event.text

    def _put(self, value: Json) -> None:
        if not self._open:
            self.value = value
            return
        into, key = self._open[-1], self._keys[-1]
        if isinstance(into, list):
            into.append(value)
        elif key is not None:
            into[key] = value
            self._keys[-1] = None

    def _resolved(self, text: str, line: int) -> Json:
        try:
            return self._meaning(text)
        except ValueError as exc:
            raise FormatFault(str(exc), self._place(here=True), line=line) from None

    def _place(self, *, here: bool = False) -> Pointer:
        # A name is in `_keys` only until its value is put; for open containers it is searched.
        pointer: list[str | int] = []
        for outer, inner in zip(self._open, self._open[1:], strict=False):
            if isinstance(outer, list):
                pointer.append(len(outer) - 1)
            else:
                pointer.append(next(name for name, value in outer.items() if value is inner))
        if here and self._open:
            into, key = self._open[-1], self._keys[-1]
            pointer.append(len(into) if key is None else key)
        return tuple(pointer)


def _lines(text: bytes, tags: Tags) -> Iterator[tuple[Pointer, int]]:
    path: list[str | int | None] = []
    key_line = 0
    for kind, value, _, line in events(text, tags):
        if kind == "end":
            path.pop()
            _pass_on(path)
        elif path and path[-1] is None:
            path[-1], key_line = value, line
        else:
            # For people a value on the line below its key is on the line of the key.
            under_key = bool(path) and isinstance(path[-1], str)
            pointer = tuple([step for step in path if step is not None])
            yield pointer, key_line if under_key else line
            if kind == "text":
                _pass_on(path)
            else:
                path.append(None if kind == "object" else 0)


def _pass_on(path: list[str | int | None]) -> None:
    if path:
        last = path[-1]
        path[-1] = last + 1 if isinstance(last, int) else None
