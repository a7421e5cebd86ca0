"""Finds secrets that a response spreads over many events, lines or frames.

A model writes a key like any other text: a few letters in each event, in the same field of each
event's JSON. The strings of that field (a column), joined in order, contain the key; none of them
does alone. So the strings of each column are joined and searched, and what is found is mapped back
to the places of its characters in the body.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, compress, takewhile

import orjson

from tapeway.core.http.headers import media_type
from tapeway.core.json_text import Json, Pointer
from tapeway.core.redaction.spans import Span, merge_spans, replace_spans
from tapeway.core.streams import json_lines, sse
from tapeway.core.streams.aws_frames import AwsFrame

_TOKEN = re.compile(rb'("((?:[^"\\]|\\.)*)")(\s*:)?|([\[\]{},])')
_CHARACTER = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", re.DOTALL)
# Events whose data is one line of JSON, as all providers send them, and lines of JSON alike: what
# is needed of a document here is its place in the body.
_DOCUMENT = re.compile(rb"^(?:data:[ ]?|\x1e)?([{\[].*[}\]])[ \t\r]*$", re.MULTILINE)
_TRIES = 4
"""Lines in succession from which a form is made in vain: others will not have one either."""
_LONGEST_FORM = 4096
_RUN = 64
"""Lines that are gone through at once."""
_STREAM_TYPES = json_lines.MEDIA_TYPES | {sse.MEDIA_TYPE}


class _Column:
    """One place in the documents: its strings, the numbers of their documents, the places inside."""

    __slots__ = ("inner", "numbers", "texts")

    def __init__(self) -> None:
        self.inner: defaultdict[str | int, _Column] = defaultdict(_Column)
        self.texts: list[str] = []
        self.numbers: list[int] = []


_StringPlaces = dict[int, dict[Pointer, tuple[int, int]]]


def find(
    body: bytes, content_type: bytes, search: Callable[[bytes], Iterable[Span]]
) -> Iterator[Span]:
    """The spans of the body that together make up what `search` finds in joined strings.

    The first span of each has its secret, the further ones none.
    """
    is_lines = _has_lines(body, content_type)
    if not is_lines and not body.startswith(b"["):
        return
    top = _Column()
    if is_lines:
        _add_lines(_DOCUMENT.findall(body), top)
    else:
        _add_elements(body, top)
    documents: _WrittenDocuments | None = None
    for path, column in _changing_columns(top):
        if not (spans := merge_spans(search("".join(column.texts).encode()))):
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


def replace_frame_texts(
    body: bytes, frames: Sequence[AwsFrame], texts: Sequence[bytes], lengths: Sequence[int]
) -> list[bytes]:
    """The stream with these texts in its frames, in pieces where those of these lengths were."""
    changed = [
        (Span(frame.start, frame.end, None), frame.with_text(text))
        for frame, text in zip(frames, texts, strict=True)
        if text != frame.text
    ]
    return replace_spans(body, lengths, changed)


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


def _add_lines(lines: Sequence[bytes], top: _Column) -> None:
    form: _Form | None = None
    tries, number = _TRIES, 0
    while number < len(lines):
        if form is not None and (added := form.add(number, lines)):
            tries, number = _TRIES, number + added
            continue
        line, number = lines[number], number + 1
        try:
            document = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        _add_strings(number - 1, document, top)
        if tries and len(line) < _LONGEST_FORM:
            tries -= 1
            form = _form_of(number - 1, line, top) or form


class _Form:
    """How lines are written that differ in some strings alone, as nearly all events of a stream do.

    Such a line need not be parsed.
    """

    def __init__(
        self, parts: Sequence[bytes], changing: Sequence[_Column], same: Mapping[_Column, str]
    ) -> None:
        self._beginning, *self._parts = parts
        self._changing = changing
        self._same = [(each.texts, each.numbers, text) for each, text in same.items()]

    def add(self, first: int, lines: Sequence[bytes]) -> int:
        """Add the strings of the lines from this one on that are written like this.

        Returns how many these are.
        """
        added = self._add_run(first, lines) if len(self._parts) == 1 else 0
        return added or int(self._add_line(first, lines[first]))

    def _add_run(self, first: int, lines: Sequence[bytes]) -> int:
        """Add lines that differ in one string, as those of most streams do, up to 64 at once.

        Returns how many these are, 0 where each has to be looked at by itself.
        """
        beginning, (end,) = self._beginning, self._parts
        # Not all that follow: one that has to be parsed would have each line before it read again.
        run = b"\n".join(lines[first : first + _RUN])
        if not run.startswith(beginning):
            return 0
        between = (run + b"\n" + beginning)[len(beginning) :].split(end + b"\n" + beginning)
        # Behind the last line there is nothing; a line written otherwise is in one piece with the next.
        found = [*takewhile(_is_in_line, between[:-1])]
        texts = _plain_texts(b'"'.join(found))
        if not found or texts is None or len(texts) != len(found):
            return 0
        numbers = range(first, first + len(texts))
        (column,) = self._changing
        column.texts += filter(None, texts)
        column.numbers += compress(numbers, texts)
        for same, their_numbers, text in self._same:
            same += [text] * len(texts)
            their_numbers += numbers
        return len(texts)

    def _add_line(self, number: int, line: bytes) -> bool:
        if not line.startswith(self._beginning):
            return False
        at, found = len(self._beginning), b""
        for part in self._parts:
            end = line.find(b'"', at)
            if not line.startswith(part, end):
                return False
            found += line[at : end + 1]
            at = end + len(part)
        texts = _plain_texts(found)
        if at != len(line) or texts is None:
            return False
        for column, each in zip(self._changing, texts, strict=False):
            if each:
                column.texts.append(each)
                column.numbers.append(number)
        for same, numbers, each in self._same:
            same.append(each)
            numbers.append(number)
        return True


def _is_in_line(text: bytes) -> bool:
    """Whether it has neither a line's end nor an escape."""
    return 10 not in text and 92 not in text


def _plain_texts(joined: bytes) -> list[str] | None:
    """The strings between quotes; None with an escape, or with what no JSON text may contain."""
    try:
        text = joined.decode()
    except UnicodeDecodeError:
        return None
    return text.split('"') if "\\" not in text and text.isprintable() else None


def _form_of(number: int, line: bytes, top: _Column) -> _Form | None:
    """The form of a line whose strings are in their columns; None if no string differs from those
    of earlier lines, or if the same name stands twice in an object.
    """
    parts: list[bytes] = []
    changing: list[_Column] = []
    same: dict[_Column, str] = {}
    seen: set[Pointer] = set()
    at = 0
    for path, start, end in json_strings(line, 0, len(line)):
        if path in seen:
            return None
        seen.add(path)
        if start == end:
            continue
        column = _column_at(top, path)
        if not column.numbers or column.numbers[-1] != number:
            return None
        if len(column.texts) > 1 and column.texts[-2] != column.texts[-1]:
            parts.append(line[at:start])
            changing.append(column)
            at = end
        else:
            same[column] = column.texts[-1]
    return _Form([*parts, line[at:]], changing, same) if changing else None


def _column_at(top: _Column, path: Pointer) -> _Column:
    for name in path:
        top = top.inner[name]
    return top


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


def _add_strings(number: int, document: Json, top: _Column) -> None:
    # Not recursive: services may nest deeper than that allows. An event is small and there are
    # hundreds, so strings, which most values are, are handled without the stack.
    nodes: list[tuple[Json, _Column]] = [(document, top)]
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
            elif type(each) is dict or type(each) is list:
                nodes.append((each, columns[name]))


def _changing_columns(top: _Column) -> Iterator[tuple[Pointer, _Column]]:
    columns: list[tuple[Pointer, _Column]] = [((), top)]
    while columns:
        path, column = columns.pop()
        columns += [((*path, name), inner) for name, inner in column.inner.items()]
        # A string that is the same in each event, such as an id or a model's name, is no part of a
        # key.
        if column.texts and column.texts.count(column.texts[0]) < len(column.texts):
            yield path, column


def _length(characters: list[str], text: bytes) -> int:
    return len("".join(characters[: len(text.decode("utf-8", "ignore"))]).encode())
