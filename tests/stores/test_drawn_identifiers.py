"""A call that the app named itself is recognised under another name, from every store."""

import json
from pathlib import Path

import pytest

from tapeway.core.json_text import Json, dump
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.stores.contract.kinds import KINDS, Kind
from tests.support.raw_client import Answer
from tests.support.socket_upstream import Peer

JSON = b"Content-Type: application/json"


def gemini_turn(*names: str, results: tuple[str, ...] = ("sun", "snow")) -> bytes:
    """A turn as pydantic-ai sends it to Gemini: it named both calls, since Gemini gave no ids."""
    calls: list[Json] = [
        {"functionCall": {"name": "weather", "id": name, "args": {"city": city}}}
        for name, city in zip(names, ("Rome", "Oslo"), strict=True)
    ]
    told: list[Json] = [
        {"functionResponse": {"name": "weather", "id": name, "response": {"result": result}}}
        for name, result in zip(names, results, strict=True)
    ]
    contents: list[Json] = [{"role": "model", "parts": calls}, {"role": "user", "parts": told}]
    return dump({"contents": contents})


async def ask(proxy: RunningProxy, body: bytes) -> Answer:
    return await proxy.ask(b"POST /v1beta/models/gemini:generateContent", JSON, body=body)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_call_that_the_app_named_replays_under_any_name(
    kind: Kind, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with kind.of_test(request, tmp_path) as place:
        async with Peer() as peer, running_proxy(peer.url, store=place.again()) as proxy:
            peer.then(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
            )
            await ask(proxy, gemini_turn("pyd_ai_0a1b2c", "pyd_ai_3d4e5f"))

        store = place.again()
        async with running_proxy("http://127.0.0.1:9", mode="replay", store=store) as proxy:
            renamed = await ask(proxy, gemini_turn("pyd_ai_9f8e7d", "pyd_ai_6c5b4a"))
            swapped = await ask(
                proxy, gemini_turn("pyd_ai_9f8e7d", "pyd_ai_6c5b4a", results=("snow", "sun"))
            )
            shared = await ask(proxy, gemini_turn("pyd_ai_1", "pyd_ai_1"))

        assert (renamed.outcome, renamed.body) == (b"replayed", b"{}")
        assert [answer.status for answer in (swapped, shared)] == [400, 400]
        assert "contents" in json.loads(swapped.body)["message"]
