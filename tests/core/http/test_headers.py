"""Which fields travel and which are kept, and what a request's header says."""

import pytest

from tapeway.core.http import headers
from tapeway.core.http.headers import (
    HOP_BY_HOP,
    OWN,
    STORED_REQUEST_HEADERS,
    end_to_end,
    find_header,
    stored_request_headers,
)
from tapeway.core.model.messages import Headers
from tapeway.core.model.request_fields import MATCH_KEY_HEADERS, RequestFields, decides, media_type
from tapeway.core.redaction.credentials import is_credential_header

MIXED: Headers = ((b"X-A", b"1"), (b"x-b", b"2"), (b"X-a", b"3"), (b"Accept", b"*/*"))
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


def test_the_first_field_of_a_name_is_found_in_any_case() -> None:
    assert find_header(MIXED, b"x-a") == b"1"
    assert find_header(MIXED, b"x-c") is None


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP))
def test_a_field_of_one_connection_does_not_travel(name: bytes) -> None:
    assert end_to_end(((name.title(), b"v"), *MIXED)) == MIXED


@pytest.mark.parametrize("options", [b"X-A", b"close, x-a", b"x-a,keep-alive", b" ,X-a , ,"])
def test_a_field_that_connection_names_does_not_travel(options: bytes) -> None:
    assert end_to_end(((b"Connection", options), *MIXED)) == ((b"x-b", b"2"), (b"Accept", b"*/*"))


def test_every_connection_field_counts() -> None:
    sent = ((b"Connection", b"x-a"), (b"connection", b"x-b"), *MIXED)

    assert end_to_end(sent) == ((b"Accept", b"*/*"),)


def test_what_is_to_be_dropped_is_dropped_in_any_case() -> None:
    sent = ((b"Tapeway-Outcome", b"live"), *MIXED)

    assert end_to_end(sent, drop=OWN | {b"accept"}) == MIXED[:3]


def test_authentication_for_a_proxy_travels() -> None:
    sent = ((b"Proxy-Authorization", b"Basic x"),)

    assert end_to_end(sent) == sent


def test_only_fields_on_the_list_are_stored_of_a_request() -> None:
    sent = ((b"User-Agent", b"u"), (b"Accept", b"a"), (b"X-New", b"n"), (b"ACCEPT", b"b"))

    assert stored_request_headers(sent) == ((b"Accept", b"a"), (b"ACCEPT", b"b"))


def test_no_field_on_the_list_is_one_for_credentials() -> None:
    assert [name for name in sorted(STORED_REQUEST_HEADERS) if is_credential_header(name)] == []


def test_a_header_is_read_in_any_case_and_the_first_field_counts() -> None:
    read = RequestFields(EVERYTHING)

    assert read.value(b"host") == b"localhost:8080"
    assert (read.value(b"expect"), read.value(b"upgrade")) == (b"100-continue", b"h2c")
    assert (read.value(b"tapeway-cassette"), read.content_type) == (b"smoke", b"application/json")
    assert read.content_encoding == b"gzip"
    assert headers.stored_request_headers(EVERYTHING) == EVERYTHING[4:7]


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
