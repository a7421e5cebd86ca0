"""How often a token may be guessed, and which names lead to the admin listener."""

import pytest

from tapeway.admin.auth import BURST, PER_SECOND, GuessLimiter, hosts_of


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
    attempts = GuessLimiter(clock)

    for _ in range(BURST):
        assert not attempts.exhausted("192.0.2.1")
        attempts.record_failure("192.0.2.1")

    assert attempts.exhausted("192.0.2.1")


def test_tries_come_back_one_by_one(clock: Clock) -> None:
    attempts = GuessLimiter(clock)
    for _ in range(BURST):
        attempts.record_failure("192.0.2.1")

    clock.now += 1.5 / PER_SECOND
    first = attempts.exhausted("192.0.2.1")
    attempts.record_failure("192.0.2.1")

    assert not first
    assert attempts.exhausted("192.0.2.1")


def test_one_address_does_not_use_up_the_tries_of_another(clock: Clock) -> None:
    attempts = GuessLimiter(clock)
    for _ in range(BURST):
        attempts.record_failure("192.0.2.1")

    assert not attempts.exhausted("192.0.2.2")
    assert attempts.exhausted("192.0.2.1")


def test_a_network_of_version_6_counts_as_one(clock: Clock) -> None:
    attempts = GuessLimiter(clock)
    for host in range(BURST):
        attempts.record_failure(f"2001:db8::{host:x}")

    assert attempts.exhausted("2001:db8::ffff:1")
    assert not attempts.exhausted("2001:db8:0:1::1")


def test_the_memory_of_addresses_is_bounded(clock: Clock) -> None:
    attempts = GuessLimiter(clock)
    for _ in range(BURST):
        attempts.record_failure("192.0.2.1")
    exhausted = []
    for number in range(4096):
        exhausted.append(attempts.exhausted("192.0.2.1"))
        attempts.record_failure(f"10.0.{number >> 8}.{number & 255}")

    assert all(exhausted)
    assert not attempts.exhausted("192.0.2.1"), "the oldest address is forgotten"


@pytest.mark.parametrize(
    ("host", "loopback", "everywhere"),
    [
        ("localhost", True, True),
        ("localhost:8081", True, True),
        ("app.localhost", True, True),
        ("127.0.0.1:1", True, True),
        ("127.9.9.9", True, True),
        ("[::1]:8081", True, True),
        ("named.example:8081", True, True),
        ("Named.Example.", True, True),
        ("10.0.0.1", False, True),
        ("[2001:db8::1]", False, True),
        ("tapeway", False, True),
        ("tapeway.ns.svc", False, True),
        ("host.docker.internal", False, True),
        ("box.local:8081", False, True),
        ("evil.example", False, False),
        ("evil.example.", False, False),
        ("local.evil.example", False, False),
        ("evil.example:8081", False, False),
        ("127.0.0.1.evil.example", False, False),
        ("127.0.0.1@evil.example", False, False),
        ("localhost evil", False, False),
        ("", False, False),
        (":8081", False, False),
        ("[::1", False, False),
        ("[evil.example]", False, False),
        ("evil\u2024example", False, False),
    ],
)
def test_a_host_leads_here_or_not(host: str, loopback: bool, everywhere: bool) -> None:
    inside = hosts_of("127.0.0.1", ["named.example"])
    outside = hosts_of("0.0.0.0", ["named.example"])

    assert (inside.allows(host), outside.allows(host)) == (loopback, everywhere)


def test_the_host_it_listens_on_leads_here() -> None:
    assert hosts_of("admin.example").allows("admin.example:8081")
