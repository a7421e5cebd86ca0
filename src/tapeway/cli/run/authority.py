"""The certificate authority of one run, valid for the hosts of routes alone.

The key of the authority is in memory alone. OpenSSL reads the key of each certificate from a file in
memory, or from a private file that is removed at once.
"""

import os
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path

from tapeway.errors import ConfigError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ModuleNotFoundError as exc:
    raise ConfigError("--tls needs the package cryptography: pip install 'tapeway[tls]'") from exc

_BEFORE, _AFTER = timedelta(days=2), timedelta(days=30)
"""Clocks of containers and of a `faketime` may differ. No client accepts more than 398 days."""
_ALL_ADDRESSES = (ip_network("0.0.0.0/0"), ip_network("::/0"))
_ISSUER, _SERVED = "tapeway run", "a service, as served by tapeway run"
"""Subjects. OpenSSL takes an address in a subject for a name, which the constraints do not allow."""


class Authority:
    """Issues certificates for hosts."""

    def __init__(self, names: Iterable[str]) -> None:
        """`names` are addresses, and the names at or below which the hosts are."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._own_certificate(list(names))
        self._contexts: dict[str, ssl.SSLContext] = {}

    @property
    def pem(self) -> bytes:
        """The certificate of the authority, for clients to trust."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def context_for(self, host: str) -> ssl.SSLContext:
        """What serves TLS as this host."""
        if host not in self._contexts:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_alpn_protocols(["http/1.1"])
            with _private_file(self._issued(host) + self.pem) as path:
                context.load_cert_chain(path)
            self._contexts[host] = context
        return self._contexts[host]

    def _own_certificate(self, names: list[str]) -> x509.Certificate:
        permitted = [_general_name(name, is_subtree=True) for name in names]
        excluded: list[x509.GeneralName] = []
        if not any(isinstance(name, x509.IPAddress) for name in permitted):
            # A constraint of names alone says nothing of addresses.
            excluded = [x509.IPAddress(network) for network in _ALL_ADDRESSES]
        usage = _usage(key_cert_sign=True, crl_sign=True)
        key = self._key.public_key()
        return (
            _builder(_ISSUER, _ISSUER, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.NameConstraints(permitted or None, excluded or None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _issued(self, host: str) -> bytes:
        """A new key, and the certificate for it, in PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self._key.public_key()
        certificate = (
            _builder(_SERVED, _ISSUER, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        return key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ) + certificate.public_bytes(serialization.Encoding.PEM)


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _AFTER)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(host: str, *, is_subtree: bool = False) -> x509.GeneralName:
    try:
        address = ip_address(host)
    except ValueError:
        return x509.DNSName(host)
    if not is_subtree:
        return x509.IPAddress(address)
    network: IPv4Network | IPv6Network = ip_network(host)
    return x509.IPAddress(network)


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """A private file with this content, removed at the end of the block."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        with open(os.memfd_create("certificate"), "wb", buffering=0) as opened:
            opened.write(content)
            yield f"/proc/self/fd/{opened.fileno()}"
        return
    with tempfile.NamedTemporaryFile(buffering=0) as opened_file:
        opened_file.write(content)
        yield opened_file.name
