"""Real clients against a recording: equal objects, equal bytes, equal chunks, and no upstream."""

import shutil
from collections.abc import Mapping

import pytest

from tests.clients.end_to_end.recorded_run import RecordedRun, Searched
from tests.clients.programs import (
    anthropic_sdk,
    bedrock_sdk,
    curl_calls,
    gemini_sdk,
    ollama_sdk,
    openai_media,
    openai_sdk,
    raw_calls,
)
from tests.clients.programs.raw_calls import comparable
from tests.clients.programs.target import Run
from tests.support.aws_signatures import is_accepted
from tests.support.thoroughness import step


def _sample(runs: Mapping[str, Run]) -> Mapping[str, Run]:
    """By default every third call of an asynchronous client: on the wire it is like the other."""
    asynchronous = [name for name in runs if name.startswith("async_")]
    left_out = {*asynchronous} - {*asynchronous[:: step(3)]}
    return {name: run for name, run in runs.items() if name not in left_out}


RUNS: dict[str, Mapping[str, Run]] = {
    "openai": _sample(openai_sdk.RUNS | openai_media.RUNS),
    "anthropic": _sample(anthropic_sdk.RUNS),
    "gemini": _sample(gemini_sdk.RUNS),
    "bedrock": bedrock_sdk.RUNS,
    "ollama": _sample(ollama_sdk.RUNS),
    # Routes of one's own, for clients that are told the whole URL.
    "raw": raw_calls.RUNS,
    "curl": curl_calls.RUNS,
}
NO_CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
EACH = [
    pytest.param(route, name, id=f"{route}-{name}", marks=NO_CURL if route == "curl" else ())
    for route, runs in RUNS.items()
    for name in runs
][:: step(2)]

pytestmark = [
    # google-genai subclasses aiohttp's session, which warns at the first asynchronous call.
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession"),
    pytest.mark.parametrize(("route", "name"), EACH),
]


@pytest.fixture
def leaks(take: RecordedRun, name: str) -> Searched:
    return Searched(take, name)


def test_the_client_gets_equal_objects(take: RecordedRun, name: str) -> None:
    outcome = take.recorded[name].outcome
    if isinstance(outcome, Exception):
        raise outcome

    assert take.replay(name) == outcome
    assert take.proxy.status()["upstream_connections"] == 0


def test_a_socket_gets_equal_bytes_in_equal_chunks(take: RecordedRun, name: str) -> None:
    take.proxy.admin("POST", "/api/v1/rewind")
    for request in take.recorded[name].received:
        replayed = take.replay_bytes(name, request)

        assert replayed.status == request.answer.status
        if b'"results_url":"' in request.answer.body:
            # The address leads through the proxy.
            continue
        assert replayed.body == request.answer.body
        assert replayed.chunked == request.answer.chunked
        assert replayed.chunks == request.answer.writes
        assert replayed.complete
        assert comparable(replayed.fields) == comparable(request.answer.headers)


def test_requests_to_aws_are_signed_with_the_credentials_of_the_proxy(
    take: RecordedRun, name: str
) -> None:
    recorded = take.recorded[name]
    if take.route != "bedrock":
        assert not recorded.own
        return
    for request in recorded.received:
        assert is_accepted(
            *(request.method, request.target, request.headers, request.body),
            access_key=recorded.own["AWS_ACCESS_KEY_ID"],
            secret_key=recorded.own["AWS_SECRET_ACCESS_KEY"],
        )
