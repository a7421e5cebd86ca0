"""From a store's address to the store."""

import os
import re
from contextvars import ContextVar
from pathlib import Path
from urllib.parse import urlsplit

from tapeway.errors import ConfigError
from tapeway.formats.cassette_file import SERIALIZERS
from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_FORM = "?format="
_LETTER: ContextVar[tuple[str, str | None, str | None]] = ContextVar(
    "letter", default=("", None, None)
)


def call_with(store: str, token: str | None, ca: str | None) -> None:
    """What another tapeway is called with from now on in this context, before the environment.

    The token goes to this store and, where that is no other tapeway, to any: never elsewhere.
    """
    _LETTER.set((store, token, ca))


def open_store(url: str, *, token: str | None = None, ca: str | None = None) -> CassetteStore:
    """The store behind `DIR`, `file:DIR`, `memory:`, `sqlite:FILE` or `postgresql://…`, not yet open.

    Another tapeway is `http(s)://…`; what it is called with is taken from the environment if it is
    not given. Raises ConfigError.

    `DIR?format=yaml` writes new cassettes in YAML.
    """
    found = _SCHEME.match(url)
    if found is None:
        return _folder(url, url)
    scheme, rest = found[1].lower(), url[found.end() :]
    if scheme == "file":
        return _folder(rest.removeprefix("//"), url)
    if scheme == "memory":
        if rest:
            raise ConfigError(
                f"the store '{url}' names a place, and memory: has none: leave it out"
            )
        return MemoryStore()
    if scheme == "sqlite":
        return _file(rest.removeprefix("//"), url)
    if scheme in ("postgresql", "postgres"):
        return _database(url)
    if scheme in ("http", "https"):
        return _remote(url, token, ca)
    raise ConfigError(
        f"there is no store of the kind {scheme}:…: use a folder, memory:, sqlite:FILE, postgresql://… "
        f"or http://… "
        f"(for a folder whose name begins like that, file:{scheme}:…)"
    )


def _file(path: str, url: str) -> CassetteStore:
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


def _remote(url: str, token: str | None, ca: str | None) -> CassetteStore:
    # Only here: files need no client of HTTP.
    from tapeway.stores.remote.client import CA, TOKEN, address_of
    from tapeway.stores.remote.store import RemoteStore

    # What cannot be read is refused before it is compared.
    address_of(url)
    store, letter_token, letter_ca = _LETTER.get()
    if token is None and letter_token is not None:
        token = letter_token if _is_meant(url, store) else ""
    if token is None:
        token = os.environ.get(TOKEN)
    return RemoteStore(address_of(url, token or None, ca or letter_ca or os.environ.get(CA)))


def _is_meant(url: str, store: str) -> bool:
    one, other = urlsplit(url), urlsplit(store)
    if other.scheme.lower() not in ("http", "https"):
        return True
    place = one.netloc.rpartition("@")[2].lower()
    return (one.scheme.lower(), place) == (
        other.scheme.lower(),
        other.netloc.rpartition("@")[2].lower(),
    )


def _database(url: str) -> CassetteStore:
    try:
        # Only here: not everybody has the driver.
        from tapeway.stores.postgres.store import PostgresStore
    except ModuleNotFoundError as exc:
        if exc.name != "asyncpg":
            raise
        raise ConfigError(
            "the store postgresql:… needs a driver that is not installed: "
            "pip install 'tapeway[postgres]'"
        ) from exc
    return PostgresStore(url)


def _folder(path: str, url: str) -> FileStore:
    if not path or "\0" in path:
        raise ConfigError(f"the store '{url}' names no folder: use a path such as ./cassettes")
    folder, asked, form = path.partition(_FORM)
    if not asked:
        return FileStore(Path(path))
    if not folder or form not in SERIALIZERS:
        known = " or ".join(f"{_FORM}{name}" for name in SERIALIZERS)
        raise ConfigError(f"the store '{url}' cannot be used: a folder may end in {known}")
    return FileStore(Path(folder), SERIALIZERS[form])
