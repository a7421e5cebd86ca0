"""Which fields travel and which are kept."""

import pytest

from tapeway.core.http.headers import (
    HOP_BY_HOP,
    OWN,
    STORED_REQUEST_HEADERS,
    end_to_end,
    find_header,
    stored_request_headers,
)
from tapeway.core.model.messages import Headers
from tapeway.core.redaction.credentials import is_credential_header

MIXED: Headers = ((b"X-A", b"1"), (b"x-b", b"2"), (b"X-a", b"3"), (b"Accept", b"*/*"))


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
