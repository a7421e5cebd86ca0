"""OpenAI's client over WebSocket against a recording: equal events, and no upstream."""

from collections.abc import Iterator, Mapping

import pytest

from tests.clients.end_to_end.recorded_run import RecordedRun, Searched, taken
from tests.clients.programs.openai_sockets import REALTIME, RESPONSES
from tests.clients.programs.target import Run

RUNS: Mapping[str, Run] = RESPONSES | REALTIME

pytestmark = [
    pytest.mark.parametrize("name", RUNS),
    pytest.mark.parametrize("take", ["buffer", "stream"], indirect=True),
]


@pytest.fixture(scope="module")
def take(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RecordedRun]:
    delivery = request.param
    folder = tmp_path_factory.mktemp(delivery)
    with taken(folder, "openai", RUNS, "--delivery", delivery) as made:
        yield made


@pytest.fixture
def leaks(take: RecordedRun, name: str) -> Searched:
    return Searched(take, name)


def test_the_client_gets_equal_events_twice(take: RecordedRun, name: str) -> None:
    recorded = take.recorded[name].outcome
    if isinstance(recorded, Exception):
        raise recorded

    assert take.replay(name) == recorded
    assert take.replay(name) == recorded
