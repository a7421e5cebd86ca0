"""What the header of a request says, and that it is read once."""

from dataclasses import replace

import pytest

from tapeway.core.model.messages import Headers, Request
from tapeway.core.model.request_fields import (
    MATCH_KEY_HEADERS,
    RequestFields,
    decides,
    media_type,
    stored_fields,
)
from tapeway.core.redaction.credentials import is_credential_header

EVERYTHING: Headers = (
    (b"Host", b"localhost:8080"),
    (b"EXPECT", b"100-continue"),
    (b"Upgrade", b"h2c"),
    (b"Tapeway-Cassette", b"smoke"),
    (b"Content-Type", b"application/json"),
    (b"content-type", b"text/plain"),
    (b"Content-Encoding", b"gzip"),
    (b"Authorization", b"Bearer 0123456789abc"),
)


def test_a_header_is_read_in_any_case_and_the_first_field_counts() -> None:
    read = RequestFields(EVERYTHING)

    assert read.value(b"host") == b"localhost:8080"
    assert (read.value(b"expect"), read.value(b"upgrade")) == (b"100-continue", b"h2c")
    assert (read.value(b"tapeway-cassette"), read.content_type) == (b"smoke", b"application/json")
    assert read.content_encoding == b"gzip"


def test_what_is_not_there_is_none() -> None:
    read = RequestFields(())

    assert read.value(b"host") is None
    assert (read.content_type, read.content_encoding) == (b"", None)


def test_the_blanks_after_a_value_are_left_out() -> None:
    assert RequestFields(((b"Host", b"localhost \t"),)).value(b"host") == b"localhost"


def test_what_was_read_shows_no_credential_when_printed() -> None:
    assert "0123456789abc" not in repr(RequestFields(EVERYTHING))


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        (b"text/html", b"text/html"),
        (b"Text/Event-Stream; charset=utf-8", b"text/event-stream"),
        (b" application/json ;q=1", b"application/json"),
        (b"", b""),
    ],
)
def test_a_media_type_has_no_parameters_and_is_in_lower_case(
    content_type: bytes, expected: bytes
) -> None:
    assert media_type(content_type) == expected


def test_no_field_that_decides_can_carry_a_credential() -> None:
    names = [
        *(b"x-ms-token", b"x-ms-auth-token", b"x-ms-access-key", b"x-ms-api-key", b"x-ms-secret"),
        *(b"x-ms-authorization", b"x-ms-authorization-auxiliary", b"x-ms-encryption-key"),
        *(b"x-ms-signature", b"x-ms-password", b"x-ms-copy-source-authorization"),
    ]

    assert not [name for name in names if decides(name, b"value")]
    assert not [name for name in MATCH_KEY_HEADERS if is_credential_header(name)]


def test_a_request_and_its_copies_read_their_header_once() -> None:
    request = Request("openai", "POST", "/v1/x", EVERYTHING)

    assert request.fields is request.fields
    assert replace(request, body=b"{}").fields is request.fields


def test_a_copy_with_another_header_reads_that_one() -> None:
    request = Request("openai", "POST", "/v1/x", EVERYTHING)
    other = replace(request, headers=((b"Host", b"other"),), body=request.fields.content_type)

    assert other.fields.value(b"host") == b"other"


def test_what_was_read_does_not_tell_requests_apart() -> None:
    request, equal = (Request("openai", "GET", "/v1/x", EVERYTHING) for _ in range(2))

    assert request.fields is not equal.fields
    assert request == equal
    assert "Bearer" not in repr(replace(request, headers=()))


def test_stored_requests_with_equal_headers_share_what_was_read() -> None:
    accept: Headers = ((b"Accept", b"*/*"),)
    equal = tuple([(bytes(bytearray(name)), value) for name, value in accept])

    assert stored_fields(accept) is stored_fields(equal)
