"""Headers that tell equal requests apart are told from those that say nothing."""

import pytest

from tapeway.core.matching.headers.telling import (
    AnsweredFields,
    telling_candidates,
    telling_names,
)
from tapeway.core.model.messages import Headers
from tapeway.core.model.request_fields import RequestFields


def names(*requests: tuple[Headers, str], known: tuple[str, ...] = ()) -> tuple[str, ...]:
    answered = [
        AnsweredFields(telling_candidates(RequestFields(headers)), answer)
        for headers, answer in requests
    ]
    return telling_names(answered, known)


def of(value: bytes, name: bytes = b"X-Tenant") -> Headers:
    return ((name, value), (b"Accept", b"*/*"))


@pytest.mark.parametrize("name", [b"X-Tenant", b"Accept", b"OpenAI-Beta", b"x-account", b"lang"])
def test_a_header_whose_values_go_with_the_answers_is_named(name: bytes) -> None:
    one, two = ((name, b"one"), (b"x-same", b"s")), ((name, b"two"), (b"x-same", b"s"))

    assert names((one, "1"), (two, "2"), (one, "1")) == (name.lower().decode(),)
    assert names((one, "1"), ((), "2")) == (name.lower().decode(), "x-same")
    assert names((one, "1"), (two, "2"), known=(name.lower().decode(),)) == ()


def test_a_poll_and_equal_answers_name_no_header() -> None:
    assert names((of(b"a"), "1"), (of(b"b"), "1")) == ()
    assert names((of(b"a"), "1"), (of(b"a"), "2")) == ()
    assert names((of(b"a"), "1"), (of(b"b"), "2"), (of(b"b"), "3")) == ()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (b"X-Request-Id", (b"a", b"b")),
        (b"traceparent", (b"a", b"b")),
        (b"Authorization", (b"Bearer a", b"Bearer b")),
        (b"X-Api-Key", (b"a", b"b")),
        (b"Cookie", (b"a=1", b"a=2")),
        (b"X-Stainless-Retry-Count", (b"0", b"1")),
        (b"Idempotency-Key", (b"a", b"b")),
        (b"If-None-Match", (b'"a"', b'"b"')),
        (b"Range", (b"bytes=0-1", b"bytes=2-3")),
        (
            b"X-Call",
            (b"0b2c9f30-1c7d-4d3e-8f52-7d2f1f0f9a11", b"f3b2c9f3-1c7d-4d3e-8f52-7d2f1f0f9a11"),
        ),
        (b"X-Time", (b"1732800000", b"1732800001")),
        (b"X-When", (b"Sat, 28 Nov 2026 12:00:00 GMT", b"Sat, 28 Nov 2026 12:00:01 GMT")),
    ],
)
def test_what_clients_write_anew_or_decides_already_is_not_named(
    name: bytes, values: tuple[bytes, bytes]
) -> None:
    assert names((of(values[0], name), "1"), (of(values[1], name), "2")) == ()
