"""The ways one value can be written."""

import html
import json
import re
from collections.abc import Callable, Sequence
from urllib.parse import quote, quote_plus
from xml.sax import saxutils

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapeway.core.redaction.credentials import MAX_VALUE, Secret
from tapeway.core.redaction.known_values import (
    PiecewiseRecall,
    RecordedPlaceholders,
    constant_part,
    value_pattern,
)
from tapeway.core.redaction.spans import fitted_placeholder, secret_digest, secret_placeholder


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


VALUE = b"Zq7TnV4mXc9LpR2sWk8HdY3b"
WITH_SIGNS = b"Zq7T/nV4mX+c9LpR2sWk8H=="


def placeholders_of(*values: bytes) -> RecordedPlaceholders:
    recorded = RecordedPlaceholders("run-1")
    for value in values:
        recorded.add(b'{"a": "%b"}' % secret_placeholder(b"run-1", "hf_token", value))
    return recorded


@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "is it {}?",
        "({}).",
        '"{}"',
        "/files/{}/x?a=1",
        "a={}&b",
        "<a>{}</a>",
        "`{}`",
        "{}:x y",
    ],
)
@pytest.mark.parametrize("value", [VALUE, WITH_SIGNS, b"pW9xR3-tLz5Qv7Ym.2KdX8_q"])
def test_the_value_of_a_recorded_placeholder_is_recognised_between_other_characters(
    around: str, value: bytes
) -> None:
    if b"/" in value and "/files" in around:
        value = value.translate(bytes.maketrans(b"+/", b"-_")).strip(b"=")
    text = around.replace("{}", value.decode()).encode()

    assert placeholders_of(value).find([text]) == [Secret("hf_token", value)]
    assert placeholders_of(value[::-1]).find([text]) == []


def test_a_placeholder_with_digits_or_of_a_kept_length_is_recognised_by_too() -> None:
    digest = secret_digest(b"run-1", VALUE)
    old = b"REDACTED.hf_token." + digest[:4].hex().encode()
    for written in (old, fitted_placeholder("hf_token", digest, 30)):
        recorded = RecordedPlaceholders("run-1")
        recorded.add(b"a %b b" % written)
        assert recorded.find([b"it is %b." % VALUE]) == [Secret("hf_token", VALUE)]


def test_what_is_known_and_what_can_be_read_is_not_recognised() -> None:
    word = b"customer_email_address"
    recorded = placeholders_of(VALUE, word)
    assert recorded.find([VALUE, word]) == [Secret("hf_token", VALUE)]

    recorded.leave_out([VALUE])
    assert recorded.find([VALUE]) == []

    recorded.update(placeholders_of(VALUE, WITH_SIGNS))
    assert recorded.find([VALUE, WITH_SIGNS]) == [Secret("hf_token", WITH_SIGNS)]
    assert RecordedPlaceholders("run-2").find([VALUE]) == []


def found_in_pieces(
    recorded: RecordedPlaceholders, pieces: Sequence[bytes], known: Sequence[Secret] = ()
) -> list[Secret]:
    recall = PiecewiseRecall(recorded, known)
    found = [secret for piece in pieces for secret in recall.feed(piece)]
    return [*found, *recall.finish()]


@pytest.mark.parametrize("value", [VALUE, WITH_SIGNS])
def test_a_value_is_recognised_wherever_the_pieces_of_a_text_end(value: bytes) -> None:
    text = b"%b cat: %b, %b" % (b"x" * (2 * MAX_VALUE), value, b"y" * (2 * MAX_VALUE))
    recorded, begin = placeholders_of(value), text.index(value)
    for end in range(begin - 2, begin + len(value) + 3):
        found = found_in_pieces(recorded, [text[:end], text[end:]])
        assert found == [Secret("hf_token", value)]
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    assert found_in_pieces(recorded, pieces) == [Secret("hf_token", value)]


def test_a_part_of_a_run_that_is_no_value_is_none_in_pieces_either() -> None:
    long = b"x" * MAX_VALUE + VALUE
    pieces = [long[at : at + 100] for at in range(0, len(long), 100)]
    assert found_in_pieces(placeholders_of(VALUE), [*pieces, b" ."]) == []


def test_values_that_are_known_are_not_looked_for_in_pieces() -> None:
    known = [Secret("authorization", VALUE)]
    assert found_in_pieces(placeholders_of(VALUE), [VALUE], known) == []
    both = placeholders_of(VALUE, WITH_SIGNS)
    assert Secret("hf_token", WITH_SIGNS) in found_in_pieces(both, [WITH_SIGNS], known)


@pytest.mark.parametrize("tag", [b"\x12", b"*", b"B"])
def test_a_value_with_its_length_before_it_is_recognised_though_a_letter_follows(
    tag: bytes,
) -> None:
    value = VALUE + VALUE[::-1]
    message = b"%b%c%b%b\x04name" % (tag, len(value), value, b"2")
    assert placeholders_of(value).find([message]) == [Secret("hf_token", value)]
