"""A certificate authority of the tests' own, and servers it vouches for, well or badly."""

import ssl
from datetime import UTC, datetime, timedelta

import trustme

AUTHORITY = trustme.CA()
STRANGER = trustme.CA()


def server(kind: str) -> ssl.SSLContext:
    """A server's side of TLS whose certificate is good, or bad in one way."""
    issuer = STRANGER if kind == "unknown authority" else AUTHORITY
    name = "elsewhere.example" if kind == "another name" else "127.0.0.1"
    expired = datetime.now(UTC) - timedelta(days=1) if kind == "expired" else None
    certificate = issuer.issue_cert(name, not_after=expired)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def client() -> ssl.SSLContext:
    """What `--upstream-ca` makes of the authority's certificate."""
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context
