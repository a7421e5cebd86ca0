"""What is UTF-8, and how a text that cannot be written as it is escaped."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.text import (
    decode_utf8,
    escape_octets,
    escape_surrogates,
    is_utf8,
    nearest_names,
    occurs,
    read_utf16,
)


@given(st.binary(max_size=8))
def test_bytes_are_utf8_where_they_decode(data: bytes) -> None:
    found = decode_utf8(data)

    assert is_utf8(data) is (found is not None)
    assert found is None or found.encode() == data


@pytest.mark.parametrize(
    ("text", "encodable", "escaped"),
    [
        ("plain", True, "plain"),
        ("größer 🙂", True, "größer 🙂"),
        ("half \ud83d", False, "half \\ud83d"),
        ("octet \udcff", False, "octet \\udcff"),
    ],
)
def test_a_lone_surrogate_is_escaped(text: str, encodable: bool, escaped: str) -> None:
    assert is_utf8(text) is encodable
    assert escape_surrogates(text) == escaped


def test_an_undecoded_octet_is_escaped_as_an_octet() -> None:
    assert escape_octets("plain") == "plain"
    assert escape_octets("größer") == "größer"
    assert escape_octets(b"odd \xff".decode("utf-8", "surrogateescape")) == "odd \\xff"
    with pytest.raises(UnicodeEncodeError):
        escape_octets("half \ud83d")


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_a_text_in_utf_16_is_read_an_octet_for_each_unit(codec: str) -> None:
    text = 'say "hé" and 漢 and 𝄞'
    mark = "\ufeff" + text

    for data, content_type in (
        (mark.encode(codec), b""),
        (text.encode(codec), f"text/plain; charset={codec.upper().replace('-', '', 1)}".encode()),
        (text.encode(codec), f'text/plain; charset="{codec}"'.encode()),
        ("plain letters".encode(codec), b""),
    ):
        read = read_utf16(data, content_type)

        assert read is not None
        assert read.codec == codec
        assert len(read.text) == len(data) // 2
        assert read.text.endswith((b'say "h\xe9" and \xff and \xff\xff', b"plain letters"))


@pytest.mark.parametrize(
    "data", [b"", b"a", b"plain", b"\0", b"\0\0\0\0", bytes(range(256)), b"a\0b\0\0\0", b"\xff\xfb"]
)
def test_other_octets_are_no_utf_16(data: bytes) -> None:
    assert read_utf16(data) is None
    assert read_utf16(data, b"image/png") is None


@pytest.mark.parametrize("before", range(12))
def test_what_lies_between_two_slices_occurs(before: int) -> None:
    pattern = re.compile(r"needle")

    assert occurs(pattern, "a" * before + "needle" + "a" * 9, 6, at_once=5)
    assert not occurs(pattern, "a" * before + "needl", 6, at_once=5)


def test_the_known_name_that_looks_most_like_a_mistyped_one_comes_first() -> None:
    known = ("listen", "list", "store", "mode")

    assert nearest_names("lsten", known) == ["listen"]
    assert nearest_names("liste", known, 2) == ["listen", "list"]
    assert nearest_names("zzz", iter(known)) == []
