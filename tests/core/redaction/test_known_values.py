"""The ways one value can be written."""

import html
import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus
from xml.sax import saxutils

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapeway.core.redaction.known_values import constant_part, value_pattern


def escaped(characters: str) -> Callable[[str], str]:
    """A JSON writer that also escapes these."""

    def write(text: str) -> str:
        written = json.dumps(text)[1:-1]
        for character in characters:
            written = written.replace(character, f"\\u{ord(character):04x}")
        return written

    return write


def lower_percent(text: str) -> str:
    return re.sub("%..", lambda found: found[0].lower(), quote(text, safe=""))


WRITERS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "percent-encoded": lambda text: quote(text, safe=""),
    "percent-encoded as a path": quote,
    "percent-encoded as a form": quote_plus,
    "percent-encoded in lower case": lower_percent,
    "percent-encoded twice": lambda text: quote(quote(text, safe=""), safe=""),
    "in JSON": lambda text: json.dumps(text)[1:-1],
    "in JSON as UTF-8": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "in JSON in upper case": lambda text: re.sub(
        r"\\u[0-9a-f]{4}", lambda found: "\\u" + found[0][2:].upper(), json.dumps(text)[1:-1]
    ),
    "in JSON with escaped slashes": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "in JSON made for HTML": escaped("<>&"),
    "in JSON made for JavaScript": escaped("<>&='"),
    "in HTML": html.escape,
    "in XML": lambda text: saxutils.escape(text, {'"': "&quot;", "'": "&apos;"}),
    "in XML that is ASCII": lambda text: text.encode("ascii", "xmlcharrefreplace").decode(),
    "in JSON in JSON": lambda text: json.dumps(json.dumps(text)[1:-1])[1:-1],
}

# What a header field can hold.
credentials = st.text(
    st.characters(min_codepoint=0x20, exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20
).filter(lambda text: not text.isdigit())


@pytest.mark.parametrize("writer", WRITERS)
@given(text=credentials)
@example(text="sk-abc/def+ghi==")
@example(text='a b"c\\d/e😀é')
def test_a_value_is_recognised_however_it_is_written(writer: str, text: str) -> None:
    written = WRITERS[writer](text).encode()

    assert re.fullmatch(value_pattern(text.encode()), written)
    assert constant_part(text.encode()) in written


@given(credentials, credentials)
def test_nothing_else_is_taken_for_it(value: str, other: str) -> None:
    plain = [text.replace("+", " ").rstrip("=") for text in (value, other)]
    odd = any("\\" in text or "%" in text for text in (value, other))

    if plain[0] != plain[1] and not odd:
        assert re.fullmatch(value_pattern(value.encode()), other.encode()) is None


@given(st.binary(min_size=1, max_size=20))
def test_bytes_that_are_no_text_are_recognised(value: bytes) -> None:
    if not value.isdigit():
        assert re.fullmatch(value_pattern(value), value, re.DOTALL)


def test_a_plus_may_stand_for_a_space_and_for_itself() -> None:
    for written in (b"ab cd", b"ab+cd", b"ab%20cd", b"ab%2bcd"):
        assert re.fullmatch(value_pattern(b"ab+cd"), written)
        assert re.fullmatch(value_pattern(b"ab cd"), written)


def test_the_padding_of_base64_may_be_left_off() -> None:
    for written in (b"dXNlcg==", b"dXNlcg", b"dXNlcg=", b"dXNlcg%3D%3d"):
        assert re.fullmatch(value_pattern(b"dXNlcg=="), written)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"123456789012", True),
        (b"id 123456789012.", True),
        (b"projects/123456789012/x", True),
        (b'{"a":123456789012}', True),
        (b"0123456789012", False),
        (b"1234567890123", False),
        (b"0.123456789012", False),
        (b"123456789012.5", False),
        (b"123456789012e3", False),
    ],
)
def test_digits_are_not_looked_for_inside_a_longer_number(text: bytes, found: bool) -> None:
    assert (re.search(value_pattern(b"123456789012"), text) is not None) is found


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"sk-abc_d.e", b"sk-abc_d.e"),
        (b"ab/cdef+g", b"cdef"),
        (b"/+=", b""),
        ("é-é".encode(), b"-"),
    ],
)
def test_the_constant_part_is_the_longest_piece_that_no_writer_changes(
    value: bytes, expected: bytes
) -> None:
    assert constant_part(value) == expected


def test_a_run_of_backslashes_is_searched_in_time_linear_in_its_length() -> None:
    assert re.search(value_pattern(b"/secret/"), b"\\" * 1_000_000) is None


def test_many_backslashes_in_a_row_are_matched_in_linear_time() -> None:
    value = b"\\" * 20 + b"x"

    assert re.search(value_pattern(value), b"\\" * 5000) is None
    assert re.fullmatch(value_pattern(value), value)
    assert re.fullmatch(value_pattern(value), json.dumps(value.decode())[1:-1].encode())
