"""The address of a PostgrePostgreSQL store: `postgresql://USER:PASSWORD@HOST/DATABASE?schema=NAME`.

Hosters hand out addresses with the parameters of libpq, which are more than the driver knows. Each has
a row in one of the tables below; any other parameter is refused by its name. Passwords are masked in
what is shown.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from tapeway.errors import ConfigError

DEFAULT_SCHEMA = "tapeway"
DEFAULT_CONNECTIONS = 10
DEFAULT_LEASE_S = 15
DEFAULT_CONNECT_S = 3
MASK = "***"

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_ENDLESS = re.compile(r"0+|-[0-9]+")
_SECRET = frozenset({"password", "sslpassword"})
_MOST_CONNECTIONS = 100
_LONGEST_LEASE_S = 600
_LONGEST_CONNECT_S = 600

_OWN = ("schema", "connections", "lease")
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile")
_DRIVER = (
    *("host", "port", "dbname", "user", "password", "service", "options", "target_session_attrs"),
    *("sslmode", "sslpassword", "sslnegotiation", "krbsrvname", "gsslib", *_FILES),
    *("ssl_min_protocol_version", "ssl_max_protocol_version"),
)
"""What the driver takes from an address as libpq does."""
_TRANSLATED = ("application_name", "fallback_application_name", "connect_timeout", "ssl")
_WITHOUT_EFFECT = (
    *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"),
    *("tcp_user_timeout", "client_encoding", "sslcompression", "sslsni", "sslcertmode"),
    *("gssencmode", "gssdelegation", "channel_binding", "load_balance_hosts", "require_auth"),
    "requirepeer",
)
"""What libpq knows and the driver has nothing for."""
_KNOWN = (*_OWN, *_DRIVER, *_TRANSLATED, *_WITHOUT_EFFECT)

SYSTEM = "system"
"""The value of `sslrootcert` that stands for the certificate authorities of the system."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """What an address says of certificates; each file by the name of its parameter."""

    mode: str
    system: bool
    """Whether the certificate authorities of the system are asked for by name."""
    files: Mapping[str, str]
    password: str | None = field(repr=False)
    oldest: str | None
    newest: str | None


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """A parsed address: `dsn` is for the driver, `shown` for people."""

    dsn: str = field(repr=False)
    shown: str
    schema: str
    connections: int
    lease_s: int
    connect_s: int
    application: str
    ignored: tuple[str, ...]
    """Parameters that libpq knows and that have no effect here."""
    tls: TlsOptions
    _secrets: tuple[str, ...] = field(repr=False)

    def hide(self, text: str) -> str:
        """The text with every form of the password masked."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text


def read(url: str) -> PostgresAddress:
    """The address. Raises ConfigError, which shows nothing of the password."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        # Its text may show the password.
        raise _refused("it is no URL") from None
    userinfo, at, hosts = parts.netloc.rpartition("@")
    cut_short = not at and "@" in url
    if parts.fragment or "/" in parts.path.removeprefix("/") or cut_short or "@" in userinfo:
        raise _refused(
            "a '/', '#', '?' or '@' in the password must be written %2F, %23, %3F or %40"
        )
    user, colon, password = userinfo.partition(":")
    given = _known(query)
    secrets = {unquote(password), password, quote(unquote(password), safe="")}
    secrets |= {value for name, value in query if name in _SECRET}
    masked = [(name, MASK if name in _SECRET else value) for name, value in query]
    hidden = f"{user}:{MASK}" if colon else user
    driver = {name: value for name, value in given.items() if name in _DRIVER}
    if given.get("sslrootcert") == SYSTEM:
        del driver["sslrootcert"]
        driver["sslmode"] = _mode_with_system(given.get("sslmode"))
    return PostgresAddress(
        dsn=urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(driver), "")),
        shown=urlunsplit(
            ("postgresql", f"{hidden}{at}{hosts}", parts.path, urlencode(masked, safe="*/"), "")
        ),
        schema=_schema(given.get("schema", DEFAULT_SCHEMA)),
        connections=_number("connections", given, DEFAULT_CONNECTIONS, _MOST_CONNECTIONS),
        lease_s=_number("lease", given, DEFAULT_LEASE_S, _LONGEST_LEASE_S),
        connect_s=_connect_s(given),
        application=given.get("application_name")
        or given.get("fallback_application_name")
        or "tapeway",
        ignored=tuple([name for name in _WITHOUT_EFFECT if name in given]),
        tls=TlsOptions(
            mode=driver.get("sslmode", ""),
            system=given.get("sslrootcert") == SYSTEM,
            files={name: driver[name] for name in _FILES if driver.get(name)},
            password=given.get("sslpassword"),
            oldest=given.get("ssl_min_protocol_version"),
            newest=given.get("ssl_max_protocol_version"),
        ),
        _secrets=tuple(sorted({secret for secret in secrets if secret}, key=len, reverse=True)),
    )


def _known(query: list[tuple[str, str]]) -> dict[str, str]:
    """The parameters by name; the last of a name counts, as with libpq."""
    unknown = [name for name, _ in query if name not in _KNOWN]
    if unknown:
        raise _refused(f"?{unknown[0]}= is not known; known are {', '.join(sorted(_KNOWN))}")
    given = dict(query)
    if given.pop("ssl", "") == "true":
        given.setdefault("sslmode", "require")
    if given.get("gssencmode") == "require":
        raise _refused("?gssencmode=require needs an encryption that the driver does not have")
    return given


def _mode_with_system(mode: str | None) -> str:
    # As libpq: a weaker mode would trust any certificate that anybody can get.
    if mode not in (None, "verify-full"):
        raise _refused(f"?sslrootcert=system needs sslmode=verify-full, not {mode}")
    return "verify-full"


def _connect_s(given: Mapping[str, str]) -> int:
    # Of libpq: zero and less wait without an end, which no start and no request here does.
    if _ENDLESS.fullmatch(given.get("connect_timeout", "")):
        return _LONGEST_CONNECT_S
    return _number("connect_timeout", given, DEFAULT_CONNECT_S, _LONGEST_CONNECT_S)


def _schema(name: str) -> str:
    if not _SCHEMA.fullmatch(name) or name.startswith("pg_"):
        raise _refused("?schema= must be small letters, digits and '_', such as schema=tapeway")
    return name


def _number(name: str, given: Mapping[str, str], default: int, most: int) -> int:
    text = given.get(name, str(default))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        raise _refused(f"?{name}= must be a number from 1 to {most}")
    return int(text)


def _refused(why: str) -> ConfigError:
    return ConfigError(
        f"the store postgresql:… cannot be used: {why}; the form is "
        "postgresql://USER:PASSWORD@HOST:PORT/DATABASE?schema=tapeway"
    )
