"""YAML is written so that every reader reads the same value, in a layout for people."""

import json
import re
import sys
from typing import Any

import pytest
import yaml
from agenttape import yaml_io
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tapeway.core.json_text import MAX_DEPTH, Json
from tapeway.formats.yaml import writer
from tapeway.formats.yaml.parser import parse
from tapeway.formats.yaml.writer import dump

PIECES = [
    *(
        " ",
        "  ",
        "\t",
        "\n",
        "\n\n",
        "\r",
        "\0",
        "\x1b",
        "\x7f",
        "\x85",
        "\xa0",
        "\u2028",
        "\u3000",
    ),
    *("\ufeff", "\ufffe", "\U0001f600", "é", "a", "b c", "1", "1e5", "0x1", "1_0", "1:30", ".nan"),
    *("2026-11-22", "true", "No", "null", "~", "'", '"', "\\", "#", " #", ":", ": ", "- ", "? "),
    *("|", ">", "[", "]", "{", "}", ",", "&", "*", "!", "%", "@", "`", "=", "<<", "---", "..."),
    *('{"a": "b"}', "data: x"),
]
TEXTS = st.text() | st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=25,
)  # fmt: skip


@given(VALUES)
@example({"a": "x" * 5000, "b" * 5000: {"c" * 1001: ["d " * 900]}})
@example({"a": "ends in a blank line\n\n"})
@example(["a\n\n\n"])
@example({"a": ["x\ny", ["x\ny\n", {"b": "x\ny\n"}], []], "c": [[1, 2], [1.5, 1e-7], {}]})
def test_every_reader_reads_what_was_written(value: Any) -> None:
    text = dump(value)
    wanted = json.dumps(value)

    assert json.dumps(parse(text.encode())) == wanted
    assert json.dumps(yaml.safe_load(text)) == wanted
    assert json.dumps(yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))) == wanted  # noqa: S506
    assert dump(parse(text.encode())) == text


@pytest.mark.parametrize("forced", ["", "1"], ids=["with PyYAML", "without"])
@given(VALUES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_agenttape_reads_what_was_written(
    forced: str, monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    monkeypatch.setenv("AGENTTAPE_FORCE_STDLIB_YAML", forced)
    value = {"root": _with_legible_names(value)}

    assert json.dumps(yaml_io.load(dump(value))) == json.dumps(value)


@pytest.mark.parametrize("line_break", ["\r\n", "\n"])
@given(VALUES)
def test_an_editor_may_have_changed_the_ends_of_lines(line_break: str, value: Any) -> None:
    text = dump(value).replace("\n", line_break)

    assert json.dumps(parse(b"\xef\xbb\xbf" + text.encode())) == json.dumps(value)


def _with_legible_names(value: Any) -> Any:
    # The one limit of AgentTape's own parser.
    match value:
        case dict():
            return {
                re.sub("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", "_", name): (
                    _with_legible_names(inner)
                )
                for name, inner in value.items()
            }
        case list():
            return [_with_legible_names(inner) for inner in value]
        case _:
            return value


@given(VALUES)
def test_nothing_invisible_or_forbidden_is_written(value: Any) -> None:
    text = dump(value)

    assert not set(text) & {*map(chr, range(10)), *map(chr, range(11, 32)), "\x7f", "\x85"} - {"\t"}
    assert not set(text) & {"\u2028", "\u2029", "\ufeff", "\ufffe", "\uffff"}
    assert all(line == line.rstrip() for line in text.split("\n"))


@given(VALUES, st.integers(1, 5))
def test_a_large_text_is_written_as_a_small_one(value: Any, length: int) -> None:
    whole = dump(value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "SLICE", length)
        assert dump(value) == whole


@pytest.mark.parametrize("text", ["plain words", "a\tb", "it's", "a #b", "a:b", "x \ny", "x\ny "])
def test_a_text_is_written_alike_in_slices_of_any_length(text: str) -> None:
    whole = [dump({"text": text}), dump([f'a"{text}'])]

    for length in range(1, len(text) + 2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer, "SLICE", length)
            assert [dump({"text": text}), dump([f'a"{text}'])] == whole


@pytest.mark.slow
def test_no_search_goes_through_a_large_text_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []

    class Pattern:
        def __init__(self, pattern: re.Pattern[str]) -> None:
            self.pattern = pattern

        def search(self, text: str, start: int = 0, end: int = sys.maxsize) -> Any:
            searched.append(min(end, len(text)) - start)
            return self.pattern.search(text, start, end)

        def fullmatch(self, text: str) -> Any:
            searched.append(len(text))
            return self.pattern.fullmatch(text)

        def sub(self, by: Any, text: str) -> str:
            searched.append(len(text))
            return self.pattern.sub(by, text)

    for name in (
        "_PLAIN",
        "_UNFIT_FOR_PLAIN",
        "_UNFIT_FOR_A_LINE",
        "_UNFIT_FOR_A_BLOCK",
        "_ESCAPED",
    ):
        monkeypatch.setattr(writer, name, Pattern(getattr(writer, name)))
    for text in ("ab" * 500_000, "ab" * 500_000 + "=", "ab\t" * 400_000, "a\nb" * 400_000):
        pieces = list(writer.pieces({"text": text, "more": [text[:1000]] * 2_000}))
        assert parse(b"".join(pieces)) == {"text": text, "more": [text[:1000]] * 2_000}
        assert max(map(len, pieces)) < len(text) + 1024 * 1024

    assert max(searched) <= 256 * 1024 + 1


def test_the_layout_is_that_of_people() -> None:
    value: dict[str, Json] = {
        "url": "https://x/y?z=1",
        "accept": "*/*",
        "version": "HTTP/1.1",
        "id": "0fdb-1",
        "when": "2026-11-22",
        "said": "no",
        "text": 'data: {"a": 1}\n\ndata: [DONE]\n\n',
        "poem": "two\n  lines",
        "line": "one\n",
        "escape": "\x1b[0m # \t\\",
        "quote": 'say "hi" # it\'s\n',
        "tabs": "\tx\ny",
        "small": 1e-05,
        "chunks": [[412.5, 48], [431, 14]],
        "empty": {"list": [], "object": {}, "text": "", "none": None},
        "items": [{"role": "user", "content": "a\nb"}, ["x", ["z"]], "two\nlines"],
        "true": True,
    }

    assert dump(value) == (
        "url: 'https://x/y?z=1'\n"
        "accept: '*/*'\n"
        "version: HTTP/1.1\n"
        "id: '0fdb-1'\n"
        "when: '2026-11-22'\n"
        "said: 'no'\n"
        'text: |+\n  data: {"a": 1}\n\n  data: [DONE]\n\n'
        "poem: |-\n  two\n    lines\n"
        "line: |\n  one\n"
        'escape: "\\u001b[0m # \\t\\\\"\n'
        'quote: |\n  say "hi" # it\'s\n'
        'tabs: "\\tx\\ny"\n'
        "small: 1.0e-05\n"
        "chunks:\n  - [412.5, 48]\n  - [431, 14]\n"
        "empty:\n  list: []\n  object: {}\n  text: ''\n  'none': null\n"
        "items:\n"
        "  - role: user\n    content: |-\n      a\n      b\n"
        "  - - x\n    - - z\n"
        '  - "two\\nlines"\n'
        "'true': true\n"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        # AgentTape's own parser would take what follows the mark for a value, or for a comment.
        (['\t": x'], '- "\\t\\u0022: x"\n'),
        ({"a": '\t" #x'}, 'a: "\\t\\" \\u0023x"\n'),
        ({"a": "\t #x"}, 'a: "\\t #x"\n'),
        ("x\n\n", '"x\\n\\n"\n'),
        ({"a": "x\n\n"}, "a: |+\n  x\n\n...\n"),
        ({"a": " x\ny"}, 'a: " x\\ny"\n'),
        ({"a": "x \ny"}, 'a: "x \\ny"\n'),
        ({"a": "x\ny "}, 'a: "x\\ny "\n'),
        (["y", "N", "oFF", "None", "Y "], "- 'y'\n- 'N'\n- 'oFF'\n- 'None'\n- 'Y '\n"),
        ({"a": "x\u3000\ny"}, 'a: "x\u3000\\ny"\n'),
        ({"k" * 1001: {"a": 1}}, f"? {'k' * 1001}\n:\n  a: 1\n"),
        ([], "[]\n"),
        (None, "null\n"),
    ],
)
def test_a_text_that_a_reader_would_misread_is_quoted_or_escaped(value: Any, text: str) -> None:
    assert dump(value) == text
    assert parse(text.encode()) == value


def test_values_as_deep_as_json_allows_may_be_written() -> None:
    value: Any = "x"
    for depth in range(MAX_DEPTH):
        value = [value] if depth % 2 else {"a": value}

    assert parse(dump(value).encode()) == value
