"""What is remembered of calls with an idempotency key."""

import tracemalloc

import pytest

from tapeway.engine.editing import changes
from tapeway.engine.editing.changes import MOST_BYTES, MOST_KEYS, Appended, IdempotencyReceipts
from tapeway.errors import AdminError

FULL = MOST_BYTES // 300
"""With so many interactions a call takes all the room there is."""


def test_large_calls_are_forgotten_sooner_than_small_ones() -> None:
    receipts = IdempotencyReceipts()
    first = receipts.of("x", "first", "a", FULL // 2 - 10)
    second = receipts.of("x", "second", "b", FULL // 2 - 10)
    assert receipts.of("x", "first", "a", FULL // 2 - 10) is first

    receipts.of("y", "third", "c", 30)

    assert receipts.of("x", "first", "a", 1) is first
    assert receipts.of("x", "second", "b", 1) is not second


def test_one_call_is_remembered_whatever_its_size() -> None:
    receipts = IdempotencyReceipts()
    large = receipts.of("x", "key", "a", FULL + 1)

    assert receipts.of("x", "key", "a", FULL + 1) is large
    with pytest.raises(AdminError, match="another body"):
        receipts.of("x", "key", "b", 1)


def test_what_a_removed_cassette_held_makes_room() -> None:
    receipts = IdempotencyReceipts()
    receipts.of("x", "key", "a", FULL)
    receipts.forget("x")
    kept = receipts.of("y", "key", "a", FULL - 20)

    receipts.of("y", "next", "b", 1)

    assert receipts.of("y", "key", "a", 1) is kept


def test_no_more_keys_are_remembered_than_that() -> None:
    receipts = IdempotencyReceipts()
    first = receipts.of("x", "0", "a")
    for number in range(1, MOST_KEYS + 1):
        receipts.of("x", str(number), "a")

    assert receipts.of("x", "0", "a") is not first


def test_what_is_remembered_is_bounded_in_bytes_whatever_names_and_keys_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = MOST_BYTES // 16
    monkeypatch.setattr(changes, "MOST_BYTES", most)
    receipts = IdempotencyReceipts()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(MOST_KEYS // 8):
            receipt = receipts.of("n" * 128, f"{number:0255}", f"{number:064}", 16)
            receipt.appended |= {
                position: Appended(position, f"{number:060}{position}") for position in range(16)
            }
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert 0.5 * most < taken < 1.25 * most
