"""Values that several requests of a cassette have in common, written once in the file.

Every turn of an agent repeats the prompt, the tools and the messages before. In the file a later
request names the earlier request with the values in the same place:

    "json": {
      "model": "m",
      "system": "as in #0 (7a08c1d2)",
      "tools": [{"name": "Read"}, "items 1 to the last as in #0 (90f572c9)"],
      "messages": ["the first 3 as in #1 (51b2c8d0)", {"role": "user", "content": "And now?"}]
    },
    "shared": ["system", "tools", "messages"]

A reference stands for a whole value, at any depth, or for items of a list, numbered from 0.
`shared` lists the members of `json` that have references; a reference that was edited to anything
else counts as edited. `#0` is the index of the earlier interaction. The digits begin the SHA-256 of
the value when the file was written: where indexes were changed without tapeway, the digits find the
interaction. Where no earlier request has the value any more, the earlier request was edited, and
the edit counts for the later request too.

Everywhere else than in the file, documents are whole.
"""

import re
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TypeVar

from tapeway.core.digests import sha256
from tapeway.core.json_text import Json, Pointer, dump
from tapeway.formats.errors import FormatFault, pointer_text
from tapeway.formats.fields import Document, Fields

NAME = "shared"
"""The field beside `json`."""

_SMALLEST = 1024
"""Smaller values are repeated, and easier to read in place."""
_REMEMBERED = 20_000
"""How many values and items of lists are looked up, the latest first: memory does not grow with the
cassette."""
_DIGEST_BYTES = 32
_TRIED = 4
"""How many of the latest lists with an item are compared with the list to write."""

_WHOLE = re.compile(r"as in #(\d{1,15}) \(([0-9a-f]{8})\)")
_ITEMS = re.compile(
    r"(?:the first (\d{1,9})|items? (\d{1,9})( to \d{1,9}| to the last)?)"
    r" as in #(\d{1,15}) \(([0-9a-f]{8})\)"
)
_LIKE_A_REFERENCE = re.compile(rb'as in #\d{1,15} \([0-9a-f]{8}\)"')


T = TypeVar("T")


OWN_KINDS = ("http", "websocket")
"""Kinds of interactions that tapeway records."""


def is_own(document: Document) -> bool:
    """Whether tapeway recorded an interaction's document; other documents are kept as found."""
    request = document.get("request")
    # Asked of each document, and a pattern takes longer.
    return (
        isinstance(request, dict)
        and isinstance(request.get("route"), str)
        and document.get("kind") in OWN_KINDS
    )


class _List:
    """The marks of each item of a list in the request with a given index."""

    def __init__(self, index: int, items: list[bytes]) -> None:
        self.index = index
        self.items = items

    @cached_property
    def first(self) -> dict[bytes, int]:
        """Where each item is for the first time."""
        places: dict[bytes, int] = {}
        for position, item in enumerate(self.items):
            places.setdefault(item, position)
        return places


@dataclass(frozen=True, slots=True)
class _Run:
    """Items `start` to before `stop` of an earlier list."""

    earlier: _List
    start: int
    stop: int

    def reference(self, text: bytes, *, at_the_end: bool) -> str:
        """The reference for the items, given with the text of the items as a list."""
        if at_the_end and self.stop == len(self.earlier.items):
            what = f"items {self.start} to the last"
        elif self.start == 0:
            what = f"the first {self.stop}"
        elif self.stop == self.start + 1:
            what = f"item {self.start}"
        else:
            what = f"items {self.start} to {self.stop - 1}"
        return f"{what} as in #{self.earlier.index} ({_digits(text)})"


class PartSharer:
    """Writes the documents of a file, given in order."""

    def __init__(self) -> None:
        self._index = 0
        # Where a whole value was first, by its place and digest.
        self._values: OrderedDict[tuple[Pointer, bytes], int] = OrderedDict()
        # The latest lists that have an item, by the place of the list and the item's digest.
        self._lists: OrderedDict[tuple[Pointer, bytes], tuple[_List, ...]] = OrderedDict()

    def shared(self, index: int, document: Document) -> Document:
        """The document with references to earlier documents; the very object without any."""
        request = document.get("request")
        if not isinstance(request, dict) or NAME in request or not is_own(document):
            return document
        value = request.get("json")
        # A text of the body that looks like a reference would be read as a reference.
        if not isinstance(value, dict) or _LIKE_A_REFERENCE.search(dump(value)):
            return document
        self._index = index
        written = {
            name: self._written((name,), member, dump(member)) for name, member in value.items()
        }
        names: list[Json] = [name for name in value if written[name] is not value[name]]
        if not names:
            return document
        fields: Document = {}
        for name, member in request.items():
            fields[name] = written if name == "json" else member
            if name == "json":
                fields[NAME] = names
        return {**document, "request": fields}

    def _written(self, at: Pointer, value: Json, text: bytes) -> Json:
        """The value of a text with references; the very object without any."""
        if len(text) < _SMALLEST or not isinstance(value, dict | list | str):
            return value
        digest = sha256(text)
        index = self._values.setdefault((at, digest.digest()), self._index)
        _forget(self._values)
        if index != self._index:
            return f"as in #{index} ({digest.hexdigest()[:8]})"
        if isinstance(value, list) and isinstance(value[0], dict | list):
            return self._list(at, value)
        if isinstance(value, dict):
            members = {
                name: self._written((*at, name), member, dump(member))
                for name, member in value.items()
            }
            return value if all(members[name] is value[name] for name in value) else members
        return value

    def _list(self, at: Pointer, items: list[Json]) -> Json:
        texts = [dump(element) for element in items]
        own = _List(self._index, [_identity(text) for text in texts])
        references: list[Json] = []
        position, changed = 0, False
        while position < len(items):
            run = self._longest(at, own.items, position)
            stop = position + (run.stop - run.start if run else 1)
            text = b"" if run is None else b"[%b]" % b",".join(texts[position:stop])
            if run is not None and len(text) >= _SMALLEST:
                references.append(run.reference(text, at_the_end=stop == len(items)))
                changed = True
            else:
                # Items of a run that is too short are not searched for once more, singly.
                for number in range(position, stop):
                    item = items[number]
                    if len(texts[number]) >= _SMALLEST:
                        item = self._written((*at, number), item, texts[number])
                        changed = changed or item is not items[number]
                    references.append(item)
            position = stop
        # Values that would be forgotten at once are not remembered.
        for digest in islice(own.first, max(0, len(own.first) - _REMEMBERED), None):
            before = self._lists.get((at, digest), ())
            self._lists[at, digest] = (*before, own)[-_TRIED:]
        _forget(self._lists)
        return references if changed else items

    def _longest(self, at: Pointer, items: list[bytes], position: int) -> _Run | None:
        """The most items from a position on that follow each other in an earlier list."""
        best: _Run | None = None
        for earlier in self._lists.get((at, items[position]), ()):
            start = stop = earlier.first[items[position]]
            most = min(len(earlier.items) - start, len(items) - position)
            while stop - start < most and earlier.items[stop] == items[position + stop - start]:
                stop += 1
            # Of equal ones the latest, whose number the turns before have too.
            if best is None or stop - start >= best.stop - best.start:
                best = _Run(earlier, start, stop)
        return best


def _forget(remembered: OrderedDict[tuple[Pointer, bytes], T]) -> None:
    # The first item of a plain dict is found only behind the places of all removed items.
    while len(remembered) > _REMEMBERED:
        remembered.popitem(last=False)


def _identity(text: bytes) -> bytes:
    """A text of at most a digest's length, or its digest."""
    return text if len(text) < _DIGEST_BYTES else sha256(text).digest()


def _digits(text: bytes) -> str:
    return sha256(text).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class _Reference:
    """A value of an earlier request, or items of the list there: all after `start` without a stop."""

    index: int
    digits: str
    start: int | None = None
    stop: int | None = None

    @classmethod
    def whole(cls, text: Json) -> "_Reference | None":
        match = _WHOLE.fullmatch(text) if isinstance(text, str) else None
        return cls(int(match[1]), match[2]) if match else None

    @classmethod
    def items(cls, text: Json) -> "_Reference | None":
        match = _ITEMS.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            return None
        first, start, to, index, digits = match.groups()
        if first:
            return cls(int(index), digits, 0, int(first))
        last = (to or f" to {start}").removeprefix(" to ")
        stop = None if last == "the last" else int(last) + 1
        return cls(int(index), digits, int(start), stop)

    def of(self, value: Json) -> Json:
        """The referenced part within the value in place; None where missing."""
        if self.start is None:
            return value
        if not isinstance(value, list) or len(value) < (self.stop or self.start):
            return None
        return value[self.start : self.stop]

    @property
    def what(self) -> str:
        """For an error message."""
        if self.start is None:
            return ""
        return f" with {f'{self.stop} items' if self.stop else f'an item {self.start}'}"


class HasReferences(Exception):
    """A request has references, and earlier requests were not kept for it."""


class EarlierRequests:
    """Makes the documents of a file whole, given in order."""

    def __init__(self, *, keeps: bool = True) -> None:
        """A file without references needs none of its requests kept."""
        self._keeps = keeps
        self._bodies: dict[int, Document] = {}
        """The whole bodies of the requests so far, by the index of the interaction."""
        self._known: dict[tuple[int, Pointer, int | None, int | None], str] = {}

    def whole(self, index: int, document: Document, position: int) -> Document:
        """A document by tapeway with the values of its references, or the very object without any.

        Raises FormatFault for a reference to a value that no earlier request has.
        """
        request = document["request"]
        if not isinstance(request, dict) or not isinstance(body := request.get("json"), dict):
            return document
        if NAME in request:
            if not self._keeps:
                raise HasReferences
            body = self._restored(body, Fields(request, ("interactions", position, "request")))
            others = {name: member for name, member in request.items() if name != NAME}
            document = {**document, "request": {**others, "json": body}}
        if self._keeps:
            self._bodies.setdefault(index, body)
        return document

    def _restored(self, value: Document, request: Fields) -> Document:
        document = dict(value)
        for name in request.texts(NAME):
            if name not in value:
                raise request.fault(NAME, f"'json' has no '{name}'")
            document[name] = self._resolved((name,), value[name], (*request.at, "json", name))
        return document

    def _resolved(self, at: Pointer, written: Json, place: Pointer) -> Json:
        if isinstance(written, dict):
            return {
                name: self._resolved((*at, name), member, (*place, name))
                for name, member in written.items()
            }
        if isinstance(written, list):
            restored: list[Json] = []
            for position, item in enumerate(written):
                if (items := _Reference.items(item)) is None:
                    restored.append(self._resolved((*at, len(restored)), item, (*place, position)))
                elif isinstance(meant := self._meant(at, items, (*place, position)), list):
                    restored += meant
            return restored
        named = _Reference.whole(written)
        return written if named is None else self._meant(at, named, place)

    def _meant(self, at: Pointer, named: _Reference, place: Pointer) -> Json:
        """The value that a reference stands for. Raises FormatFault."""
        index = named.index
        if self._digits_of(index, at, named) != named.digits:
            others = (
                other for other in self._bodies if self._digits_of(other, at, named) == named.digits
            )
            index = next(others, index)
        if (part := self._part(index, at, named)) is None:
            where = pointer_text(at)
            raise FormatFault(
                f"no request before it has the number {index} and '{where}'{named.what}: "
                "restore that one, or write here what is meant",
                place,
            )
        return part

    def _part(self, index: int, at: Pointer, named: _Reference) -> Json:
        part: Json = self._bodies.get(index)
        for step in at:
            match part:
                case dict() if isinstance(step, str):
                    part = part.get(step)
                case list() if isinstance(step, int) and step < len(part):
                    part = part[step]
                case _:
                    return None
        return named.of(part)

    def _digits_of(self, index: int, at: Pointer, named: _Reference) -> str:
        key = index, at, named.start, named.stop
        if key not in self._known:
            part = self._part(index, at, named)
            self._known[key] = "" if part is None else _digits(dump(part))
        return self._known[key]
