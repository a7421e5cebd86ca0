"""The texts that a response streams in pieces, put together as clients do.

A model writes a few letters in each event. Clients put the pieces of a text together by place
in the event's JSON, by indexes and ids beside the text, and by the kind of the event. Texts may
take turns: choices, tool calls and content blocks. Each piece keeps the place in the body.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Literal, NamedTuple

import orjson

from tapeway.core.json_text import Json, Pointer
from tapeway.core.model.request_fields import media_type
from tapeway.core.streams.events import BOM, LINE_END
from tapeway.core.streams.framings import framing_of

_TOKEN = re.compile(rb'("([^"\\]*(?:\\.[^"\\]*)*)")(\s*:)?|([\[\]{},])')
_CHARACTER = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", re.DOTALL)
_NAMED_LINE = re.compile(rb"([A-Za-z0-9]{1,8}):(?=[\"{\[])")
"""The name before the JSON of a line, as `0:"Hello"` of Vercel's data streams."""
_NAMED_LINES = re.compile(
    _NAMED_LINE.pattern + rb"[^\r\n]*(?:\r?\n|\Z)(?:%b|\Z)" % _NAMED_LINE.pattern
)
_MOST_NAMES = 64
"""Objects with more members are data, and no events."""

_KINDS = ("type", "event", "event_type")
"""Members that name the kind of an event."""
_WRAPPERS = frozenset({"bytes", "chunk", "data", "event", "payload"})
"""Members whose object is an event."""
_KIND_END = re.compile(r"[-_.](?:start|started|added|begin|delta|chunk)\Z", re.IGNORECASE)
"""A text begins in one kind of event and goes on in a second: `content-start`, `content-delta`."""
_INDEXES = frozenset(
    {
        *("choice_index", "content_index", "contentBlockIndex", "output_index", "summary_index"),
        "thought",
    }
)
"""Members that tell apart the texts that an object's strings belong to.

In an event with a kind, `index` does too. In other events `index` may count the events.
"""
_ELEMENT_INDEXES = ("index", "jsonPath")
"""Members that tie a list's element to a text, at any place in the list.
"""
_ID = re.compile(r"(?:^i|_i|[a-z]I)(?:d|D|ndex)$|[a-z]ID$|^index$")
"""Recognises ids and counters. A repeated and changing id tells texts apart."""
_TELLING = frozenset({*_KINDS, *_INDEXES, *_ELEMENT_INDEXES})
_COUNTER = re.compile(rb'"sequence_number" ?: ?(\d{1,15})(?=[,}])')
"""The number of an event in the stream. A new number makes no new form."""
_STRING_CONTENT = re.compile(rb'[^"\\\x00-\x1f]*+(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*+)*+')
_NUMBER_CONTENT = re.compile(rb"0|[1-9][0-9]*+")
_TO_THE_NEXT = re.compile(rb"\r?\n(?:\r?\n(?:(?:event|id|retry)?:[^\r\n]*+\r?\n)*+data: ?)?")
"""What is between two lines of JSON, or between the data of two events of one line."""
_LINE_ENDS = (b"\r", b"\n", b"")
_MOST_FORMS, _MOST_CHANGING, _MOST_ALIKE, _MOST_AT_ONCE = 4, 3, 64, 1024
"""Limits: forms of lines to try, differing strings in a line, remembered places of strings, lines that
are read together.
"""
_RECORD_END = "\x1e"
"""Ends a message of SignalR, and stands between packets that Engine.IO answers a poll with."""
_HELD = re.compile(
    r"[A-Za-z0-9/_,:-]{0,64} ?(?P<json>[\[{].*[\]}])"
    r"|[A-Z]+\r?\n(?P<head>(?:[^\r\n]+\r?\n)*)\r?\n(?P<body>[^\0]+)\0",
    re.DOTALL,
)
"""What a string may hold as one message: JSON behind the type of a packet, as `42["say","Hello"]` of
Socket.IO and `a["Hello"]` of SockJS; or a frame of STOMP.
"""
_PACKETS = re.compile(rb"(?:[0-9]{1,3}[^\x1e]*|\{[^\x1e]*\})\x1e")
"""How a body begins that has several messages."""
_HELD_ENDS = frozenset("]}\0\n" + _RECORD_END)
_DESTINATION = re.compile(r"^destination:(.*?)\r?$", re.MULTILINE)
_LISTS_OF_PIECES = frozenset({"logprobs", "parts", "tokens"})
"""Lists whose elements are pieces of one text, as `logprobs.content` is."""
_HAS_PIECES = re.compile(rb'"(?:%b)"\s*:' % "|".join(sorted(_LISTS_OF_PIECES)).encode())

_FirstPiece = tuple[str, str, str, tuple[str, ...]]
_FIRST_PIECES: Mapping[str, Sequence[_FirstPiece]] = {
    "content_block_start": [
        ("content_block", "text", "content_block", ("delta", "text")),
        ("content_block", "thinking", "content_block", ("delta", "thinking")),
    ],
    "response.content_part.added": [
        ("part", "text", "response.output_text", ("delta",)),
        ("part", "text", "response.reasoning_text", ("delta",)),
        ("part", "refusal", "response.refusal", ("delta",)),
        ("part", "transcript", "response.audio_transcript", ("delta",)),
    ],
    "response.reasoning_summary_part.added": [
        ("part", "text", "response.reasoning_summary_text", ("delta",)),
    ],
    "response.output_item.added": [
        ("item", "arguments", "response.function_call_arguments", ("delta",)),
        ("item", "arguments", "response.mcp_call_arguments", ("delta",)),
        ("item", "code", "response.code_interpreter_call_code", ("delta",)),
        ("item", "input", "response.custom_tool_call_input", ("delta",)),
    ],
}
"""Kinds of events with the first piece of a text at a different place than later events.

Each row has the object and the member of the first piece, and the kind and the place of the rest.
"""

_Step = str | int | None | tuple[object, ...]
"""A step to a column: a member, a place in a list, a kind of event, or the indexes of an object."""
_Ids = tuple[tuple[int, str, str], ...]
"""The ids of the objects around a string, each with its depth and name."""
_Place = Literal["event", "element", "object"]
"""What an object is: an event of a kind, the element of a list, or any other."""
Extent = tuple[int, int]
"""Where a part of the body starts and ends."""
Holder = tuple[int, Pointer, _Ids]
"""The holder of a string: number of the document, place inside, ids of all enclosing objects.

A plain tuple, as a piece is, because a stream has thousands. The number of a document that a string
holds is negative.
"""
Piece = tuple[str, Holder | None, str | int | None]
"""A string, the holder, and the string's name or number in the holder.

Without a name the string is the whole document. Without a holder the string joins the lines of an
event, and has no place in the body.
"""


class _Column:
    """The strings at one place of the documents, in order."""

    __slots__ = ("inner", "pieces")

    def __init__(self) -> None:
        self.inner: defaultdict[_Step, _Column] = defaultdict(_Column)
        self.pieces: list[Piece] = []


_Node = tuple[Json, _Column, Pointer, _Ids]
_Found = tuple[_Column, str, Holder, str | int | None]
"""A piece and its column."""


class _Held(NamedTuple):
    """A message that a string holds: of what kind, what it says, and where by the string's characters."""

    kind: str
    value: Json
    start: int
    end: int


class StreamedTexts:
    """The texts of a body that come in pieces: iterating gives the pieces of each."""

    def __init__(self, body: bytes, content_type: bytes) -> None:
        self._body = body
        self._has_cr = body.find(b"\r") >= 0
        self._top = _Column()
        # The data of an event may have several lines.
        self._documents: list[Sequence[Extent]] = []
        self._raw: set[int] = set()
        self._held: list[tuple[Piece, _Held]] = []
        self._written_in: dict[int, dict[Pointer, tuple[int, list[str]]]] = {}
        self._places: dict[int, dict[Pointer, Extent]] = {}
        self._forms: list[_Form] = []
        self._alike: dict[tuple[_Column, ...], Sequence[_Found]] = {}
        if _has_lines(body, content_type):
            self._read_lines()
        else:
            self._read_whole()

    def __iter__(self) -> Iterator[Sequence[Piece]]:
        columns = [self._top]
        while columns:
            column = columns.pop()
            columns += column.inner.values()
            if _changes(column.pieces):
                yield from filter(_changes, _by_ids(column.pieces))

    def written(self, text: str, holder: Holder, name: str | int | None) -> tuple[int, list[str]]:
        """Where a piece begins in the body, and the written form of each character."""
        number, path, _ = holder
        if number in self._raw:
            return self._documents[number][0][0], list(text)
        place = path if name is None else (*path, name)
        if number < 0:
            if number not in self._written_in:
                self._written_in[number] = dict(self._held_strings(*self._held[~number]))
            return self._written_in[number][place]
        if number not in self._places:
            self._places[number] = dict(self._strings(number))
        start, end = self._places[number][place]
        return start, written_characters(self._body[start:end])

    def _read_lines(self) -> None:
        """Read events and lines of JSON, each of which is a document."""
        # As the HTML standard reads events, but for data that ends with the body: that is read too.
        data: list[Extent] = []
        name = b""
        next_line = len(BOM) if self._body.startswith(BOM) else 0
        while (start := next_line) < len(self._body):
            end, next_line = self._line_end(start)
            text, read_to = self._body[start:end], end
            if not text:
                if data:
                    self._read_data(data, name)
                    data = []
                name = b""
            elif text.startswith(b"data:"):
                extent = (start + 5 + text.startswith(b" ", 5), end)
                if not data:
                    read_to = self._read_documents(*extent)
                if not read_to or data:
                    data.append(extent)
            elif text.startswith((b"{", b"[")):
                read_to = self._read_documents(start, end)
            elif text.startswith(b"\x1e"):
                self._read_document([(start + 1, end)])
            elif text.startswith(b"event:"):
                name = text[6:].strip()
            elif named := _NAMED_LINE.match(text):
                self._read_document(
                    [(start + named.end(), end)], self._top.inner[("line", named[1])]
                )
            if read_to > end:
                _, next_line = self._line_end(read_to)
        self._read_data(data, name)

    def _line_end(self, start: int) -> tuple[int, int]:
        """Where the line that has `start` ends, and where the next one begins."""
        if self._has_cr:
            found = LINE_END.search(self._body, start)
            return found.span() if found is not None else (len(self._body), len(self._body))
        # A search for one octet takes half the time.
        end = self._body.find(b"\n", start)
        return (end, end + 1) if end >= 0 else (len(self._body), len(self._body))

    def _read_documents(self, start: int, end: int) -> int:
        """Read a line, and those that follow in the same form; the end of the last, 0 for no document."""
        number = len(self._documents)
        for form in self._forms:
            if documents := form.add(self._body, start, number):
                self._documents += [[document] for document in documents]
                return documents[-1][1]
        return end if self._read_document([(start, end)]) else 0

    def _read_data(self, lines: Sequence[Extent], name: bytes) -> None:
        """Read an event whose data is on several lines, or is no JSON."""
        if len(lines) > 1 and self._read_document(lines):
            return
        column = self._top.inner[("data", name)]
        for number, line in enumerate(lines):
            if self._read_document([line]):
                continue
            if number:
                column.pieces.append(("\n", None, None))
            self._raw.add(len(self._documents))
            text = self._body[line[0] : line[1]].decode("utf-8", "surrogateescape")
            piece = text, (len(self._documents), (), ()), None
            column.pieces.append(piece)
            self._documents.append([line])
            self._add_held(column, piece)

    def _read_document(self, lines: Sequence[Extent], top: _Column | None = None) -> bool:
        """Whether these lines together are a document; a number may be a piece of any text.

        Documents below one column make up texts of their own.
        """
        top = top or self._top
        text = self._body[lines[0][0] : lines[0][1]]
        if len(lines) > 1:
            text = b"\n".join([self._body[start:end] for start, end in lines])
        number = len(self._documents)
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError:
            return False
        if isinstance(document, str):
            piece = document, (number, (), ()), None
            top.pieces.append(piece)
            self._add_held(top, piece)
        elif isinstance(document, dict | list):
            located = self._add(document, number, top=top)
            if top is self._top:
                self._learn(text, located)
        else:
            return False
        self._documents.append(lines)
        return True

    def _learn(self, line: bytes, located: Sequence[_Found]) -> None:
        """Remember the form of a document that differs from an earlier one in few strings."""
        columns = tuple([column for column, _, _, _ in located])
        before = self._alike.get(columns)
        if len(self._alike) < _MOST_ALIKE or before is not None:
            self._alike[columns] = located
        if before is not None and (form := _form_of(line, before, located)) is not None:
            self._forms = [form, *self._forms[: _MOST_FORMS - 1]]

    def _read_whole(self) -> None:
        """Read an object, or an array of events: Gemini streams one element at a time."""
        try:
            value = orjson.loads(self._body)
        except orjson.JSONDecodeError:
            if _PACKETS.match(self._body):
                self._read_data([(0, len(self._body))], b"")
            return
        self._documents.append([(0, len(self._body))])
        if isinstance(value, list):
            for index, element in enumerate(value):
                self._add(element, 0, (index,))
        else:
            self._add(value, 0)

    def _add(
        self,
        document: Json,
        number: int,
        path: Pointer = (),
        top: _Column | None = None,
        ids: _Ids = (),
    ) -> Sequence[_Found]:
        """Add the strings of a document that are not empty; returns them."""
        located: list[_Found] = []
        # Not recursive: services may nest deeper than that allows.
        nodes: list[_Node] = [(document, top or self._top, path, ids)]
        for value, column, at, around in nodes:
            if isinstance(value, dict):
                if at == path or at[-1] in _WRAPPERS:
                    _read_event(value, column, (number, at, around), nodes, located)
                else:
                    place: _Place = "element" if type(at[-1]) is int else "object"
                    _read_object(value, column, (number, at, around), place, nodes, located)
            elif isinstance(value, list):
                _read_list(value, column, (number, at, around), nodes, located)
        for column, text, holder, name in located:
            column.pieces.append((text, holder, name))
            if text[-1] in _HELD_ENDS:
                self._add_held(column, (text, holder, name))
        return located

    def _add_held(self, column: _Column, piece: Piece) -> None:
        """Add the strings of the messages that a string holds, if any.

        Each message inside needs more escapes, so that strings nest no deeper than their length allows.
        """
        text, holder, _ = piece
        if holder is None:
            return
        for held in _held_in(text):
            number = ~len(self._held)
            self._held.append((piece, held))
            texts = column.inner[("held", held.kind)]
            if isinstance(held.value, str):
                said = held.value, (number, (), holder[2]), None
                texts.pieces.append(said)
                self._add_held(texts, said)
            else:
                self._add(held.value, number, top=texts, ids=holder[2])

    def _held_strings(
        self, piece: Piece, held: _Held
    ) -> Iterator[tuple[Pointer, tuple[int, list[str]]]]:
        """Each string of a held message: where it begins in the body, and how it is written."""
        text, holder, name = piece
        if holder is None:
            return
        start, characters = self.written(text, holder, name)
        sizes = [len(each.encode("utf-8", "surrogateescape")) for each in characters]
        starts = list(accumulate(sizes, initial=start))
        if isinstance(held.value, str):
            yield (), (starts[held.start], characters[held.start : held.end])
            return
        octets = text[held.start : held.end].encode("utf-8", "surrogateescape")
        at, passed = held.start, 0
        for path, first, last in json_strings(octets, 0, len(octets)):
            at += len(octets[passed:first].decode())
            ends = accumulate(map(len, written_characters(octets[first:last])), initial=at)
            spelled = ["".join(characters[begin:end]) for begin, end in pairwise(ends)]
            yield path, (starts[at], spelled)
            passed = first

    def _strings(self, number: int) -> Iterator[tuple[Pointer, Extent]]:
        """The place of each string of a document, and where its content is in the body."""
        lines = self._documents[number]
        if len(lines) == 1:
            for path, start, end in json_strings(self._body, *lines[0]):
                yield path, (start, end)
            return
        # Strings have no line break: each is on one line.
        starts = list(accumulate([end - start + 1 for start, end in lines], initial=0))
        text = b"\n".join([self._body[start:end] for start, end in lines])
        for path, start, end in json_strings(text, 0, len(text)):
            line = bisect_right(starts, start) - 1
            moved = lines[line][0] - starts[line]
            yield path, (start + moved, end + moved)


def _held_in(text: str) -> Iterator[_Held]:
    """The messages in a string."""
    start = 0
    for record in text.split(_RECORD_END):
        message = _HELD.fullmatch(record.rstrip("\n"))
        if message is not None and message["json"]:
            try:
                value = orjson.loads(message["json"])
            except orjson.JSONDecodeError:
                value = None
            if value:
                first, last = message.span("json")
                yield _Held(_held_kind(record, value), value, start + first, start + last)
        elif message is not None:
            destination = _DESTINATION.search(message["head"])
            kind = "" if destination is None else destination[1]
            first, last = message.span("body")
            yield _Held(kind, message["body"], start + first, start + last)
        start += len(record) + 1


def _held_kind(record: str, message: dict[str, Json] | list[Json]) -> str:
    """The name of the event in a packet of Socket.IO, of the method in a message of SignalR."""
    name: Json = ""
    if isinstance(message, dict):
        name = message.get("target")
    elif record[0].isdigit():
        name = message[0]
    return name if isinstance(name, str) else ""


def may_be_stream(body: bytes, content_type: bytes) -> bool:
    """Whether a body may have texts in pieces."""
    if body.startswith(b"[") or _has_lines(body, content_type) or _PACKETS.match(body):
        return True
    return body.startswith(b"{") and _HAS_PIECES.search(body) is not None


def json_strings(text: bytes, start: int, end: int) -> Iterator[tuple[Pointer, int, int]]:
    """The place of each string that is a value, and where its content starts and ends, in order.

    The text between `start` and `end` has to be JSON.
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


def written_characters(content: bytes) -> list[str]:
    """The content of a JSON string, split into what each character of its value is written as."""
    return _CHARACTER.findall(content.decode())


def _has_lines(body: bytes, content_type: bytes) -> bool:
    """Whether the documents are events or lines."""
    framing = framing_of(media_type(content_type), body)
    if framing is not None:
        return framing.pieces is not None
    return _NAMED_LINES.match(body.removeprefix(BOM)) is not None


class _Form:
    """How documents are written that differ in few strings alone, as most events of a stream do.

    Such a document need not be parsed. Those that follow each other are read together.
    """

    __slots__ = ("_at_once", "_beginning", "_changing", "_rest", "_same")

    def __init__(
        self, parts: Sequence[bytes], changing: Sequence[_Found | None], same: Sequence[_Found]
    ) -> None:
        """`parts` is the text around what differs: strings, and None for the event's number."""
        self._changing, self._same = changing, same
        self._at_once = _MOST_AT_ONCE
        self._beginning, *others = parts
        self._rest = [
            (column is not None, other, len(other))
            for column, other in zip(changing, others, strict=True)
        ]

    def add(self, body: bytes, start: int, number: int) -> list[Extent]:
        """Add the strings of the documents of this form that begin here; where they are.

        The first of them has this number.
        """
        extents, contents_of_documents = self._read(body, start)
        texts = [
            contents if changing_form is None else _holding_nothing(_strings_of(contents))
            for changing_form, contents in zip(
                self._changing, zip(*contents_of_documents, strict=True), strict=False
            )
        ]
        count = min(map(len, texts), default=0)
        # Those behind one that is no JSON are read again.
        self._at_once = min(2 * self._at_once, _MOST_AT_ONCE) if count == len(extents) else 1
        numbers = range(number, number + count)
        for changing_form, strings in zip(self._changing, texts, strict=False):
            if changing_form is not None:
                column, _, (_, path, ids), name = changing_form
                column.pieces += [
                    (text, (event, path, ids), name)
                    for event, text in zip(numbers, strings, strict=False)
                    if text
                ]
        for column, text, (_, path, ids), name in self._same:
            column.pieces += [(text, (event, path, ids), name) for event in numbers]
        return extents[:count]

    def _read(self, body: bytes, start: int) -> tuple[list[Extent], list[list[bytes]]]:
        """Where documents of this form follow each other from here on, and what differs in each."""
        # An expression for all of it would have to be compiled for each stream.
        find, has_at = body.find, body.startswith
        extents: list[Extent] = []
        contents_of_documents: list[list[bytes]] = []
        beginning, between = self._beginning, b"\n"
        size, next_beginning = len(beginning), between + beginning
        goes_on = has_at(beginning, start)
        for _ in range(self._at_once if goes_on else 0):
            at = start + size
            contents: list[bytes] = []
            for is_string, other, other_size in self._rest:
                end = find(b'"', at) if is_string else _number_end(body, at)
                if is_string and find(b"\\", at, end) >= 0:
                    end = _string_end(body, at)
                if end < 0 or not has_at(other, end):
                    return extents, contents_of_documents
                contents.append(body[at:end])
                at = end + other_size
            goes_on = has_at(next_beginning, at)
            if not goes_on and body[at : at + 1] not in _LINE_ENDS:
                break
            extents.append((start, at))
            contents_of_documents.append(contents)
            if not goes_on and (found := _TO_THE_NEXT.match(body, at)) is not None:
                between = found[0]
                next_beginning = between + beginning
                goes_on = has_at(next_beginning, at)
            if not goes_on:
                break
            start = at + len(between)
        return extents, contents_of_documents


def _string_end(body: bytes, start: int) -> int:
    """Where the content of a string ends that begins here, up to a character that no string has."""
    content = _STRING_CONTENT.match(body, start)
    return start if content is None else content.end()


def _number_end(body: bytes, start: int) -> int:
    number = _NUMBER_CONTENT.match(body, start)
    return -1 if number is None else number.end()


def _strings_of(contents: Sequence[bytes]) -> Sequence[str]:
    """The values of JSON strings, up to the first that is none: a character is cut in two there."""
    try:
        strings: list[str] = orjson.loads(b'["%b"]' % b'","'.join(contents))
        return strings
    except orjson.JSONDecodeError:
        return list(_strings_one_by_one(contents))


def _strings_one_by_one(contents: Sequence[bytes]) -> Iterator[str]:
    for content in contents:
        try:
            yield orjson.loads(b'"%b"' % content)
        except orjson.JSONDecodeError:
            return


def _holding_nothing(strings: Sequence[str]) -> Sequence[str]:
    """The strings up to the first that holds a message, which is to be read."""
    for number, text in enumerate(strings):
        if text and text[-1] in _HELD_ENDS and any(True for _ in _held_in(text)):
            return strings[:number]
    return strings


def _form_of(line: bytes, before: Sequence[_Found], located: Sequence[_Found]) -> _Form | None:
    """The common form of a document and an earlier document with strings in equal columns.

    None if ids differ, if a changing string is spelled like a constant one, or if several strings are
    pieces of one text: those have an order.
    """
    changing: list[tuple[int, int, _Found | None]] = []
    same: list[_Found] = []
    if line.find(b"\\") >= 0 or len({id(column) for column, _, _, _ in located}) < len(located):
        return None
    counters = [*_COUNTER.finditer(line)]
    if len(counters) == 1:
        changing.append((*counters[0].span(1), None))
    for old, new in zip(before, located, strict=True):
        _, text, holder, name = new
        if holder[2] != old[2][2]:
            return None
        if text == old[1]:
            same.append(new)
            continue
        written = b'"%b"' % text.encode()
        at = line.find(written)
        tells = name in _TELLING or (isinstance(name, str) and _ID.search(name) is not None)
        if tells or line.find(written, at + 1) >= 0 or len(changing) == _MOST_CHANGING:
            return None
        changing.append((at + 1, at + len(written) - 1, new))
    if not changing:
        return None
    changing.sort(key=itemgetter(0))
    ends = [0, *[end for _, end, _ in changing]]
    starts = [*[start for start, _, _ in changing], len(line)]
    parts = [line[end:start] for end, start in zip(ends, starts, strict=True)]
    return _Form(parts, [column for _, _, column in changing], same)


def _read_event(
    event: dict[str, Json],
    column: _Column,
    holder: Holder,
    nodes: list[_Node],
    located: list[_Found],
) -> None:
    """Find the strings of an event."""
    kind = _kind(event)
    if not kind:
        _read_object(event, column, holder, "object", nodes, located)
        return
    _read_object(event, column.inner[_kind_step(kind)], holder, "event", nodes, located)
    if kind in _FIRST_PIECES:
        _read_first_pieces(event, column, holder, _FIRST_PIECES[kind], located)


def _read_object(
    value: dict[str, Json],
    column: _Column,
    holder: Holder,
    place: _Place,
    nodes: list[_Node],
    located: list[_Found],
) -> None:
    """Find the strings of an object; nested values go to the nodes."""
    number, at, ids = holder
    if len(value) <= _MOST_NAMES:
        marks = _marks(tuple(value), place)
        if marks.indexes:
            column = column.inner[_index_step(value, marks)]
        if marks.ids:
            ids = (*ids, *_ids(value, marks, len(at)))
            holder = (number, at, ids)
    columns = column.inner
    for name, member in value.items():
        if type(member) is str:
            if member:
                located.append((columns[name], member, holder, name))
        elif type(member) is dict or type(member) is list:
            nodes.append((member, columns[name], (*at, name), ids))


def _read_first_pieces(
    event: dict[str, Json],
    column: _Column,
    holder: Holder,
    rows: Iterable[_FirstPiece],
    located: list[_Found],
) -> None:
    number, at, ids = holder
    marks = _marks(tuple(event), "event")
    ids = (*ids, *_ids(event, marks, len(at)))
    for inside, name, kind, place in rows:
        inner = event.get(inside)
        text = inner.get(name) if isinstance(inner, dict) else None
        if isinstance(text, str) and text:
            other = column.inner[_kind_step(kind)]
            for step in (_index_step(event, marks), *place):
                other = other.inner[step]
            located.append((other, text, (number, (*at, inside), ids), name))


def _read_list(
    value: list[Json],
    column: _Column,
    holder: Holder,
    nodes: list[_Node],
    located: list[_Found],
) -> None:
    """Find the strings of a list; nested values go to the nodes."""
    _, at, ids = holder
    columns = column.inner
    is_one_text = bool(at) and (at[-1] in _LISTS_OF_PIECES or at[-2:] == ("logprobs", "content"))
    for index, item in enumerate(value):
        step: _Step = None if is_one_text else index
        if type(item) is str:
            if item:
                located.append((columns[step], item, holder, index))
        elif type(item) is dict:
            nodes.append((item, columns[_element_step(item, step)], (*at, index), ids))
        elif type(item) is list:
            nodes.append((item, columns[step], (*at, index), ids))


def _element_step(element: dict[str, Json], step: _Step) -> _Step:
    for name in _ELEMENT_INDEXES:
        if type(index := element.get(name)) is int or type(index) is str:
            return (name, index)
    return step


class _Marks(NamedTuple):
    """The members of an object that identify the text of the strings."""

    indexes: tuple[str, ...]
    ids: tuple[str, ...]


@lru_cache(maxsize=1024)
def _marks(names: tuple[str, ...], place: _Place) -> _Marks:
    indexes = [name for name in names if name in _INDEXES or (name == "index" and place == "event")]
    # The index of an element has been looked at.
    passed = (*indexes, "index") if place == "element" else indexes
    ids = [name for name in names if name not in passed and _ID.search(name)]
    return _Marks(tuple(indexes), tuple(ids))


def _index_step(value: dict[str, Json], marks: _Marks) -> _Step:
    return tuple([(name, str(value[name])) for name in marks.indexes])


def _ids(value: dict[str, Json], marks: _Marks, depth: int) -> _Ids:
    return tuple([(depth, name, str(value[name])) for name in marks.ids])


def _kind(event: dict[str, Json]) -> str:
    """The kind of an event, empty if unstated."""
    for name in _KINDS:
        if type(kind := event.get(name)) is str:
            return kind
    return ""


@lru_cache(maxsize=1024)
def _kind_step(kind: str) -> _Step:
    return ("kind", _KIND_END.sub("", kind))


def _changes(pieces: Sequence[Piece]) -> bool:
    """Whether the strings change, unlike a string repeated in each event, such as a model's name."""
    texts = [text for text, _, _ in pieces]
    return bool(texts) and texts.count(texts[0]) < len(texts)


def _by_ids(pieces: list[Piece]) -> Iterable[list[Piece]]:
    """Pieces grouped by the enclosing ids that tell texts apart.

    An id that is new in each event names the event. A piece without an id, as the later ones of a
    tool call are, belongs to the one before.
    """
    around = [holder[2] if holder is not None else () for _, holder, _ in pieces]
    if around.count(around[0]) == len(around):
        return (pieces,)
    values: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
    for ids in around:
        for depth, name, value in ids:
            values[depth, name].append(value)
    current = {key: texts[0] for key, texts in values.items() if 1 < len(set(texts)) < len(texts)}
    groups: defaultdict[tuple[str, ...], list[Piece]] = defaultdict(list)
    for piece, ids in zip(pieces, around, strict=True):
        for depth, name, value in ids:
            if (depth, name) in current:
                current[depth, name] = value
        groups[tuple(current.values())].append(piece)
    return groups.values()
