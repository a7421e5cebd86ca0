"""Secrets that an answer tells bit by bit, over many events or lines.

A model types a key as it types anything: a few letters to each event, in the same place of each
event's JSON. Read one after the other, those strings hold the key; none of them does alone.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

import orjson

from tapeway.core.json_strings import Path, placed, units
from tapeway.core.json_text import Json
from tapeway.core.spans import Span, apart

_DOCUMENT = re.compile(rb"^(?:data:[ ]?)?([{\[].*)$", re.MULTILINE)
_MEDIA = (b"text/event-stream", b"ndjson", b"jsonl", b"jsonlines", b"json-seq", b"stream+json")


class _Document(NamedTuple):
    """JSON that is one of many: where its text begins and ends, and which part of that it is."""

    start: int
    end: int
    root: Path
    value: Json


class _Leaf(NamedTuple):
    """A string value of a document."""

    text: bytes
    document: _Document
    path: Path


_Places = dict[tuple[int, int], dict[Path, tuple[int, int]]]


def find(
    body: bytes, content_type: bytes, search: Callable[[bytes], Iterable[Span]]
) -> Iterator[Span]:
    """The spans of the body that together hold what `search` finds in strings put together.

    The first span of each has its secret, the further ones none.
    """
    by_path: dict[Path, list[_Leaf]] = {}
    for document in _documents(body, content_type):
        for leaf in _leaves(document):
            by_path.setdefault(leaf.path, []).append(leaf)
    places: _Places = {}
    for leaves in by_path.values():
        # What is the same in each event, as an id or a model's name is, is told by none bit by bit.
        if all(leaf.text == leaves[0].text for leaf in leaves):
            continue
        ends = list(accumulate([len(leaf.text) for leaf in leaves]))
        for span in apart(search(b"".join([leaf.text for leaf in leaves]))):
            yield from _spread(body, leaves, ends, span, places)


def _documents(body: bytes, content_type: bytes) -> Iterator[_Document]:
    media = content_type.partition(b";")[0].strip().lower()
    if media.endswith(_MEDIA) or body.startswith((b"data:", b"event:")):
        for line in _DOCUMENT.finditer(body):
            try:
                yield _Document(*line.span(1), (), orjson.loads(line[1]))
            except orjson.JSONDecodeError:
                continue
    elif body.startswith(b"["):
        # Gemini streams one array, an element at a time.
        try:
            elements = orjson.loads(body)
        except orjson.JSONDecodeError:
            return
        for index, element in enumerate(elements):
            yield _Document(0, len(body), (index,), element)


def _leaves(document: _Document) -> Iterator[_Leaf]:
    # Not by recursion: what a service nests may be deeper than that goes.
    nodes: list[tuple[Json, Path]] = [(document.value, ())]
    while nodes:
        value, path = nodes.pop()
        if isinstance(value, dict):
            nodes += [(inner, (*path, name)) for name, inner in value.items()]
        elif isinstance(value, list):
            nodes += [(inner, (*path, index)) for index, inner in enumerate(value)]
        elif isinstance(value, str) and value:
            yield _Leaf(value.encode(), document, path)


def _spread(
    body: bytes, leaves: list[_Leaf], ends: list[int], span: Span, places: _Places
) -> Iterator[Span]:
    secret = span.secret
    for number in range(bisect_right(ends, span.start), bisect_left(ends, span.end) + 1):
        text, document, path = leaves[number]
        at = ends[number] - len(text)
        extent = (document.start, document.end)
        if extent not in places:
            places[extent] = {found: (start, end) for found, start, end in placed(body, *extent)}
        start, end = places[extent][(*document.root, *path)]
        written = units(body[start:end])
        first = start + _length(written, text[: max(span.start - at, 0)])
        yield Span(first, start + _length(written, text[: span.end - at]), secret)
        secret = None


def _length(written: list[str], text: bytes) -> int:
    return len("".join(written[: len(text.decode("utf-8", "ignore"))]).encode())
