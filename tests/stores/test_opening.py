"""Addresses of stores."""

import hashlib
import sys
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path

import pytest

from tapeway.errors import ConfigError
from tapeway.ports import PORT_VERSION, CassetteStore, SharedStore
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tapeway.stores.opening import open_store
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.object_server import object_server
from tests.stores.outside import install

AddPackage = Callable[[str], None]


@pytest.fixture
def add_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AddPackage]:
    """Installs a package `added-store` with this module, which adds the stores `added:…`."""

    def add(module: str) -> None:
        about = tmp_path / "added_store-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: added-store\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text("[tapeway.stores]\nadded = added_store:opened\n")
        (tmp_path / "added_store.py").write_text(module)
        monkeypatch.syspath_prepend(tmp_path)

    yield add
    sys.modules.pop("added_store", None)


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


@pytest.mark.parametrize(
    "place", ["", "//", "//127.0.0.1:9000", "//me:s3cret@127.0.0.1:9000/bucket"]
)
def test_an_address_that_the_package_does_not_take_is_refused_by_the_package(place: str) -> None:
    install()
    with pytest.raises(ConfigError, match="use objects://HOST:PORT/BUCKET") as refused:
        open_store(f"objects:{place}")
    assert "s3cret" not in refused.value.message


async def test_a_package_adds_a_kind_of_store() -> None:
    install()
    async with object_server() as objects:
        store = open_store(objects.url)
        await store.open()
        assert await store.names() == []
        await store.close()


def test_a_package_that_does_not_fit_is_named(add_package: AddPackage) -> None:
    add_package("from tapeway.ports import Gone\n")

    with pytest.raises(ConfigError, match=r"added:.* of the package added-store cannot be imp"):
        open_store("added:anything")


@pytest.mark.parametrize(
    ("stated", "said", "advice"),
    [
        (
            f"PORT_VERSION = {PORT_VERSION + 1}",
            f"for version {PORT_VERSION + 1} of",
            "update tapeway",
        ),
        (
            f"PORT_VERSION = {PORT_VERSION - 1}",
            f"for version {PORT_VERSION - 1} of",
            "install a newer",
        ),
        (
            "",
            "does not state for which version",
            "install a version of the package whose module has",
        ),
        (
            "PORT_VERSION = 'one'",
            "does not state for which version",
            "install a version of the pack",
        ),
    ],
)
def test_a_package_for_another_version_of_the_port_is_refused_by_name(
    add_package: AddPackage, stated: str, said: str, advice: str
) -> None:
    add_package(f"{stated}\ndef opened(address):\n    raise SystemExit\n")

    with pytest.raises(ConfigError) as refused:
        open_store("added:anything")

    assert "the store added:… of the package added-store" in refused.value.message
    assert said in refused.value.message
    assert f"this tapeway has version {PORT_VERSION}: {advice}" in refused.value.message


def test_a_package_for_this_version_of_the_port_is_used(add_package: AddPackage) -> None:
    add_package(
        f"from tapeway.stores.memory import MemoryStore\nPORT_VERSION = {PORT_VERSION}\n"
        "def opened(address):\n    return MemoryStore()\n"
    )

    assert isinstance(open_store("added:anything"), MemoryStore)


def test_the_version_of_the_port_counts_every_change_of_its_members() -> None:
    members = [
        [port.__name__, name, *(signature(member).parameters if callable(member) else ())]
        for port in (CassetteStore, SharedStore)
        for name, member in sorted(vars(port).items())
        if not name.startswith("_")
    ]

    digest = hashlib.sha256(repr(members).encode()).hexdigest()[:16]
    # Once a release has a version of the port, another digest needs the next version.
    assert (PORT_VERSION, digest) == (1, "98db72b22bba53d1")
