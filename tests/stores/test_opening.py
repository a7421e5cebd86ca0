"""Addresses of stores."""

from pathlib import Path

import pytest

from tapeway.errors import ConfigError
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tapeway.stores.opening import open_store
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.outside import install


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("./cassettes", "file:cassettes"),
        ("/var/lib/cassettes", "file:/var/lib/cassettes"),
        ("file:cassettes", "file:cassettes"),
        ("file:///var/lib", "file:/var/lib"),
        ("FILE:a", "file:a"),
        ("file:sqlite:odd", "file:sqlite:odd"),
        ("a b/ü", "file:a b/ü"),
        ("file:a?format=yaml", "file:a?format=yaml"),
        ("a?format=json", "file:a"),
        ("//var/lib", "file://var/lib"),
    ],
)
def test_a_folder_is_a_file_store(url: str, shown: str) -> None:
    store = open_store(url)

    assert isinstance(store, FileStore)
    assert store.url == shown


def test_memory_is_a_memory_store() -> None:
    assert isinstance(open_store("memory:"), MemoryStore)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:a.db", "sqlite:a.db"),
        ("SQLite:sub/a.db", "sqlite:sub/a.db"),
        ("sqlite:/tmp/x/a.db", "sqlite:/tmp/x/a.db"),
        ("sqlite:///tmp/x/a.db", "sqlite:/tmp/x/a.db"),
        ("sqlite:C:odd name.db", "sqlite:C:odd name.db"),
    ],
)
def test_a_sqlite_file_is_named_by_its_path(url: str, shown: str) -> None:
    store = open_store(url)

    assert isinstance(store, SqliteStore)
    assert store.url == shown


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "names no folder"),
        ("file:", "names no folder"),
        ("a?format=har", r"\?format=json or \?format=yaml"),
        ("file:?format=yaml", "a folder may end in"),
        ("a\0b", "names no folder"),
        ("s4:x", "s4:…"),
        ("memory:cassettes", "memory: has none"),
        ("sqlite:", "names no file"),
        ("sqlite::memory:", "or memory:"),
        ("sqlite:a\0b", "names no file"),
        ("sqlite:a.db?mode=ro", "takes no options"),
        ("sqlite:.", "is a folder"),
        ("sqlite:sub/", "sqlite:sub/calls.db"),
    ],
)
def test_an_address_of_nothing_is_refused_with_advice(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_store(url)


async def test_a_package_adds_a_kind_of_store(tmp_path: Path) -> None:
    install()
    for address in (f"shelf:{tmp_path / 'calls.shelf'}", f"shelf://{tmp_path / 'calls.shelf'}"):
        store = open_store(address)
        await store.open()
        assert await store.names() == []
        await store.close()


def test_a_package_that_does_not_fit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "broken_store-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-store\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[tapeway.stores]\nbroken = broken_store:opened\n")
    (tmp_path / "broken_store.py").write_text("from tapeway.ports import Gone\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ConfigError, match=r"broken:.* of the package broken-store cannot be imp"):
        open_store("broken:anything")
