"""How a response is sent."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from tapeway.admin.responses import stream_response


async def test_other_clients_get_turns_between_the_pieces_for_a_client_that_takes_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def at_once(*_: object) -> None: ...

    for name in ("prepare", "write", "write_eof"):
        monkeypatch.setattr(web.StreamResponse, name, at_once)
    turns: list[int] = []
    seen: list[int] = []

    async def others() -> None:
        while True:
            turns.append(len(turns))
            await asyncio.sleep(0)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(5):
            seen.append(len(turns))
            yield b"x"

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(others())
        await stream_response(make_mocked_request("GET", "/"), {}, pieces())
        task.cancel()

    assert len(set(seen)) == 5
