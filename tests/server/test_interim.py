"""Answers before the answer: not taken for the final one, and not passed on."""

import pytest

from tapeway.core.model.control import Mode
from tests.peer import OK, Peer
from tests.server.stand import stand

HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"
INTERIM = {
    "100": (b"HTTP/1.1 100 Continue\r\n\r\n",),
    "102": (b"HTTP/1.1 102 Processing\r\n\r\n",),
    "103": (HINTS,),
    "199": (b"HTTP/1.1 199 Whatever\r\n\r\n",),
    "several": (b"HTTP/1.1 100 Continue\r\n\r\n", HINTS, HINTS, b"HTTP/1.1 102 Processing\r\n\r\n"),
}


@pytest.mark.parametrize("mode", ["record", "passthrough"])
@pytest.mark.parametrize("cut", ["together", "apart"])
@pytest.mark.parametrize("name", INTERIM)
async def test_an_interim_answer_is_not_taken_for_the_final_one(
    name: str, cut: str, mode: Mode
) -> None:
    steps = (*INTERIM[name], OK)
    async with (
        Peer(*([b"".join(steps)] if cut == "together" else steps)) as peer,
        stand(peer.url, mode=mode) as proxy,
        proxy.connect() as app,
    ):
        first = await app.ask(proxy.request(b"POST /1", body=b"{}"))
        second = await app.ask(proxy.request(b"GET /2"))

        assert [(each.status, each.body) for each in (first, second)] == [(200, b"ok")] * 2
        assert first.passed_on == []
        for interaction in await proxy.recorded():
            assert interaction.response.status == 200


async def test_a_switch_of_protocols_nobody_asked_for_is_an_error() -> None:
    switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nbytes"
    async with Peer(switch) as peer, stand(peer.url) as proxy:
        answer = await proxy.ask()

        assert answer.status == 502
        assert b"upstream_protocol" in answer.body
        assert await proxy.recorded() == []


async def test_an_interim_answer_with_nothing_behind_it_is_no_answer() -> None:
    async with Peer(HINTS, "close") as peer, stand(peer.url) as proxy:
        answer = await proxy.ask()

        assert answer.status == 502
        assert b"upstream_reset" in answer.body
