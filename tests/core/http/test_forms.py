"""The parts of a form, as far as matching needs them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.http.forms import (
    LONGEST_PAIR,
    MOST_PAIRS,
    FormPart,
    is_form,
    parse_multipart,
)

FORM = b"multipart/form-data; boundary=b1"


def body(*parts: bytes, boundary: bytes = b"b1") -> bytes:
    opened = b"".join([b"--" + boundary + b"\r\n" + part + b"\r\n" for part in parts])
    return opened + b"--" + boundary + b"--\r\n"


def field(disposition: bytes, content: bytes = b"x") -> bytes:
    return b"Content-Disposition: form-data; " + disposition + b"\r\n\r\n" + content


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (field(b'name="a"', b"1"), FormPart("a", None, None, b"1")),
        (field(b"name=a", b"1"), FormPart("a", None, None, b"1")),
        (field(b'NAME="a"; FileName="f.txt"'), FormPart("a", "f.txt", None, b"x")),
        (field(b'filename="f"; name="a"'), FormPart("a", "f", None, b"x")),
        (field(b'name="a; filename=no"'), FormPart("a; filename=no", None, None, b"x")),
        (field(b'name="a\\"b"'), FormPart('a\\"b', None, None, b"x")),
        (field(b'name=""'), FormPart("", None, None, b"x")),
        (field('name="é"'.encode()), FormPart("é", None, None, b"x")),
        (
            field(b"name=\"a\"; filename*=UTF-8''%e2%82%ac"),
            FormPart("a", "UTF-8''%e2%82%ac", None, b"x"),
        ),
        (field(b'name="a"', b""), FormPart("a", None, None, b"")),
        (field(b'name="a"', b"\r\n--b\r\n--b12"), FormPart("a", None, None, b"\r\n--b\r\n--b12")),
        (b"\r\nno header", FormPart(None, None, None, b"no header")),
        (
            b'content-type: text/plain\r\nContent-disposition:form-data; name="a"\r\n\r\nx',
            FormPart("a", None, "text/plain", b"x"),
        ),
    ],
)
def test_a_part_is_its_name_its_file_its_type_and_its_content(
    part: bytes, expected: FormPart
) -> None:
    assert parse_multipart(FORM, body(part)) == [expected]


def test_parts_come_in_the_order_they_were_sent() -> None:
    parts = parse_multipart(FORM, body(field(b'name="b"'), field(b'name="a"'), field(b'name="b"')))

    assert parts is not None
    assert [part.name for part in parts] == ["b", "a", "b"]


def test_a_form_without_parts_has_none() -> None:
    assert parse_multipart(FORM, body()) == []


@pytest.mark.parametrize(
    "content_type",
    [
        b'multipart/form-data; boundary="b1"',
        b"multipart/form-data;boundary=b1;charset=utf-8",
        b"multipart/form-data; Boundary=b1",
        b"Multipart/Form-Data; charset=utf-8; BOUNDARY=b1",
    ],
)
def test_the_boundary_is_found_however_it_is_written(content_type: bytes) -> None:
    assert parse_multipart(content_type, body(field(b'name="a"'))) is not None


def test_padding_preamble_and_epilogue_are_no_part() -> None:
    whole = b"preamble\r\n--b1 \t\r\n" + field(b'name="a"') + b"\r\n--b1--\r\nepilogue"

    assert parse_multipart(FORM, whole) == [FormPart("a", None, None, b"x")]


@pytest.mark.parametrize(
    ("content_type", "content"),
    [
        (b"multipart/form-data", body(field(b'name="a"'))),
        (FORM, b""),
        (FORM, b"no boundary anywhere"),
        (FORM, body(field(b'name="a"')).removesuffix(b"--\r\n")),
        (FORM, body(field(b'name="a"')).replace(b"\r\n", b"\n")),
        (FORM, body(b"Content-Disposition: form-data; name=a\r\nno empty line")),
        (FORM, body(field(b'name="a"'), boundary=b"other")),
        (FORM, body(field(b'name="a"')) + body(field(b'name="b"'))),
        (FORM, body(field(b'name="a"'))[:-2] + b" A: b\r\n\r\nx\r\n--b1--"),
    ],
    ids=[
        "no boundary",
        "empty",
        "other text",
        "not ended",
        "bare LF",
        "no body",
        "another",
        "ended twice",
        "ended early",
    ],
)
def test_what_is_not_what_its_type_says_has_no_parts(content_type: bytes, content: bytes) -> None:
    assert parse_multipart(content_type, content) is None


names = st.text(st.characters(codec="utf-8", exclude_characters='"\\\r\n\0'), max_size=8)
contents = st.binary(max_size=30).filter(lambda data: b"--b1" not in data)


@given(st.lists(st.tuples(names, st.none() | names, contents), max_size=5))
def test_every_form_comes_apart_as_it_was_put_together(
    sent: list[tuple[str, str | None, bytes]],
) -> None:
    fields = [
        field(
            f'name="{name}"'.encode()
            + (f'; filename="{file}"'.encode() if file is not None else b""),
            content,
        )
        for name, file, content in sent
    ]

    assert parse_multipart(FORM, body(*fields)) == [
        FormPart(name, file, None, data) for name, file, data in sent
    ]


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_either_parts_or_not(data: bytes) -> None:
    parse_multipart(FORM, data)
    parse_multipart(FORM, b"--b1\r\n" + data + b"\r\n--b1--")
    parse_multipart(data, data)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b"a=1&b=2", True),
        (b"name=gr%C3%B6%C3%9Fe", True),
        ("name=größe".encode(), False),
        (b"\x89PNG\r\n\x1a\n", False),
        (b"&".join([b"a=1"] * MOST_PAIRS), True),
        (b"&".join([b"a=1"] * (MOST_PAIRS + 1)), False),
        (b"a=" + b"x" * (LONGEST_PAIR - 2) + b"&b=2", True),
        (b"a=" + b"x" * (LONGEST_PAIR - 1) + b"&b=2", False),
    ],
)
def test_a_file_that_is_sent_as_a_form_is_none(sent: bytes, read: bool) -> None:
    assert is_form(sent) is read
