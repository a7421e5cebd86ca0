"""The bare servers that the benchmarks compare with."""

from bench.answers import JSON_BODY, JSON_PATH, STREAM_PATH, request
from bench.replay import LAST_CHUNK, started


def test_a_proxy_that_looks_at_nothing_sends_on_each_answer_as_it_came() -> None:
    with (
        started("-m", "bench.bare", "protocol") as upstream,
        started("-m", "bench.bare", "hold", upstream.url) as proxy,
    ):
        for path, end in ((JSON_PATH, JSON_BODY), (STREAM_PATH, LAST_CHUNK)) * 2:
            assert proxy.ask(request(path), end) == upstream.ask(request(path), end)
