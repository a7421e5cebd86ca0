"""What is UTF-8, and how a text that cannot be written as it is escaped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.text import decode_utf8, escape_octets, escape_surrogates, is_utf8


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
