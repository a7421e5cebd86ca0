"""Finds secrets that a response spreads over many events, lines or frames.

A model writes a key like any other text: a few letters in each event, in the same field of each
event's JSON. The strings of that field (a column), joined in order, contain the key; none of them
does alone. So the strings of each column are joined and searched, and what is found is mapped back
to the places of its characters in the body. Lines are read without their places first, many at once,
since nearly no stream has such a secret.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from itertools import accumulate
from operator import itemgetter

import orjson

from tapeway.core.http.headers import media_type
from tapeway.core.json_text import Json, Pointer
from tapeway.core.redaction.patterns import shortened
from tapeway.core.redaction.spans import Span, merge_spans
from tapeway.core.streams import json_lines, sse
from tapeway.core.streams.aws_frames import AwsFrame

_TOKEN = re.compile(rb'("([^"\\]*(?:\\.[^"\\]*)*)")(\s*:)?|([\[\]{},])')
_CHARACTER = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", re.DOTALL)
# Events whose data is one line of JSON, as all providers send them, and lines of JSON alike: what
# is needed of a document here is its place in the body.
_DOCUMENT = re.compile(rb"^(?:data:[ ]?|\x1e)?([{\[].*[}\]])[ \t\r]*$", re.MULTILINE)
_TRIES = 4
"""Lines in succession from which a form is made in vain: others will not have one either."""
_LONGEST_FORM = 4096
_LEAST_RUN, _MOST_RUN = 16 * 1024, 256 * 1024
"""Bytes in which lines of one form are searched for at once: twice what was found before."""
_STREAM_TYPES = json_lines.MEDIA_TYPES | {sse.MEDIA_TYPE}


class _Column:
    """One place in the documents: its strings, the numbers of their documents, the places inside.

    Only strings of documents that were parsed have a number.
    """

    __slots__ = ("inner", "numbers", "texts")

    def __init__(self) -> None:
        self.inner: defaultdict[str | int, _Column] = defaultdict(_Column)
        self.texts: list[str] = []
        self.numbers: list[int] = []

    def joined(self) -> bytes:
        return "".join(self.texts).encode()


_StringPlaces = dict[int, dict[Pointer, tuple[int, int]]]


class ReadStream:
    """What is in the strings of a body with many documents, read without their places.

    `suspect` is a text in which the prefilter of secrets finds something if it does in the body.
    """

    def __init__(self, body: bytes, content_type: bytes) -> None:
        self.suspect = self.body = body
        self.is_lines = _has_lines(body, content_type)
        self.top = _Column()
        if self.is_lines:
            self.suspect = _add_lines_by_form(body, self.top)
        else:
            _add_elements(body, self.top)


def find(stream: ReadStream, search: Callable[[bytes], Sequence[Span]]) -> Iterator[Span]:
    """The spans of the body that together make up what `search` finds in joined strings.

    The first span of each has its secret, the further ones none.
    """
    body, is_lines, top = stream.body, stream.is_lines, stream.top
    if is_lines:
        if not any(search(each.joined()) for _, each in _changing_columns(top)):
            return
        _add_lines(body, top := _Column())
    documents: _WrittenDocuments | None = None
    for path, column in _changing_columns(top):
        if not (spans := merge_spans(search(column.joined()))):
            continue
        documents = documents or _WrittenDocuments(body, is_lines=is_lines)
        texts = [text.encode() for text in column.texts]
        ends = list(accumulate([len(text) for text in texts]))
        for span in spans:
            secret = span.secret
            for at in range(bisect_right(ends, span.start), bisect_left(ends, span.end) + 1):
                text, before = texts[at], ends[at] - len(texts[at])
                start, characters = documents.string(column.numbers[at], path)
                first = start + _length(characters, text[: max(span.start - before, 0)])
                yield Span(first, start + _length(characters, text[: span.end - before]), secret)
                secret = None


def may_be_stream(body: bytes, content_type: bytes) -> bool:
    """Whether a body may have many documents."""
    return body.startswith(b"[") or _has_lines(body, content_type)


def frames_with_texts(
    frames: Iterable[AwsFrame], texts: Iterable[bytes]
) -> list[tuple[Span, bytes]]:
    """The frames to replace, and what they are with these texts."""
    return [
        (Span(frame.start, frame.end, None), frame.with_text(text))
        for frame, text in zip(frames, texts, strict=True)
        if text != frame.text
    ]


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
    return body.startswith((b"data:", b"event:")) or media_type(content_type) in _STREAM_TYPES


def _add_elements(body: bytes, top: _Column) -> None:
    # Gemini streams one array, an element at a time.
    try:
        elements = orjson.loads(body)
    except orjson.JSONDecodeError:
        return
    for number, element in enumerate(elements):
        _add_strings(number, element, top)


def _add_lines(body: bytes, top: _Column) -> None:
    for number, line in enumerate(_DOCUMENT.finditer(body)):
        _add_line(number, line[1], top)


def _add_line(number: int, line: bytes, top: _Column) -> list[_Column]:
    """Add its strings, if it is JSON; returns their columns."""
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        return []
    return _add_strings(number, document, top)


def _add_lines_by_form(body: bytes, top: _Column) -> bytes:
    """Add the strings of all lines, without parsing those that are written like one before.

    Returns the body without what stands between these again and again, as far as the prefilter of
    secrets can do without.
    """
    form: _Form | None = None
    tries, at, parsed = _TRIES, 0, 0
    shown: list[bytes] = []
    while (found := _DOCUMENT.search(body, at)) is not None:
        start, end = found.span(1)
        if form is not None and (last := form.add(body, start, end)):
            shown += body[at:start], form.shown
            tries, at = _TRIES, last
            continue
        shown.append(body[at:end])
        line, between, at = found[1], body[at:start], end
        parsed += 1
        strings = _add_line(parsed, line, top)
        # From the first line it is not known which of its strings differ.
        if strings and tries and parsed > 1 and len(between) + len(line) < _LONGEST_FORM:
            tries -= 1
            form = _form_of(line, between, strings) or form
    return b"".join([*shown, body[at:]])


class _Form:
    """How lines are written that differ in some strings alone, as nearly all events of a stream do.

    Such a line need not be parsed. `between` is what stands between it and the document before it.
    """

    def __init__(
        self,
        parts: Sequence[bytes],
        between: bytes,
        changing: Sequence[_Column],
        same: Mapping[_Column, str],
    ) -> None:
        self._beginning, *self._inner, self._end = parts
        self._separator = separator = self._end + between + self._beginning
        self._shortened = shortened(separator)
        self.shown = b""
        """The documents that were added last, as far as the prefilter has to see them."""
        self._lines = separator.count(b"\n")
        self._line_end = separator[: separator.index(b"\n") + 1]
        line_start = len(separator) - separator.rindex(b"\n") - 1
        self._content = itemgetter(slice(line_start, -len(self._line_end)))
        self._changing = changing
        self._same = same
        self._run = _LEAST_RUN

    def add(self, body: bytes, start: int, end: int) -> int:
        """Add the strings of this document and of those behind it, as far as they are like this.

        Returns where the last of them ends, 0 if not even the first one is.
        """
        first, last = start + len(self._beginning), end - len(self._end)
        if first > last or not body.startswith(self._beginning, start):
            return 0
        if not body.startswith(self._end, last):
            return 0
        behind = body[last : last + len(self._separator) + self._run]
        # Where one is not like it, those after the first half are looked at again, from there on.
        for found in _halved([body[first:last], *self._contents(behind)]):
            written = self._separator.join(found)
            last = first + len(written)
            if not body.startswith(written, first):
                continue
            if len(found) > 1 and not body.startswith(self._line_end, last):
                continue
            if (texts := self._texts(found)) is not None:
                self._take(texts, found)
                self._run = min(max(_LEAST_RUN, 2 * len(written)), _MOST_RUN)
                return last + len(self._end)
        return 0

    def _contents(self, behind: bytes) -> Iterator[bytes]:
        """What the lines behind a document have between beginning and end, if they are like it."""
        # No string of a document has a line break, and of the last line it is not known where it ends.
        lines = BytesIO(behind).readlines()
        return map(self._content, lines[self._lines : -1 : self._lines])

    def _take(self, texts: Sequence[str], found: Sequence[bytes]) -> None:
        for column, text in zip(self._changing, texts, strict=True):
            column.texts.append(text)
        for column, text in self._same.items():
            column.texts += [text] * len(found)
        # The whole of what stands between two documents once.
        first = self._separator.join(found[:2])
        rest = self._shortened.join([b"", *found[2:]])
        self.shown = b"".join([self._beginning, first, rest, self._end])

    def _texts(self, found: Sequence[bytes]) -> list[str] | None:
        """For each string that differs those in these documents, joined, given what these have
        between beginning and end; None where one is written otherwise.
        """
        texts: list[str | None] = []
        for part in self._inner:
            cut = [each.partition(part) for each in found]
            if not all(middle for _, middle, _ in cut):
                return None
            texts.append(_joined([before for before, _, _ in cut]))
            found = [behind for _, _, behind in cut]
        texts.append(_joined(found))
        return [each for each in texts if each is not None] if None not in texts else None


def _halved(found: list[bytes]) -> Iterator[list[bytes]]:
    while found:
        yield found
        found = found[: len(found) // 2]


def _joined(contents: Sequence[bytes]) -> str | None:
    """The strings with these contents, joined; None where one is no content of a string."""
    joined = b"".join(contents)
    try:
        if b"\\" in joined or not joined.isascii():
            # An escape, or a character of several bytes, that one has begun cannot go on with a blank.
            orjson.loads(b'"%b"' % b" ".join(contents))
        text: str = orjson.loads(b'"%b"' % joined)
    except orjson.JSONDecodeError:
        return None
    return text


def _form_of(line: bytes, between: bytes, strings: Sequence[_Column]) -> _Form | None:
    """The form of a line whose strings were added to these columns; None if none differs from that
    of the line before.
    """
    changing: list[tuple[tuple[int, int], _Column]] = []
    same: dict[_Column, str] = {}
    for column in strings:
        before, text = column.texts[-2:-1], column.texts[-1]
        extent = _only_extent(line, text) if before and before != [text] else None
        if extent is None:
            same[column] = text
        else:
            changing.append((extent, column))
    if not changing:
        return None
    changing.sort(key=itemgetter(0))
    parts: list[bytes] = []
    at = 0
    for (start, end), _ in changing:
        parts.append(line[at:start])
        at = end
    return _Form([*parts, line[at:]], between, [column for _, column in changing], same)


def _only_extent(line: bytes, text: str) -> tuple[int, int] | None:
    """Where the content of the only value is that is this string; None if there are several."""
    if b"\\" not in line:
        # Nothing can be written in two ways, so the places need not be looked for one by one.
        before, found, behind = line.partition(b'"%b"' % text.encode())
        if found not in behind:
            return len(before) + 1, len(before) + len(found) - 1
    extents = [(start, end) for _, start, end in json_strings(line, 0, len(line))]
    same = [
        (start, end) for start, end in extents if orjson.loads(line[start - 1 : end + 1]) == text
    ]
    return same[0] if len(same) == 1 else None


class _WrittenDocuments:
    """Where the strings of the documents are in the body."""

    def __init__(self, body: bytes, *, is_lines: bool) -> None:
        self._body = body
        self._extents = [each.span(1) for each in _DOCUMENT.finditer(body)] if is_lines else None
        self._places: _StringPlaces = {}

    def string(self, number: int, path: Pointer) -> tuple[int, list[str]]:
        """Where the string at this place of a document begins, and how its characters are written."""
        if self._extents is None:
            # All are elements of one array.
            start, end = self._places_in(0, (0, len(self._body)))[(number, *path)]
        else:
            start, end = self._places_in(number, self._extents[number])[path]
        return start, written_characters(self._body[start:end])

    def _places_in(self, number: int, extent: tuple[int, int]) -> dict[Pointer, tuple[int, int]]:
        if number not in self._places:
            strings = json_strings(self._body, *extent)
            self._places[number] = {found: (start, end) for found, start, end in strings}
        return self._places[number]


def _add_strings(number: int, document: Json, top: _Column) -> list[_Column]:
    """Add the strings of a document that are not empty; returns their columns."""
    # Not recursive: services may nest deeper than that allows. An event is small and there are
    # hundreds, so strings, which most values are, are handled without the stack.
    nodes: list[tuple[Json, _Column]] = [(document, top)]
    strings: list[_Column] = []
    for value, column in nodes:
        if isinstance(value, dict):
            inner: Iterable[tuple[str | int, Json]] = value.items()
        elif isinstance(value, list):
            inner = enumerate(value)
        else:
            continue
        columns = column.inner
        for name, each in inner:
            if type(each) is str:
                if each:
                    column = columns[name]
                    column.texts.append(each)
                    column.numbers.append(number)
                    strings.append(column)
            elif type(each) is dict or type(each) is list:
                nodes.append((each, columns[name]))
    return strings


def _changing_columns(top: _Column) -> Iterator[tuple[Pointer, _Column]]:
    columns: list[tuple[Pointer, _Column]] = [((), top)]
    while columns:
        path, column = columns.pop()
        columns += [((*path, name), inner) for name, inner in column.inner.items()]
        # A string that is the same in each event, such as an id or a model's name, is no part of a
        # key. Most of them are the very object that the last one is.
        if column.texts and column.texts.count(column.texts[-1]) < len(column.texts):
            yield path, column


def _length(characters: list[str], text: bytes) -> int:
    return len("".join(characters[: len(text.decode("utf-8", "ignore"))]).encode())
