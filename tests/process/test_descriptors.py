"""More cassettes and clients than `tapeway serve` may have files open."""

import asyncio
import json
import os
import resource
from pathlib import Path

from tests.process.serving import DEADLINE_S, Tapeway, request
from tests.support.raw_client import Answer, RawClient
from tests.support.socket_upstream import Peer

FEW = 64
CASSETTES = 60


def few() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, FEW))


async def first_answer(tapeway: Tapeway) -> Answer:
    """The first one to a new connection: too many at once are broken off."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return await tapeway.ask("/1")
            except (ConnectionError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.01)


async def test_more_cassettes_are_recorded_than_files_may_be_open(tmp_path: Path) -> None:
    async with (
        Peer() as peer,
        Tapeway(tmp_path, "--upstream", peer.url, limit=few) as tapeway,
        RawClient(tapeway.proxy) as client,
    ):
        for take in ("1", "2"):
            for number in range(CASSETTES):
                answer = await client.ask(request(f"/@c{number}/{take}"))
                assert (answer.status, answer.outcome) == (200, b"recorded"), answer.body
        status, _ = await tapeway.admin("POST", "/api/v1/eject", {"cassette": "c0"})
        assert status == 200
        assert (await client.ask(request("/@c0/1"))).outcome == b"replayed"
        descriptors = os.listdir(f"/proc/{tapeway.pid}/fd")
        assert len(descriptors) < FEW

    assert len(list(tapeway.store.glob("c*.json"))) == CASSETTES


async def test_a_crowd_of_clients_keeps_nobody_from_the_admin_api(tmp_path: Path) -> None:
    async with (
        Peer() as peer,
        Tapeway(tmp_path, "--upstream", peer.url, limit=few) as tapeway,
        RawClient(tapeway.proxy) as early,
    ):
        assert (await early.ask(request("/1"))).status == 200
        crowd = [RawClient(tapeway.proxy) for _ in range(2 * FEW)]
        for client in crowd:
            await client.__aenter__()

        refused = await first_answer(tapeway)
        assert (refused.status, json.loads(refused.body)["error"]["code"]) == (
            503,
            "too_many_connections",
        )
        assert (await tapeway.admin("GET", "/healthz"))[0] == 200
        assert (await early.ask(request("/@another/2"))).outcome == b"recorded"
        status, _ = await tapeway.admin("POST", "/api/v1/eject", {"cassette": "another"})
        assert status == 200
        for client in crowd:
            client.leave()

        assert len(tapeway.stderr) < 20_000, "the log is not filled"


async def test_the_soft_limit_is_raised_to_the_hard_one(tmp_path: Path) -> None:
    def soft() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, 4 * FEW))

    async with Tapeway(tmp_path, "--mode", "replay", before=soft) as tapeway:
        assert resource.prlimit(tapeway.pid, resource.RLIMIT_NOFILE) == (4 * FEW, 4 * FEW)
