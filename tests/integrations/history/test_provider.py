"""The life of a history's store."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tapeway.errors import ConfigError, StoreError
from tapeway.integrations.history.message import Message
from tapeway.integrations.history.provider import StorageProvider
from tapeway.stores.memory import MemoryStore
from tests.integrations.history.test_storage import said


@pytest.mark.parametrize("address", ["memory:", "folder", "folder?format=yaml"])
async def test_a_history_is_used_between_initialize_and_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    provider = StorageProvider(address)
    with pytest.raises(StoreError, match=r"not open: call initialize\(\) first"):
        _ = provider.history
    await provider.close()

    for number in range(2):
        await provider.initialize()
        await provider.initialize()
        history = provider.history
        await history.append_messages("s", [said(number)])
        await provider.close()
        await provider.close()
        with pytest.raises(StoreError, match="not open"):
            _ = provider.history
        with pytest.raises(StoreError, match="closed"):
            await history.get_history("s")


async def test_a_place_may_be_a_path_or_a_text(tmp_path: Path) -> None:
    async with StorageProvider(tmp_path / "chats") as provider:
        await provider.history.append_messages("s", [said("hi")])
    async with StorageProvider(str(tmp_path / "chats")) as provider:
        assert await provider.history.get_history("s") == [said("hi")]


def test_an_invalid_store_is_refused_at_once() -> None:
    with pytest.raises(ConfigError):
        StorageProvider("nothing-there:x")


async def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    async with StorageProvider(tmp_path / "chats") as provider:
        await provider.history.append_messages("s", [said("hi")])
        await provider.history.append_messages("../S", [said("hi")])

    found = [path for path in (tmp_path / "chats").rglob("*") if path.is_file()]
    assert found
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chats"]


async def test_a_damaged_file_is_named_and_never_read_as_empty(tmp_path: Path) -> None:
    async with StorageProvider(tmp_path) as provider:
        await provider.history.append_messages("s", [said("precious")])
    file = tmp_path / "history/s.json"
    damaged = file.read_text().replace("precious", "prec\nious")
    file.write_text(damaged)

    async with StorageProvider(tmp_path) as provider:
        with pytest.raises(StoreError, match=r"history/s\.json line \d+"):
            await provider.history.get_history("s")
        with pytest.raises(StoreError, match=r"history/s\.json line \d+"):
            await provider.history.append_messages("s", [said("more")])
    assert file.read_text() == damaged


async def test_a_session_whose_final_form_cannot_be_written_is_reported_and_keeps_all(
    tmp_path: Path,
) -> None:
    provider = StorageProvider(tmp_path)
    await provider.initialize()
    for session in ("s", "t"):
        await provider.history.append_messages(session, [said("first")])
    (tmp_path / "history/s.json").write_text("somebody else's")

    with pytest.raises(StoreError, match=r"history/s\.json was changed"):
        await provider.close()

    (tmp_path / "history/s.json").unlink()
    async with StorageProvider(tmp_path) as again:
        for session in ("s", "t"):
            assert await again.history.get_history(session) == [said("first")]


async def test_a_message_is_the_same_in_the_file(tmp_path: Path) -> None:
    async with StorageProvider(tmp_path) as provider:
        await provider.history.append_messages("s", [Message("tool", {"result": [1]})])

    text = (tmp_path / "history/s.json").read_text()
    assert '"kind": "memory_write"' in text
    assert '"session_id": "s"' in text
    assert '"role": "tool"' in text


class Noted(MemoryStore):
    """Notes what is brought into its final form."""

    def __init__(self) -> None:
        super().__init__()
        self.released: list[str] = []

    async def release(self, name: str) -> None:
        self.released.append(name)
        await super().release(name)


async def test_the_session_changed_last_is_the_last_to_be_written() -> None:
    store = Noted()
    async with StorageProvider(store) as provider:
        for session in ("b", "c", "a", "c"):
            await provider.history.append_messages(session, [said(1)])

    assert store.released == ["history/b", "history/a", "history/c"]


def test_importing_it_does_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import tapeway.integrations.history.provider"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )

    assert (done.stdout, done.stderr) == (b"", b"")
    assert list(tmp_path.iterdir()) == []
