"""The certificates of a run convince strict clients, for the hosts of routes and no others."""

import os
import socket
import ssl
import threading
from pathlib import Path

import pytest

from tapeway.cli.run.authority import Authority
from tapeway.cli.run.trust import BUNDLE_VARIABLES, bundle


def shake_hands(authority: Authority, host: str) -> str | None:
    """The protocol that a strict client agrees on with this host. Raises SSLError."""
    ours = ssl.create_default_context(cadata=authority.pem.decode())
    ours.verify_flags |= ssl.VERIFY_X509_STRICT
    ours.set_alpn_protocols(["h2", "http/1.1"])
    theirs = authority.context_for(host)
    near, far = socket.socketpair()

    def serve() -> None:
        try:
            with theirs.wrap_socket(far, server_side=True):
                pass
        except OSError:
            far.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with ours.wrap_socket(near, server_hostname=host) as tls:
            return tls.selected_alpn_protocol()
    finally:
        near.close()
        thread.join()


@pytest.mark.parametrize(
    "host",
    [
        *("api.openai.com", "bedrock-runtime.eu-west-1.amazonaws.com", "10.1.2.3", "fd00::1"),
        "a" * 60 + ".very-long-name.amazonaws.com",
    ],
)
def test_a_strict_client_trusts_a_host(host: str) -> None:
    names = ["api.openai.com", "amazonaws.com", "10.1.2.3", "fd00::1"]
    assert shake_hands(Authority(names), host) == "http/1.1"


@pytest.mark.parametrize("host", ["example.com", "openai.com", "10.1.2.3", "fd00::1"])
def test_no_client_trusts_the_authority_for_another_host(host: str) -> None:
    authority = Authority(["api.openai.com", "amazonaws.com"])
    with pytest.raises(ssl.SSLCertVerificationError, match="subtree"):
        shake_hands(authority, host)


def test_no_key_is_left_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = os.listdir("/proc/self/fd") if Path("/proc/self/fd").exists() else []
    authority = Authority(["api.openai.com"])
    first = authority.context_for("api.openai.com")

    assert authority.context_for("api.openai.com") is first
    assert b"PRIVATE" not in authority.pem
    assert [*tmp_path.rglob("*")] == []
    assert not before or len(os.listdir("/proc/self/fd")) == len(before)


def test_each_run_has_an_authority_of_its_own() -> None:
    assert Authority(["a.example"]).pem != Authority(["a.example"]).pem


ONE, TWO, THREE = [
    f"-----BEGIN CERTIFICATE-----\n{character * 4}\n-----END CERTIFICATE-----".encode()
    for character in "ABC"
]


def test_a_bundle_has_what_every_variable_named_once(tmp_path: Path) -> None:
    (tmp_path / "one.pem").write_bytes(b"# comment\n" + ONE + b"\n" + TWO + b"\n")
    (tmp_path / "two.pem").write_bytes(TWO)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "three.0").write_bytes(THREE)
    environ = {
        "SSL_CERT_FILE": str(tmp_path / "one.pem"),
        "REQUESTS_CA_BUNDLE": str(tmp_path / "two.pem"),
        "NODE_EXTRA_CA_CERTS": str(tmp_path / "nowhere.pem"),
        "SSL_CERT_DIR": f"{tmp_path}/folder:{tmp_path}/none",
    }
    made = bundle(b"OURS", environ)

    assert [made.count(certificate) for certificate in (ONE, TWO, THREE, b"OURS")] == [1, 1, 1, 1]
    assert b"comment" not in made


def test_a_private_key_beside_a_certificate_stays_where_it_is(tmp_path: Path) -> None:
    key = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    (tmp_path / "both.pem").write_bytes(key + ONE)

    assert b"PRIVATE" not in bundle(b"", {"SSL_CERT_FILE": str(tmp_path / "both.pem")})


def test_without_a_variable_the_system_s_authorities_are_trusted() -> None:
    made = bundle(b"OURS", {})

    assert made.endswith(b"OURS")
    if Path("/etc/ssl/certs/ca-certificates.crt").exists():
        assert made.count(b"BEGIN CERTIFICATE") > 10


def test_no_variable_is_named_twice() -> None:
    assert len(set(BUNDLE_VARIABLES)) == len(BUNDLE_VARIABLES)
