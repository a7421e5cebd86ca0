"""The worlds the tests of the admin listener live in."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tapeway.stores.sqlite.store import SqliteStore
from tests.admin.admin_and_proxy import World, world


@pytest.fixture(params=["memory", "file", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CassetteStore:
    """One of memory, one of files, and one that several processes may share."""
    if request.param == "sqlite":
        return SqliteStore(tmp_path / "calls.db")
    return MemoryStore() if request.param == "memory" else FileStore(tmp_path)


@pytest.fixture
async def open_world() -> AsyncIterator[World]:
    """On loopback and without a token."""
    async with world() as found:
        yield found


@pytest.fixture
def aiohttp_free() -> Callable[[web.Application, str], Awaitable[int]]:
    """Runs an application on aiohttp's own runner and tells the status of a GET."""

    async def status(application: web.Application, path: str) -> int:
        runner = web.AppRunner(application)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            port = runner.addresses[0][1]
            async with ClientSession() as http, http.get(f"http://127.0.0.1:{port}{path}") as got:
                return got.status
        finally:
            await runner.cleanup()

    return status
