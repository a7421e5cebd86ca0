"""Every encoding and coding of an answer, recorded under both deliveries, byte for byte."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any, TypeGuard

import pytest

from tapeway.testing.content_codings import CODINGS
from tests.clients.end_to_end.recorded_run import RecordedRun, Searched, taken
from tests.clients.programs import bedrock_sdk, coded_calls
from tests.clients.programs.target import Run

RUNS: dict[str, Run] = coded_calls.RUNS | {
    f"boto3_{name}": bedrock_sdk.RUNS[f"sync_{name}"]
    for name in ("converse_stream", "invoke_stream", "stream_error")
}

pytestmark = [
    pytest.mark.parametrize("delivery", ["buffer", "stream"]),
    pytest.mark.parametrize("name", RUNS),
]


@pytest.fixture(scope="module")
def takes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], RecordedRun]]:
    with ExitStack() as stack:

        @cache
        def take_of(delivery: str) -> RecordedRun:
            folder, options = tmp_path_factory.mktemp(delivery), ("--delivery", delivery)
            return stack.enter_context(taken(folder, "many", RUNS, *options, codings=CODINGS))

        yield take_of


@pytest.fixture
def take(takes: Callable[[str], RecordedRun], delivery: str) -> RecordedRun:
    return takes(delivery)


@pytest.fixture
def leaks(take: RecordedRun, name: str) -> Searched:
    return Searched(take, name)


def joined(outcome: list[object]) -> list[object]:
    """What was seen, wherever its chunks ended: an end mark that was held back came alone."""
    return [b"".join(part) if _chunks(part) else part for part in outcome]


def _chunks(value: Any) -> TypeGuard[Sequence[bytes]]:
    return isinstance(value, list | tuple) and all(isinstance(part, bytes) for part in value)


def test_a_replay_is_what_the_client_saw_live(take: RecordedRun, name: str) -> None:
    outcome = take.recorded[name].outcome
    if isinstance(outcome, Exception):
        raise outcome

    assert joined(take.replay(name)) == joined(outcome)
    assert take.proxy.status()["upstream_connections"] == 0


def test_a_replay_has_the_upstream_s_bytes_and_chunks_before_their_coding(
    take: RecordedRun, name: str
) -> None:
    (request, *more) = take.recorded[name].received
    replayed = take.replay_bytes(name, request)

    assert not more
    assert (request.answer != request.plain) is (name in coded_calls.CODED)
    assert replayed.status == request.plain.status
    assert replayed.chunks == request.plain.writes
    assert replayed.chunked == request.plain.chunked
    assert replayed.complete
    assert replayed.values("content-encoding") == []
