"""Finds secrets that a response spreads over many events, lines or frames.

A model writes a key like any other text: a few letters in each event, in the same field of each
event's JSON. The strings of that field (a column), joined in order, contain the key; none of them
does alone. So the strings of each column are joined and searched, and what is found is mapped back
to the places of its characters in the body.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

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
_STREAM_TYPES = json_lines.MEDIA_TYPES | {sse.MEDIA_TYPE}


class _Document(NamedTuple):
    """One of many JSON documents: where its text begins and ends, and which part of it is meant."""

    start: int
    end: int
    root: Pointer
    value: Json


class _Column:
    """One place in the documents: its strings, and the places inside it."""

    __slots__ = ("inner", "strings")

    def __init__(self) -> None:
        self.inner: defaultdict[str | int, _Column] = defaultdict(_Column)
        self.strings: list[tuple[str, _Document]] = []


_StringPlaces = dict[tuple[int, int], dict[Pointer, tuple[int, int]]]


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
    for document in _documents(body, is_lines=is_lines):
        _add_strings(document, top)
    places: _StringPlaces = {}
    for path, strings in _changing_columns(top):
        texts = [text.encode() for text, _ in strings]
        ends = list(accumulate([len(text) for text in texts]))
        for span in merge_spans(search(b"".join(texts))):
            secret = span.secret
            for number in range(bisect_right(ends, span.start), bisect_left(ends, span.end) + 1):
                text, at = texts[number], ends[number] - len(texts[number])
                start, characters = _as_written(body, strings[number][1], path, places)
                first = start + _length(characters, text[: max(span.start - at, 0)])
                yield Span(first, start + _length(characters, text[: span.end - at]), secret)
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


def _documents(body: bytes, *, is_lines: bool) -> Iterator[_Document]:
    if is_lines:
        for line in _DOCUMENT.finditer(body):
            try:
                yield _Document(*line.span(1), (), orjson.loads(line[1]))
            except orjson.JSONDecodeError:
                continue
    else:
        # Gemini streams one array, an element at a time.
        try:
            elements = orjson.loads(body)
        except orjson.JSONDecodeError:
            return
        for index, element in enumerate(elements):
            yield _Document(0, len(body), (index,), element)


def _add_strings(document: _Document, top: _Column) -> None:
    # Not recursive: services may nest deeper than that allows. An event is small and there are
    # hundreds, so strings, which most values are, are handled without the stack.
    nodes: list[tuple[Json, _Column]] = [(document.value, top)]
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
                    columns[name].strings.append((each, document))
            elif type(each) is dict or type(each) is list:
                nodes.append((each, columns[name]))


def _changing_columns(top: _Column) -> Iterator[tuple[Pointer, list[tuple[str, _Document]]]]:
    columns: list[tuple[Pointer, _Column]] = [((), top)]
    while columns:
        path, column = columns.pop()
        columns += [((*path, name), inner) for name, inner in column.inner.items()]
        # A string that is the same in each event, such as an id or a model's name, is no part of a
        # key.
        if len({text for text, _ in column.strings}) > 1:
            yield path, column.strings


def _as_written(
    body: bytes, document: _Document, path: Pointer, places: _StringPlaces
) -> tuple[int, list[str]]:
    """Where the string at a document's place starts in the body, and how it is written there."""
    extent = (document.start, document.end)
    if extent not in places:
        places[extent] = {found: (start, end) for found, start, end in json_strings(body, *extent)}
    start, end = places[extent][(*document.root, *path)]
    return start, written_characters(body[start:end])


def _length(characters: list[str], text: bytes) -> int:
    return len("".join(characters[: len(text.decode("utf-8", "ignore"))]).encode())
