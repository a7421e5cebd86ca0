"""OpenAI's client over WebSocket against a recording: equal events, and no upstream."""

from collections.abc import Iterator, Mapping

import pytest

from tests.clients.openai_sockets import REALTIME, RESPONSES
from tests.clients.target import Run
from tests.e2e.recorded_run import Searched, Take, taken

# A client that gets the whole answer at once can steer nothing.
BUFFERED: Mapping[str, Run] = {
    name: run for name, run in RESPONSES.items() if name not in ("steered", "blocking")
}
TAKES: Mapping[str, tuple[str, Mapping[str, Run]]] = {
    "buffered": ("buffer", BUFFERED),
    "streamed": ("stream", RESPONSES),
    "sessions": ("buffer", REALTIME),
}
CASES = [(kind, name) for kind, (_, runs) in TAKES.items() for name in runs]

pytestmark = pytest.mark.parametrize(("take", "name"), CASES, indirect=["take"])


@pytest.fixture(scope="module")
def take(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Take]:
    delivery, runs = TAKES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    with taken(folder, "openai", runs, "--delivery", delivery) as made:
        yield made


@pytest.fixture
def leaks(take: Take, name: str) -> Searched:
    return Searched(take, name)


def test_the_client_gets_equal_events_twice(take: Take, name: str) -> None:
    recorded = take.recorded[name].outcome
    if isinstance(recorded, Exception):
        raise recorded

    assert take.replay(name) == recorded
    assert take.replay(name) == recorded
