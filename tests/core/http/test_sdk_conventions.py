"""Which requests are one call that an SDK repeated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.http.sdk_conventions import MAX_CALLS, Attempt, AttemptHistory, attempt_number
from tapeway.core.model.messages import Headers


def stainless(value: bytes) -> Headers:
    return ((b"host", b"x"), (b"X-Stainless-Retry-Count", value))


def amazon(value: bytes) -> Headers:
    return ((b"Amz-Sdk-Request", value),)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), 0),
        (stainless(b"0"), 1),
        (stainless(b"1"), 2),
        (stainless(b"12"), 13),
        (stainless(b""), 0),
        (stainless(b"-1"), 0),
        (stainless(b"1.0"), 0),
        (stainless(b"\xb2"), 0),
        (stainless(b"9" * 5000), 0),
        (amazon(b"attempt=1"), 1),
        (amazon(b"attempt=2; max=3"), 2),
        (amazon(b"ttl=20261122T020000Z; attempt=3; max=5"), 3),
        (amazon(b"max=3;attempt=2"), 2),
        (amazon(b"max=3"), 0),
        (amazon(b"reattempt=2; max=3"), 0),
        (amazon(b"attempt=x"), 0),
    ],
)
def test_a_client_says_which_try_it_is(headers: Headers, expected: int) -> None:
    assert attempt_number(headers) == expected


def test_a_try_repeats_the_one_before_it_of_the_same_request() -> None:
    attempts = AttemptHistory()

    assert attempts.follow(Attempt(b"a", 1), "live") is None
    assert attempts.follow(Attempt(b"b", 2), "recorded") is None
    assert attempts.follow(Attempt(b"a", 2), "error") == "live"
    assert attempts.follow(Attempt(b"a", 3), "recorded") == "error"
    assert attempts.follow(Attempt(b"a", 1), "replayed") is None


def test_equal_calls_at_the_same_time_are_each_repeated_once() -> None:
    attempts = AttemptHistory()
    for _ in range(2):
        attempts.follow(Attempt(b"a", 1), "live")

    assert [attempts.follow(Attempt(b"a", 2), "replayed") for _ in range(3)] == [
        "live",
        "live",
        None,
    ]


def test_calls_that_are_never_repeated_do_not_pile_up() -> None:
    attempts = AttemptHistory()
    for at in range(3 * MAX_CALLS):
        attempts.follow(Attempt(b"%d" % at, 1), "replayed")
        attempts.follow(Attempt(b"same", 1), "replayed")

    assert len(attempts._ended) == MAX_CALLS
    assert max(map(len, attempts._ended.values())) < 20
    assert attempts.follow(Attempt(b"0", 2), "replayed") is None
    assert attempts.follow(Attempt(b"same", 2), "replayed") == "replayed"


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.integers(1, 4)), max_size=14))
def test_a_try_is_repeated_at_most_once(tries: list[tuple[bytes, int]]) -> None:
    attempts = AttemptHistory()
    repeats = [attempts.follow(Attempt(*each), "live") is not None for each in tries]

    for key in (b"a", b"b"):
        for tried in range(2, 5):
            found = [
                repeat for repeat, each in zip(repeats, tries, strict=True) if each == (key, tried)
            ]
            assert sum(found) <= tries.count((key, tried - 1))
            assert sum(found) <= len(found)
