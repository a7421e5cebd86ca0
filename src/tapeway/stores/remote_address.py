"""Where another tapeway's admin listener is, and with which token it is called."""

import ssl
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from tapeway.errors import ConfigError

TOKEN = "TAPEWAY_STORE_TOKEN"  # noqa: S105 - a name
CA = "TAPEWAY_STORE_CA"


@dataclass(frozen=True, slots=True)
class Address:
    """`root` is what paths of the API are put behind; `shown` says no token."""

    root: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None

    @property
    def shown(self) -> str:
        return self.root

    def tls(self) -> ssl.SSLContext | bool:
        """What certificates are checked against. Raises ConfigError for what holds none."""
        if self.ca is None:
            return True
        try:
            context = ssl.create_default_context()
            context.load_verify_locations(self.ca)
        except OSError as exc:
            raise ConfigError(f"{CA} {self.ca} cannot be read as PEM certificates") from exc
        return context


def address_of(url: str, token: str | None = None, ca: str | None = None) -> Address:
    """The address in `http(s)://[TOKEN@]HOST[:PORT][/PREFIX]`; a token in it wins.

    Raises ConfigError, which does not repeat the token.
    """
    try:
        parts = urlsplit(url)
        # Looked at here, since it may raise.
        port = parts.port
        host = parts.hostname
    except ValueError:
        raise _unusable("its host or port cannot be read") from None
    if parts.scheme not in ("http", "https") or not host:
        raise _unusable("it names no host")
    if parts.query or parts.fragment:
        raise _unusable("it takes no query")
    userinfo = parts.netloc.rpartition("@")[0]
    if userinfo:
        # `:TOKEN@` as well as `TOKEN@`: some tools write the one, some the other.
        token = unquote(userinfo.removeprefix(":"))
    if token is not None and (not token or not token.isascii() or not token.isprintable()):
        raise _unusable("its token is empty, or no visible ASCII")
    bracketed = f"[{host}]" if ":" in host else host
    place = bracketed if port is None else f"{bracketed}:{port}"
    return Address(f"{parts.scheme}://{place}{parts.path.rstrip('/')}", token, ca)


def _unusable(why: str) -> ConfigError:
    return ConfigError(
        f"the store http(s)://… cannot be used, {why}: give the address of another tapeway's admin "
        "listener, such as http://tapeway.internal:8081"
    )
