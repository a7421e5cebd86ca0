"""Digests are those of hashlib, and short ones do not hand the interpreter to another thread."""

import hashlib
import sys
from collections.abc import Callable
from threading import Lock, Thread

import pytest

from tapeway.core.digests import sha256, update

LENGTHS = (0, 1, 2047, 2048, 4094, 4095, 65_536, 65_537, 200_000)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_digest_is_that_of_hashlib(length: int) -> None:
    data = bytes(index % 251 for index in range(length))
    digest = hashlib.sha256(b"before")
    update(digest, data)

    assert sha256(data).digest() == hashlib.sha256(data).digest()
    assert digest.digest() == hashlib.sha256(b"before" + data).digest()


@pytest.mark.parametrize("length", [2047, 2048, 10_000, 65_536])
def test_no_other_thread_runs_while_short_digests_are_computed(length: int) -> None:
    assert not another_ran(sha256, bytes(length))


def another_ran(compute: Callable[[bytes], object], data: bytes) -> bool:
    """Whether a thread that waits for the interpreter got it during many of these calls."""
    ran: list[bool] = []
    gate = Lock()
    gate.acquire()

    def run() -> None:
        with gate:
            ran.append(True)

    other = Thread(target=run)
    other.start()
    interval = sys.getswitchinterval()
    # So that nothing but the calls can let it go.
    sys.setswitchinterval(1000)
    try:
        gate.release()
        for _ in range(10_000_000 // len(data)):
            compute(data)
        return bool(ran)
    finally:
        sys.setswitchinterval(interval)
        other.join()
