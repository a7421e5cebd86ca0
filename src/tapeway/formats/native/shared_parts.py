"""Values that several requests of a cassette have in common, written once in its file.

Every turn of an agent repeats its prompt, its tools and the messages so far. In the file a later
request names the earlier one that has them:

    "json": {
      "model": "m",
      "tools": "as in #0 (7a08c1d2)",
      "messages": ["the first 3 as in #0 (51b2c8d0)", {"role": "user", "content": "And now?"}]
    },
    "shared": ["tools", "messages"]

`shared` lists the members of `json` that are such texts; one that was edited to anything else counts
as it stands. The number is that of the earlier interaction, the digits begin the SHA-256 of what it
had when the file was written: where numbers were changed without tapeway, they say which one is
meant. Where no earlier request has that any more, it was edited, and the edit counts here too.

Everywhere else than in the file, documents are whole.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tapeway.core.json_text import Json, dump
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document, Fields, as_object

NAME = "shared"
"""The field beside `json`."""

_SMALLEST = 1024
"""Smaller values are repeated: they are easier to read in their place."""
_REMEMBERED = 20_000
"""So many values are looked up, the latest ones: memory does not grow with the cassette."""

_WHOLE = re.compile(r"as in #(\d{1,15}) \(([0-9a-f]{8})\)")
_FIRST = re.compile(r"the first (\d{1,9}) as in #(\d{1,15}) \(([0-9a-f]{8})\)")


@dataclass(frozen=True, slots=True)
class _Place:
    """A value of an earlier request, or the first `count` items of a list that has more."""

    index: int
    count: int | None = None


def is_own(document: Document) -> bool:
    """Whether an interaction's document is of tapeway's own recording; others are kept as found."""
    match document:
        case {"kind": "http", "request": {"route": str()}}:
            return True
        case _:
            return False


class PartSharer:
    """Writes the documents of one file, given in its order."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, bytes], _Place] = {}

    def shared(self, index: int, document: Document) -> Document:
        """The document with references for what earlier ones have; the same object without any."""
        request = document.get("request")
        if not isinstance(request, dict) or NAME in request or not is_own(document):
            return document
        if not isinstance(value := request.get("json"), dict):
            return document
        replaced = dict(self._references(index, value))
        if not replaced:
            return document
        fields: Document = {}
        for name, each in request.items():
            fields[name] = {**value, **replaced} if name == "json" else each
            if name == "json":
                fields[NAME] = [*replaced]
        return {**document, "request": fields}

    def _references(self, index: int, value: Document) -> Iterator[tuple[str, Json]]:
        for name, member in value.items():
            if isinstance(member, list) and member and isinstance(member[0], dict):
                found = self._list_reference(index, name, member)
            elif isinstance(member, dict | list | str):
                found = self._reference(index, name, member)
            else:
                found = None
            if found is not None:
                yield name, found

    def _reference(self, index: int, name: str, value: Json) -> Json:
        text = dump(value)
        if len(text) < _SMALLEST:
            return None
        digest = hashlib.sha256(text)
        place = self._place(name, digest.digest(), _Place(index))
        return None if place is None else f"as in #{place.index} ({digest.hexdigest()[:8]})"

    def _list_reference(self, index: int, name: str, items: list[Json]) -> Json:
        """A reference for the whole list, or a list that begins with one for its first items."""
        common: tuple[int, _Place, str] | None = None
        for count, digest in _prefixes(items):
            whole = count == len(items)
            place = self._place(name, digest, _Place(index, None if whole else count))
            if place is not None:
                common = count, place, digest.hex()[:8]
        if common is None:
            return None
        count, place, digits = common
        if count == len(items) and place.count is None:
            return f"as in #{place.index} ({digits})"
        return [f"the first {count} as in #{place.index} ({digits})", *items[count:]]

    def _place(self, name: str, digest: bytes, own: _Place) -> _Place | None:
        """Where an earlier request has it; None where this is the first, which is remembered."""
        key = name, digest
        found = self._places.get(key)
        if found is None:
            self._places[key] = own
            if len(self._places) > _REMEMBERED:
                del self._places[next(iter(self._places))]
        return found


def gathered(documents: Iterable[tuple[int, Fields]]) -> Iterator[Document]:
    """The documents of a file, given with their indexes, each made whole.

    Raises FormatFault for a reference to what no earlier request has.
    """
    requests = _EarlierRequests()
    for index, fields in documents:
        document = dict(fields.values)
        request = document.get("request")
        if isinstance(request, dict) and is_own(document):
            value = request.get("json")
            if NAME in request and isinstance(value, dict):
                value = requests.whole(value, Fields(request, (*fields.at, "request")))
                whole = {name: each for name, each in request.items() if name != NAME}
                document["request"] = {**whole, "json": value}
            if isinstance(value, dict):
                requests.add(index, value)
        yield document


class _EarlierRequests:
    """The bodies of the requests before one, whole, by the index of their interactions."""

    def __init__(self) -> None:
        self._bodies: dict[int, Document] = {}
        self._digits: dict[tuple[int, str, int | None], str] = {}

    def add(self, index: int, body: Document) -> None:
        self._bodies.setdefault(index, body)

    def whole(self, value: Document, request: Fields) -> Document:
        """The body with what its references mean. Raises FormatFault."""
        found = dict(value)
        for name in request.texts(NAME):
            if name not in value:
                raise request.fault(NAME, f"'json' has no '{name}'")
            found[name] = self._member(name, value[name], (*request.at, "json", name))
        return found

    def _member(self, name: str, written: Json, at: tuple[str | int, ...]) -> Json:
        match written:
            case str() if named := _WHOLE.fullmatch(written):
                return self._value(name, int(named[1]), named[2], None, at)
            case [str() as first, *rest] if named := _FIRST.fullmatch(first):
                begun = self._value(name, int(named[2]), named[3], int(named[1]), (*at, 0))
                return [*begun, *rest] if isinstance(begun, list) else written
            case _:
                return written

    def _value(
        self, name: str, index: int, digits: str, count: int | None, at: tuple[str | int, ...]
    ) -> Json:
        if self._digits_of(index, name, count) != digits:
            others = (each for each in self._bodies if self._digits_of(each, name, count) == digits)
            index = next(others, index)
        if (found := self._part(index, name, count)) is None:
            what = f"'{name}'" if count is None else f"a list '{name}' of {count} items"
            raise FormatFault(
                f"no request before it has the number {index} and {what}: restore that one, or "
                "write here what is meant",
                at,
            )
        return found

    def _part(self, index: int, name: str, count: int | None) -> Json:
        found = as_object(self._bodies.get(index)).get(name)
        if count is None:
            return found
        return found[:count] if isinstance(found, list) and len(found) >= count else None

    def _digits_of(self, index: int, name: str, count: int | None) -> str:
        key = index, name, count
        if key not in self._digits:
            found = self._part(index, name, count)
            text = b"" if found is None else dump(found)
            self._digits[key] = hashlib.sha256(text).hexdigest()[:8]
        return self._digits[key]


def _prefixes(items: list[Json]) -> Iterator[tuple[int, bytes]]:
    """How many first items of a list are worth a reference, and the digest of them as a list."""
    digest, size = hashlib.sha256(b"["), 1
    for count, item in enumerate(items, 1):
        text = (b"," if count > 1 else b"") + dump(item)
        digest.update(text)
        size += len(text)
        if size >= _SMALLEST:
            ended = digest.copy()
            ended.update(b"]")
            yield count, ended.digest()
