"""Sessions that begin alike are told apart by what their clients say, whichever connects first."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tapeway.testing import ThreadedStandIn
from tests.clients.end_to_end.leaks import Leaks
from tests.clients.end_to_end.process import Tapeway

NAMES = ("alpha", "beta", "gamma")
UPDATE = {"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"]}}


class Talk:
    """One connection to Realtime, whose client draws its own identifiers."""

    def __init__(self, proxy: str, name: str, drawn: str, key: str) -> None:
        self._url = proxy.replace("http://", "ws://") + "/openai/v1/realtime?model=m"
        self._name, self._drawn, self._key = name, drawn, key
        self.told: list[dict[str, Any]] = []

    async def run(self) -> "Talk":
        header = {"Authorization": f"Bearer {self._key}"}
        async with connect(self._url, additional_headers=header) as client:
            await self._until(client, "session.created")
            await self._send(client, UPDATE)
            await self._until(client, "session.updated")
            said = {"type": "input_text", "text": self._name}
            item = {"id": f"item_{self._drawn}", "type": "message", "role": "user"}
            create = {"type": "conversation.item.create", "item": item | {"content": [said]}}
            await self._send(client, create)
            await self._until(client, "conversation.item.done")
            await self._send(client, {"type": "response.create"})
            await self._until(client, "rate_limits.updated")
        return self

    async def _send(self, client: ClientConnection, event: dict[str, Any]) -> None:
        number = len(self.told)
        await client.send(json.dumps(event | {"event_id": f"event_{self._drawn}{number}"}))

    async def _until(self, client: ClientConnection, kind: str) -> None:
        while not self.told or self.told[-1]["type"] != kind:
            self.told.append(json.loads(await client.recv()))

    @property
    def text(self) -> str:
        """What the service has said."""
        [found] = [
            message["text"]
            for message in self.told
            if message["type"] == "response.output_text.done"
        ]
        return str(found)

    @property
    def items(self) -> set[str]:
        """The items that the client made."""
        added = [message for message in self.told if message["type"] == "conversation.item.added"]
        return {event["item"]["id"] for event in added if event["item"]["role"] == "user"}


@pytest.fixture
def replaying(tmp_path: Path, leaks: Leaks) -> Iterator[Tapeway]:
    """A proxy with a session for each name, recorded one after another."""
    key = leaks.secret("the client's key")
    with ThreadedStandIn() as upstream:
        options = ("--route", f"openai={upstream.url}")
        with Tapeway(tmp_path, "--mode", "record", *options, name="recording") as recording:
            for number, name in enumerate(NAMES):
                asyncio.run(Talk(recording.proxy, name, f"a1b2c3d{number}", key).run())
            leaks.collect("recording", recording.everything())
    with Tapeway(tmp_path, "--mode", "replay", *options, name="replaying") as proxy:
        yield proxy
        leaks.collect("replaying", proxy.everything())


def test_each_client_gets_its_own_session(replaying: Tapeway, leaks: Leaks) -> None:
    key = leaks.canaries["the client's key"]

    async def together() -> list[Talk]:
        talks = [
            Talk(replaying.proxy, name, f"z9y8x7w{number}", key)
            for number, name in enumerate((*NAMES[::-1], *NAMES))
        ]
        return list(await asyncio.gather(*[talk.run() for talk in talks]))

    for number, talk in enumerate(asyncio.run(together())):
        name = (*NAMES[::-1], *NAMES)[number]
        assert name in talk.text
        assert talk.items == {f"item_z9y8x7w{number}"}
