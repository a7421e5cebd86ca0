"""Which addresses a looked-up name may lead to."""

from ipaddress import ip_address, ip_network

import pytest

from tapeway.core.http.addresses import refusal


@pytest.mark.parametrize(
    ("address", "anyone", "public"),
    [
        ("93.184.216.34", None, None),
        ("2606:4700::1111", None, None),
        ("127.0.0.1", "loopback", "loopback"),
        ("127.9.9.9", "loopback", "loopback"),
        ("::1", "loopback", "loopback"),
        ("::ffff:127.0.0.1", "loopback", "loopback"),
        ("169.254.169.254", "link-local", "link-local"),
        ("::ffff:169.254.169.254", "link-local", "link-local"),
        ("fe80::1", "link-local", "link-local"),
        ("224.0.0.1", "not a host's", "not a host's"),
        ("ff02::1", "not a host's", "not a host's"),
        ("0.0.0.0", "not a host's", "not a host's"),
        ("::", "not a host's", "not a host's"),
        ("::ffff:0.0.0.0", "not a host's", "not a host's"),
        ("10.0.0.5", None, "private"),
        ("172.16.0.1", None, "private"),
        ("192.168.1.1", None, "private"),
        ("100.64.0.1", None, "private"),
        ("fd00::1", None, "private"),
        ("::ffff:10.0.0.5", None, "private"),
    ],
)
def test_a_looked_up_address_is_refused_for_what_it_is(
    address: str, anyone: str | None, public: str | None
) -> None:
    found = ip_address(address)

    assert refusal(found, public_only=False, allowed=()) == anyone
    assert refusal(found, public_only=True, allowed=()) == public


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("127.0.0.1", "127.0.0.0/8"),
        ("::ffff:127.0.0.1", "127.0.0.1/32"),
        ("169.254.1.1", "169.254.0.0/16"),
        ("10.1.2.3", "10.0.0.0/8"),
        ("fd00::1", "fd00::/8"),
    ],
)
def test_an_address_that_was_allowed_is_let_through(address: str, network: str) -> None:
    allowed = [ip_network("203.0.113.0/24"), ip_network("2001:db8::/32"), ip_network(network)]

    assert refusal(ip_address(address), public_only=True, allowed=allowed) is None


def test_a_network_that_was_allowed_lets_no_other_through() -> None:
    allowed = [ip_network("127.0.0.1/32")]

    assert refusal(ip_address("127.0.0.2"), public_only=False, allowed=allowed) == "loopback"
