"""Which requests are one call that an SDK repeated."""

import pytest

from tapeway.core.http.sdk_conventions import attempt_number, client_ids
from tapeway.core.model.messages import Headers
from tapeway.core.model.request_fields import RequestFields


def stainless(value: bytes) -> Headers:
    return ((b"host", b"x"), (b"X-Stainless-Retry-Count", value))


def amazon(value: bytes) -> Headers:
    return ((b"Amz-Sdk-Request", value),)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), None),
        (stainless(b"0"), 1),
        (stainless(b"1"), 2),
        (stainless(b"12"), 13),
        (stainless(b""), None),
        (stainless(b"-1"), None),
        (stainless(b"1.0"), None),
        (stainless(b"\xb2"), None),
        (stainless(b"9" * 5000), None),
        (amazon(b"attempt=1"), 1),
        (amazon(b"attempt=2; max=3"), 2),
        (amazon(b"ttl=20261122T020000Z; attempt=3; max=5"), 3),
        (amazon(b"max=3;attempt=2"), 2),
        (amazon(b"max=3"), None),
        (amazon(b"reattempt=2; max=3"), None),
        (amazon(b"attempt=x"), None),
    ],
)
def test_a_client_says_which_try_it_is(headers: Headers, expected: int | None) -> None:
    assert attempt_number(RequestFields(headers).first) == expected


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize(
    ("value", "trace"),
    [
        (f"00-{TRACE}-00f067aa0ba902b7-01", TRACE),
        (f"01-{TRACE}-00f067aa0ba902b7-01-later", TRACE),
        (f"ff-{TRACE}-00f067aa0ba902b7-01", None),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", None),
        (f"00-{TRACE}", None),
        ("", None),
    ],
)
def test_the_trace_is_that_of_a_valid_traceparent(value: str, trace: str | None) -> None:
    assert client_ids({b"traceparent": value.encode()}) == (None, trace)


@pytest.mark.parametrize(
    ("headers", "id"),
    [
        (((b"X-Request-ID", b"a-1"),), b"a-1"),
        (((b"x-client-request-id", b"b"),), b"b"),
        (((b"x-ms-client-request-id", b"c"), (b"x-request-id", b"a")), b"a"),
        (((b"x-request-id", b"two words"), (b"x-client-request-id", b"b")), b"b"),
        (((b"x-request-id", b"caf\xe9"),), None),
        (((b"x-request-id", b""),), None),
        ((), None),
    ],
)
def test_the_id_of_a_request_is_visible_ascii(headers: Headers, id: bytes | None) -> None:
    assert client_ids(RequestFields(headers).first) == (id, None)
