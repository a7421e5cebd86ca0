"""What is remembered of calls with an idempotency key."""

import pytest

from tapeway.engine.editing.changes import MOST_APPENDED, MOST_KEYS, IdempotencyReceipts
from tapeway.errors import AdminError


def test_large_calls_are_forgotten_sooner_than_small_ones() -> None:
    receipts = IdempotencyReceipts()
    first = receipts.of("x", "first", "a", MOST_APPENDED // 2)
    second = receipts.of("x", "second", "b", MOST_APPENDED // 2)
    assert receipts.of("x", "first", "a", MOST_APPENDED // 2) is first

    receipts.of("y", "third", "c", 1)

    assert receipts.of("x", "first", "a", 1) is first
    assert receipts.of("x", "second", "b", 1) is not second


def test_one_call_is_remembered_whatever_its_size() -> None:
    receipts = IdempotencyReceipts()
    large = receipts.of("x", "key", "a", MOST_APPENDED + 1)

    assert receipts.of("x", "key", "a", MOST_APPENDED + 1) is large
    with pytest.raises(AdminError, match="another body"):
        receipts.of("x", "key", "b", 1)


def test_what_a_removed_cassette_held_makes_room() -> None:
    receipts = IdempotencyReceipts()
    receipts.of("x", "key", "a", MOST_APPENDED)
    receipts.forget("x")
    kept = receipts.of("y", "key", "a", MOST_APPENDED - 1)

    receipts.of("y", "next", "b", 1)

    assert receipts.of("y", "key", "a", 1) is kept


def test_no_more_keys_are_remembered_than_that() -> None:
    receipts = IdempotencyReceipts()
    first = receipts.of("x", "0", "a")
    for number in range(1, MOST_KEYS + 1):
        receipts.of("x", str(number), "a")

    assert receipts.of("x", "0", "a") is not first
