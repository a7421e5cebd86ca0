"""How often a token may be guessed."""

import pytest

from tapeway.admin.auth import BURST, PER_SECOND, WrongTokens


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1e6

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_burst_is_exact(clock: Clock) -> None:
    attempts = WrongTokens(clock)

    for _ in range(BURST):
        assert not attempts.exhausted("192.0.2.1")
        attempts.failed("192.0.2.1")

    assert attempts.exhausted("192.0.2.1")


def test_tries_come_back_one_by_one(clock: Clock) -> None:
    attempts = WrongTokens(clock)
    for _ in range(BURST):
        attempts.failed("192.0.2.1")

    clock.now += 1.5 / PER_SECOND
    first = attempts.exhausted("192.0.2.1")
    attempts.failed("192.0.2.1")

    assert not first
    assert attempts.exhausted("192.0.2.1")


def test_one_address_does_not_use_up_the_tries_of_another(clock: Clock) -> None:
    attempts = WrongTokens(clock)
    for _ in range(BURST):
        attempts.failed("192.0.2.1")

    assert not attempts.exhausted("192.0.2.2")
    assert attempts.exhausted("192.0.2.1")


def test_a_network_of_version_6_counts_as_one(clock: Clock) -> None:
    attempts = WrongTokens(clock)
    for host in range(BURST):
        attempts.failed(f"2001:db8::{host:x}")

    assert attempts.exhausted("2001:db8::ffff:1")
    assert not attempts.exhausted("2001:db8:0:1::1")


def test_the_memory_of_addresses_is_bounded(clock: Clock) -> None:
    attempts = WrongTokens(clock)
    for number in range(5000):
        attempts.failed(f"10.0.{number >> 8}.{number & 255}")

    assert len(attempts._paid_until) == 4096
