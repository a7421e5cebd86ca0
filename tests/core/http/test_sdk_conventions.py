"""Which requests are one call that an SDK repeated."""

import pytest

from tapeway.core.http.headers import request_fields
from tapeway.core.http.sdk_conventions import attempt_number
from tapeway.core.model.messages import Headers


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
    assert attempt_number(request_fields(headers).first) == expected
