"""Opens a store by its address: `DIR`, `sqlite:FILE`, `postgresql://…`, another tapeway's URL."""

import os
import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tapeway.errors import ConfigError, describe

if TYPE_CHECKING:
    from tapeway.ports import CassetteStore

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_FORMAT_OPTION = "?format="

GROUP = "tapeway.stores"
"""The entry points by which installed packages add stores: a scheme, and its `Opener`.

The module of the opener states as `PORT_VERSION` the version of `tapeway.ports` it was written for.
"""
_VERSION = "PORT_VERSION"


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """An address, the part after its scheme, and how to call another tapeway."""

    url: str
    rest: str
    token: str | None = None
    ca: str | None = None


@dataclass(frozen=True, slots=True)
class _Credentials:
    store: str = ""
    token: str | None = None
    ca: str | None = None


_NO_CREDENTIALS = _Credentials()
_CREDENTIALS: ContextVar[_Credentials] = ContextVar("credentials", default=_NO_CREDENTIALS)


def set_credentials(store: str, token: str | None, ca: str | None) -> None:
    """Set the credentials for calls to another tapeway in this context, before the environment's.

    The token goes to `store` and, if `store` is not another tapeway, to any; never elsewhere.
    """
    _CREDENTIALS.set(_Credentials(store, token, ca))


def open_store(url: str, *, token: str | None = None, ca: str | None = None) -> "CassetteStore":
    """The store behind `DIR`, `file:DIR`, `memory:`, `sqlite:FILE` or `postgresql://…`, not yet open.

    Another tapeway is `http(s)://…`; its token and certificate authority are taken from the settings
    or the environment if they are not given. `DIR?format=yaml` writes new cassettes in YAML.

    Raises ConfigError.
    """
    match = _SCHEME.match(url)
    if match is None:
        return _folder(StoreAddress(url, url))
    scheme, rest = match[1].lower(), url[match.end() :]
    opener = OPENERS.get(scheme) or _installed(scheme)
    if opener is not None:
        return opener(StoreAddress(url, rest, token, ca))
    raise ConfigError(
        f"there is no store of the kind {scheme}:…: use a folder, memory:, sqlite:FILE, "
        "postgresql://…, http://… or a kind that an installed package adds "
        f"(for a folder whose name begins like that, file:{scheme}:…)"
    )


def _installed(scheme: str) -> "Opener | None":
    """What opens the stores of a kind that an installed package adds. Raises ConfigError."""
    # Only here: it looks through all that is installed.
    from importlib.metadata import entry_points

    for entry_point in entry_points(group=GROUP, name=scheme):
        package = entry_point.dist.name if entry_point.dist else entry_point.value
        shown = f"the store {scheme}:… of the package {package}"
        try:
            opener: Opener = entry_point.load()
        except Exception as exc:
            raise ConfigError(
                f"{shown} cannot be imported ({describe(exc)}): "
                "install a version that fits this tapeway"
            ) from exc
        _check_port_version(getattr(import_module(entry_point.module), _VERSION, None), shown)
        return opener
    return None


def _check_port_version(stated: object, shown: str) -> None:
    from tapeway.ports import PORT_VERSION

    if stated == PORT_VERSION:
        return
    known = f"this tapeway has version {PORT_VERSION}"
    if not isinstance(stated, int):
        raise ConfigError(
            f"{shown} does not state for which version of the port it was written, and {known}: "
            f"install a version of the package whose module has {_VERSION}"
        )
    advice = "update tapeway" if stated > PORT_VERSION else "install a newer version of the package"
    raise ConfigError(
        f"{shown} was written for version {stated} of the port, and {known}: {advice}"
    )


def _memory(address: StoreAddress) -> "CassetteStore":
    if address.rest:
        raise ConfigError(
            f"the store '{address.url}' names a place, and memory: has none: leave it out"
        )
    from tapeway.stores.memory import MemoryStore

    return MemoryStore()


def _sqlite(address: StoreAddress) -> "CassetteStore":
    path, url = address.rest.removeprefix("//"), address.url
    if not path or "\0" in path or path == ":memory:":
        raise ConfigError(f"the store '{url}' names no file: use sqlite:calls.db, or memory:")
    if "?" in path:
        raise ConfigError(f"the store '{url}' cannot be used: a SQLite file takes no options")
    if path.endswith("/") or Path(path).is_dir():
        raise ConfigError(
            f"the store '{url}' is a folder: name a file in it, sqlite:{path.rstrip('/')}/calls.db"
        )
    # Only here: it takes a while to load.
    from tapeway.stores.sqlite.store import SqliteStore

    return SqliteStore(Path(path))


def _remote(address: StoreAddress) -> "CassetteStore":
    # Only here: files need no client of HTTP.
    from tapeway.stores.remote.client import CA, TOKEN, address_of
    from tapeway.stores.remote.store import RemoteStore

    url, token = address.url, address.token
    # An address that cannot be read is refused before it is compared.
    address_of(url)
    given = _CREDENTIALS.get()
    if token is None and given.token is not None:
        token = given.token if _may_get_token(url, given.store) else ""
    if token is None:
        token = os.environ.get(TOKEN)
    ca = address.ca or given.ca or os.environ.get(CA)
    return RemoteStore(address_of(url, token or None, ca))


def _may_get_token(url: str, store: str) -> bool:
    one, other = urlsplit(url), urlsplit(store)
    if other.scheme.lower() not in ("http", "https"):
        return True
    place = one.netloc.rpartition("@")[2].lower()
    return (one.scheme.lower(), place) == (
        other.scheme.lower(),
        other.netloc.rpartition("@")[2].lower(),
    )


def _postgres(address: StoreAddress) -> "CassetteStore":
    try:
        # Only here: the driver is optional.
        from tapeway.stores.postgres.store import PostgresStore
    except ModuleNotFoundError as exc:
        if exc.name != "asyncpg":
            raise
        raise ConfigError(
            "the store postgresql:… needs a driver that is not installed: "
            "pip install 'tapeway[postgres]'"
        ) from exc
    return PostgresStore(address.url)


def _folder(address: StoreAddress) -> "CassetteStore":
    # Imported here: commands that open no store start without the import.
    from tapeway.formats.cassette_file import SERIALIZERS
    from tapeway.stores.file.store import FileStore

    url = address.url
    path = url if address.rest == url else address.rest.removeprefix("//")
    if not path or "\0" in path:
        raise ConfigError(f"the store '{url}' names no folder: use a path such as ./cassettes")
    folder, asked, name = path.partition(_FORMAT_OPTION)
    if not asked:
        return FileStore(Path(path))
    if not folder or name not in SERIALIZERS:
        known = " or ".join(f"{_FORMAT_OPTION}{serializer}" for serializer in SERIALIZERS)
        raise ConfigError(f"the store '{url}' cannot be used: a folder may end in {known}")
    return FileStore(Path(folder), SERIALIZERS[name])


Opener = Callable[[StoreAddress], "CassetteStore"]
"""Makes the store of an address, which is not open yet. Raises ConfigError."""

OPENERS: dict[str, Opener] = {
    "file": _folder,
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
    "http": _remote,
    "https": _remote,
}
"""By scheme. A new kind of store of tapeway's own is a row here."""
