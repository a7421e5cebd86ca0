"""A store of every sort, by its address, for what opens one by itself."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.clients.end_to_end.process import Tapeway
from tests.stores.postgres_server import fresh

NEAR = {
    "memory": "memory:",
    "file": "{}",
    "yaml": "{}?format=yaml",
    "sqlite": "sqlite:{}.db",
}


@pytest.fixture(scope="module")
def far_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tapeway]:
    """Another tapeway, a process of its own."""
    with Tapeway(tmp_path_factory.mktemp("far"), "--mode", "replay") as process:
        yield process


@pytest.fixture(params=[*NEAR, "postgresql", "remote"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """One for each sort of store, with nothing in it."""
    if request.param in NEAR:
        yield NEAR[request.param].format(tmp_path / "store")
    elif request.param == "remote":
        process: Tapeway = request.getfixturevalue("far_side")
        yield str(process.ready["admin"])
        listed = json.loads(process.admin("GET", "/api/v1/cassettes"))["cassettes"]
        for name in {row["name"] for row in listed} - {"default"}:
            process.admin("DELETE", f"/api/v1/cassettes/{quote(name, safe='')}")
    else:
        database = fresh(request.getfixturevalue("postgres_dsn"))
        with asyncio.Runner() as runner:
            yield runner.run(_opened(database))
            runner.run(_closed(database))


async def _opened(database: AbstractAsyncContextManager[str]) -> str:
    return await database.__aenter__()


async def _closed(database: AbstractAsyncContextManager[str]) -> None:
    await database.__aexit__(None, None, None)
