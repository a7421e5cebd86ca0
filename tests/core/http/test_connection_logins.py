"""Logins that hold for a connection are told from those that hold for a request."""

import pytest

from tapeway.core.http.connection_logins import logs_in


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"WWW-Authenticate", b"NTLM"),
        (b"www-authenticate", b"negotiate"),
        (b"WWW-Authenticate", b"Negotiate oYG2MIGz"),
        (b"WWW-Authenticate", b'Basic realm="x", NTLM'),
        (b"WWW-Authenticate", b"Negotiate,Basic realm=x"),
        (b"Proxy-Authenticate", b"Kerberos"),
        (b"Authorization", b"CredSSP TlRM"),
        (b"Proxy-Authorization", b"Nego2 TlRM"),
        (b"Persistent-Auth", b"true"),
    ],
)
def test_a_login_for_a_connection_is_recognised(name: bytes, value: bytes) -> None:
    assert logs_in(((b"X-A", b"b"), (name, value)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"WWW-Authenticate", b'Basic realm="for all, NTLM too"'),
        (b"WWW-Authenticate", b'Digest realm="\\", NTLM", nonce=a'),
        (b"WWW-Authenticate", b"Bearer"),
        (b"Authorization", b"Bearer NTLM"),
        (b"Authorization", b"NTLMx TlRM"),
        (b"Persistent-Auth", b"False"),
        (b"X-Authenticate", b"NTLM"),
    ],
)
def test_no_other_field_is_one(name: bytes, value: bytes) -> None:
    assert not logs_in(((name, value),))
