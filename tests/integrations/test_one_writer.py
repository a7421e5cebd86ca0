"""A SQLite file that another process has: histories and stores of other tools name that process."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tapeway.errors import CassetteLocked
from tapeway.integrations.history import Message, StorageProvider
from tapeway.library import Cassette
from tests.stores.sqlite.other_process import peer


async def test_a_second_process_appends_to_no_history_and_reads_all(tmp_path: Path) -> None:
    file = tmp_path / "chats.db"
    with peer(file) as other:
        async with StorageProvider(f"sqlite:{file}") as storage:
            message = Message("user", "hello", datetime(2026, 1, 1, tzinfo=UTC))
            with pytest.raises(CassetteLocked, match=f"process {other.pid} "):
                await storage.history.append_messages("user-1", [message])
            assert await storage.history.get_history("user-1") == []


def test_a_second_process_records_no_calls(tmp_path: Path) -> None:
    file = tmp_path / "calls.db"
    with (
        peer(file) as other,
        pytest.raises(CassetteLocked, match=f"process {other.pid} "),
        Cassette("runs/one", store=f"sqlite:{file}", mode="record") as cassette,
    ):
        cassette.call("tool", "answer", {}, lambda: 1)
