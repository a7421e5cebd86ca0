"""Query values that may be a key or a page: each answers for what it was recorded with."""

from tests.peer import Peer
from tests.server.stand import stand


async def test_two_tokens_are_two_requests_and_another_key_is_not() -> None:
    async with Peer() as peer, stand(peer.url, mode="auto") as proxy:
        for token in (b"first-page-token", b"second-page-token"):
            assert (await proxy.ask(b"GET /list?token=" + token)).outcome == b"recorded"
        assert (await proxy.ask(b"GET /list?token=first-page-token")).outcome == b"replayed"
        assert (await proxy.ask(b"GET /list?token=third-page-token")).outcome == b"recorded"

        assert (
            await proxy.ask(b"GET /one?key=the-key-it-was-recorded-with")
        ).outcome == b"recorded"
        await proxy.broker.rewind()
        assert (await proxy.ask(b"GET /one?key=some-other-key-than-that")).outcome == b"replayed"
        await proxy.broker.set_mode("replay")
        assert (await proxy.ask(b"GET /one?key=yet-another-key-than-that")).outcome == b"replayed"
        assert (await proxy.ask(b"GET /one")).outcome == b"replayed"
        assert (await proxy.ask(b"GET /list?token=second-page-token")).outcome == b"replayed"
        assert (await proxy.ask(b"GET /list?token=fourth-page-token")).outcome == b"miss"


async def test_the_page_after_one_without_a_token_is_asked_for() -> None:
    async with Peer() as peer, stand(peer.url, mode="auto") as proxy:
        assert (await proxy.ask(b"GET /list")).outcome == b"recorded"
        assert (await proxy.ask(b"GET /list?token=second-page-token")).outcome == b"recorded"
        assert (await proxy.ask(b"GET /list")).outcome == b"replayed"
