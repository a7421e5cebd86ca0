"""The servers that the WebSocket benchmark compares with."""

from contextlib import closing

from bench.replay import started
from bench.websocket import HELLO, HELLO_PATH, TURN_PATH, Talk, questions


def test_the_relay_passes_on_what_its_upstream_answers() -> None:
    with (
        started("-m", "bench.websocket", "serve") as upstream,
        started("-m", "bench.websocket", "relay", upstream.url) as relay,
    ):
        asked = questions()
        for server in (upstream, relay):
            with (
                closing(Talk(server, TURN_PATH)) as talk,
                closing(Talk(server, HELLO_PATH)) as other,
            ):
                talk.ask(next(asked))
                other.ask(next(asked), HELLO.encode())
