"""Lines of a cassette's file: which values share a line, and that the text keeps its value."""

import random
from typing import cast

import pytest

from tapeway.core.json_text import Json, dump, parse
from tapeway.formats.native import layout


def lines(member: Json) -> list[str]:
    """The lines of a member of a document."""
    text = dump(layout.short_lines({"m": member}), indent=True).decode()
    return [line[2:] for line in text.split("\n")[1:-1]]


def test_short_objects_and_lists_share_a_line_up_to_four_levels() -> None:
    assert lines({"a": [1, {"b": []}], "é": None}) == ['"m": {"a": [1, {"b": []}], "é": null}']
    deep: Json = {"a": {"a": {"a": {"a": {"a": 1}}}}}
    assert lines(deep) == [
        '"m": {',
        '  "a": {"a": {"a": {"a": {"a": 1}}}}',
        "}",
    ]


@pytest.mark.parametrize(
    "member",
    [
        {"a": "x" * 100},
        [*range(13)],
        [{"role": "user"}, {"role": "assistant"}],
        {"headers": {"date": "today"}},
        {"text_lines": ["data: 1"]},
    ],
)
def test_long_values_messages_headers_and_events_keep_their_lines(member: Json) -> None:
    assert lines(member)[-1] in "}]"


def test_headers_of_another_kind_share_a_line() -> None:
    assert lines({"headers": ["date"], "text": {"a": 1}}) == [
        '"m": {"headers": ["date"], "text": {"a": 1}}'
    ]


def test_chunks_share_a_line_however_many_there_are() -> None:
    chunks: Json = [[number / 8, number] for number in range(500)]
    (line,) = [
        line
        for line in dump(
            layout.chunk_line({"response": {"chunks": chunks, "text": "x"}}), indent=True
        ).split(b"\n")
        if b"chunks" in line
    ]
    assert parse(b"{%b}" % line.strip().removesuffix(b",")) == {"chunks": chunks}


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError):
        layout.short_lines(cast("dict[str, Json]", {"m": {1: "x"}}))


def test_a_document_keeps_its_value() -> None:
    chosen = random.Random()
    for _ in range(200):
        document = {"index": 1, "request": _any(chosen, 0), "response": _any(chosen, 0)}
        text = dump(layout.short_lines(layout.chunk_line(document)), indent=True)
        assert parse(text) == document


def _any(chosen: random.Random, depth: int) -> Json:
    kind = chosen.random()
    if depth > 4 or kind < 0.4:
        scalars: list[Json] = [1, 1.5, 10**30, None, True, "", "é" * 40, "{", 'a "b', {}, []]
        return chosen.choice(scalars)
    inner = [_any(chosen, depth + 1) for _ in range(chosen.choice([1, 2, 3, 13]))]
    if kind < 0.7:
        return inner
    names = ["headers", "text", "chunks", "é", 'a "b', *map(str, range(9))]
    return dict(zip(chosen.sample(names, len(inner)), inner, strict=True))
