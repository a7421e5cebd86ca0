"""Makes a command trust an additional authority, by the variables that name authorities.

Machines preset these variables, and every program reads a different variable. So all variables name
one file, with the authorities of before and the new authority.
"""

import os
import re
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

BUNDLE_VARIABLES = (
    "SSL_CERT_FILE",  # OpenSSL: Python, Ruby, Go, Rust with the system's authorities, Codex
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",  # curl, and requests where the one above is not set
    "AWS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "DENO_CERT",
    "GIT_SSL_CAINFO",
    "CODEX_CA_CERTIFICATE",
    "PIP_CERT",
    "NPM_CONFIG_CAFILE",
    "npm_config_cafile",
    "CARGO_HTTP_CAINFO",
    "BUNDLE_SSL_CA_CERT",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HTTPLIB2_CA_CERTS",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "NIX_SSL_CERT_FILE",
    "HEX_CACERTS_PATH",
)
"""The variables by which clients find certificate authorities."""

UNSET_VARIABLES = ("SSL_CERT_DIR",)
"""Variables by which a client would read further authorities."""

_CERTIFICATE = re.compile(
    rb"-----BEGIN (?:TRUSTED )?CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END (?:TRUSTED )?CERTIFICATE-----"
)


def bundle(authority: bytes, environ: Mapping[str, str]) -> bytes:
    """The authorities of the environment and a further authority, in PEM."""
    certificates = dict.fromkeys(
        certificate for file in _files(environ) for certificate in _CERTIFICATE.findall(_read(file))
    )
    return b"\n".join([*certificates, authority])


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    """The files of authorities: those of the variables, or else of the system."""
    named = [environ[name] for name in BUNDLE_VARIABLES if environ.get(name)]
    yield from (Path(path) for path in dict.fromkeys(named))
    system = ssl.get_default_verify_paths()
    if not environ.get("SSL_CERT_FILE") and system.openssl_cafile:
        yield Path(system.openssl_cafile)
        yield from _OF_SYSTEMS
    for folder in environ.get("SSL_CERT_DIR", "").split(os.pathsep):
        if folder:
            yield from sorted(Path(folder).glob("*"))


_OF_SYSTEMS = tuple(
    Path(path)
    for path in (
        "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine, Arch
        "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora
        "/etc/ssl/ca-bundle.pem",  # openSUSE
        "/etc/ssl/cert.pem",  # macOS, Alpine
    )
)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
