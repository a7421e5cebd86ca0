"""Certificates of a PostgreSQL connection: their files, and the authorities of the system."""

import os
import ssl
from pathlib import Path

from tapeway.errors import StoreError
from tapeway.stores.postgres.address import PostgresAddress, TlsOptions

_VERSIONS = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


def context(address: PostgresAddress) -> ssl.SSLContext | None:
    """The TLS settings where the authorities of the system decide; None leaves them to the driver.

    libpq ends with an error where `verify-full` finds no file of authorities. Hosters hand out such
    addresses, and their certificates are of public authorities.

    Raises StoreError for a file that cannot be read, whose name the driver would not tell.
    """
    options = address.tls
    for name, path in options.files.items():
        _check_readable(address, name, path)
    if not options.system and (options.mode != "verify-full" or _has_own_authorities(options)):
        return None
    try:
        return _system_context(options)
    except (OSError, ValueError) as exc:
        raise StoreError(
            f"{address.shown}: its certificates cannot be used ({type(exc).__name__})", status=503
        ) from None


def _check_readable(address: PostgresAddress, name: str, path: str) -> None:
    try:
        with open(path, "rb"):
            return
    except OSError as exc:
        raise StoreError(
            f"{address.shown}: {name}={path} cannot be read ({exc.strerror})", status=503
        ) from exc


def _has_own_authorities(options: TlsOptions) -> bool:
    return (
        "sslrootcert" in options.files
        or bool(os.environ.get("PGSSLROOTCERT"))
        or Path("~/.postgresql/root.crt").expanduser().exists()
    )


def _system_context(options: TlsOptions) -> ssl.SSLContext:
    made, files = ssl.create_default_context(), options.files
    if "sslcert" in files:
        made.load_cert_chain(files["sslcert"], files.get("sslkey"), options.password or "")
    if "sslcrl" in files:
        made.load_verify_locations(cafile=files["sslcrl"])
        made.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_CHAIN
    if options.oldest is not None:
        made.minimum_version = _version(options.oldest)
    if options.newest is not None:
        made.maximum_version = _version(options.newest)
    made.set_alpn_protocols(["postgresql"])
    return made


def _version(name: str) -> ssl.TLSVersion:
    if name not in _VERSIONS:
        raise ValueError(name)
    return _VERSIONS[name]
