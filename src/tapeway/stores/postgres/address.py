"""The address of a PostgreSQL store: `postgresql://USER:PASSWORD@HOST/DATABASE?schema=NAME`.

tapeway's own parameters are taken out of what the driver gets; passwords are masked in what is shown.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from tapeway.errors import ConfigError

DEFAULT_SCHEMA = "tapeway"
DEFAULT_CONNECTIONS = 10
DEFAULT_LEASE_S = 15
MASK = "***"

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_SECRET = frozenset({"password", "sslpassword"})
_MOST_CONNECTIONS = 100
_LONGEST_LEASE_S = 600
_OWN = frozenset({"schema", "connections", "lease"})


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """A parsed address: `dsn` is for the driver, `shown` for people."""

    dsn: str = field(repr=False)
    shown: str
    schema: str
    connections: int
    lease_s: int
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
    if parts.fragment or "/" in parts.path.removeprefix("/") or cut_short:
        raise _refused("a '/', '#' or '?' in the password must be written %2F, %23 or %3F")
    user, colon, password = userinfo.partition(":")
    own = {name: value for name, value in query if name in _OWN}
    rest = [(name, value) for name, value in query if name not in _OWN]
    secrets = {unquote(password), password, quote(unquote(password), safe="")}
    secrets |= {value for name, value in query if name in _SECRET}
    masked = [(name, MASK if name in _SECRET else value) for name, value in query]
    hidden = f"{user}:{MASK}" if colon else user
    return PostgresAddress(
        dsn=urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(rest), "")),
        shown=urlunsplit(
            ("postgresql", f"{hidden}{at}{hosts}", parts.path, urlencode(masked, safe="*/"), "")
        ),
        schema=_schema(own.get("schema", DEFAULT_SCHEMA)),
        connections=_number("connections", own, DEFAULT_CONNECTIONS, _MOST_CONNECTIONS),
        lease_s=_number("lease", own, DEFAULT_LEASE_S, _LONGEST_LEASE_S),
        _secrets=tuple(sorted({each for each in secrets if each}, key=len, reverse=True)),
    )


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
