"""A request is served in the mode its head came in, however long its body takes."""

import pytest

from tapeway.core.model.control import Mode, Outcome
from tests.server.in_process_proxy import running_proxy
from tests.support.socket_upstream import Peer


@pytest.mark.parametrize(
    ("came_in", "goes_on_in", "outcome"),
    [("record", "replay", "recorded"), ("replay", "record", "miss")],
)
async def test_a_mode_switch_during_the_upload_does_not_affect_the_request(
    came_in: Mode, goes_on_in: Mode, outcome: Outcome
) -> None:
    async with (
        Peer() as peer,
        running_proxy(peer.url, mode=came_in) as proxy,
        proxy.connect() as app,
    ):
        head = proxy.request(b"POST /", b"Expect: 100-continue", b"Content-Length: 5")
        assert (await app.ask(head)).status == 100
        await proxy.broker.set_mode(goes_on_in)

        answer = await app.ask(b"hello")

        assert answer.outcome == outcome.encode()
        assert len(peer.requests) == (came_in == "record")
