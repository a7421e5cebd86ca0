"""Which names lead to the admin listener."""

import pytest

from tapeway.admin.auth import HostList


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
    inside = HostList.of("127.0.0.1", ["named.example"])
    outside = HostList.of("0.0.0.0", ["named.example"])

    assert (inside.allows(host), outside.allows(host)) == (loopback, everywhere)


def test_the_host_it_listens_on_leads_here() -> None:
    assert HostList.of("admin.example").allows("admin.example:8081")
