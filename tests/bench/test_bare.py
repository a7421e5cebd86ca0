"""The bare servers that the benchmarks compare with."""

import pytest

from bench.answers import EVENTS, JSON_BODY, JSON_PATH, STREAM_PATH, request
from bench.replay import BASELINES, LAST_CHUNK, started


@pytest.mark.parametrize("kind", BASELINES)
def test_each_bare_server_gives_the_same_answers(kind: str) -> None:
    with started("-m", "bench.bare", kind) as server:
        for _ in range(2):
            assert server.ask(request(JSON_PATH)).endswith(b"\r\n\r\n" + JSON_BODY)
            streamed = server.ask(request(STREAM_PATH), LAST_CHUNK)
            assert all(b"\r\n%b\r\n" % event in streamed for event in EVENTS)


def test_a_proxy_that_looks_at_nothing_sends_on_each_answer_as_it_came() -> None:
    with (
        started("-m", "bench.bare", "protocol") as upstream,
        started("-m", "bench.bare", "hold", upstream.url) as proxy,
    ):
        for path, end in ((JSON_PATH, JSON_BODY), (STREAM_PATH, LAST_CHUNK)) * 2:
            assert proxy.ask(request(path), end) == upstream.ask(request(path), end)
