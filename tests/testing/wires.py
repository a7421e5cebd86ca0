"""What the stand-in's tests send, and a state in which every answer is known beforehand."""

from datetime import UTC, datetime
from itertools import count

import orjson

from tapeway.testing.reply import StandInState
from tests.clients.programs.raw_socket import Fields, Wire, exchange

JSON: Fields = (("Content-Type", "application/json"),)


def fixed_state() -> StandInState:
    """A state that counts instead of drawing at random, at a fixed time."""
    numbers = count(1)
    return StandInState(
        token_hex=lambda size: f"{next(numbers) % 256:02x}" * size,
        now=lambda: datetime(2026, 11, 21, 12, 30, 15, 123456, tzinfo=UTC),
    )


async def post(url: str, target: str, body: object, fields: Fields = ()) -> Wire:
    """The answer to that JSON."""
    return await exchange(url, "POST", target, JSON + fields, orjson.dumps(body))


def chat(prompt: str, **more: object) -> dict[str, object]:
    """A chat completion's or message's request."""
    return {"model": "gpt-4o", "messages": [{"role": "user", "content": prompt}]} | more
