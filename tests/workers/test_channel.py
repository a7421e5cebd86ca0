"""What two processes tell each other."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from tapeway.workers.pipe import Channel

DEADLINE_S = 10.0


@pytest.fixture
async def ends() -> AsyncIterator[tuple[Channel, Channel]]:
    one, two = [await Channel.over(each) for each in socket.socketpair()]
    yield one, two
    one.close()
    two.close()


async def test_it_is_heard_in_the_order_it_was_said(ends: tuple[Channel, Channel]) -> None:
    one, two = ends
    said = [("answer", number, "x" * 10_000) for number in range(50)]
    async with asyncio.timeout(DEADLINE_S):
        for each in said:
            one.send(each)
        heard = [await two.receive() for _ in said]

    assert heard == said


async def test_the_last_words_are_heard_and_then_that_nobody_is_there(
    ends: tuple[Channel, Channel],
) -> None:
    one, two = ends
    async with asyncio.timeout(DEADLINE_S):
        one.send(("failed", "why"))
        await one.sent()
        one.close()
        assert await two.receive() == ("failed", "why")
        with pytest.raises(EOFError):
            await two.receive()
        two.send("nobody hears it")
        await two.sent()
        two.send("nor this")
