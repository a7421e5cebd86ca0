"""Several processes that the API speaks of as one."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tapeway.admin.handlers.inspection.followers import RecordingNews
from tapeway.admin.models.inspection import RecordingUnderWay
from tapeway.core.model.control import Outcome
from tapeway.engine.broker import Broker
from tapeway.engine.journal import ClientTexts, RequestJournal, ServedRequest, Tally
from tapeway.errors import TapewayError
from tapeway.ports import OpenConnections
from tests.admin.admin_and_proxy import World, world
from tests.support.fakes.store_instances import Common, InstanceStore


class Others:
    """Processes that are told of when they are asked; none of them is one."""

    def __init__(self, broker: Broker, journal: RequestJournal) -> None:
        self._broker = broker
        self._journal = journal
        self.pids: Sequence[int] = (os.getpid(),)
        self.past_cpu_s = 0.0
        self.connections = 7
        self.open_connections = OpenConnections(2, 1)
        self.in_flight = 3
        self.fault: TapewayError | None = None
        self.untold: list[ServedRequest] = []
        self.ended = asyncio.Event()
        self.ended.set()
        self.asked: asyncio.Queue[str] = asyncio.Queue()

    def readiness_error(self) -> TapewayError | None:
        return self.fault

    async def sync(self) -> None:
        untold, self.untold = self.untold, []
        for untold_entry in untold:
            self._journal.tallies.setdefault(untold_entry.cassette, Tally())
            self._journal.add(untold_entry)

    async def wait_for_recordings(self, cassette: str) -> None:
        self.asked.put_nowait(cassette)
        await self.ended.wait()

    async def recordings(self) -> list[RecordingUnderWay]:
        return []

    async def recording_news(self, id: str, follower: str) -> RecordingNews | None:
        return None

    def leave_recording(self, id: str, follower: str) -> None: ...


@pytest.fixture
async def others() -> AsyncIterator[tuple[World, Others]]:
    made: list[Others] = []

    def make(broker: Broker, journal: RequestJournal) -> Others:
        made.append(Others(broker, journal))
        return made[0]

    async with world(store=InstanceStore(Common()), processes=make) as found:
        yield found, made[0]


def served(outcome: Outcome) -> ServedRequest:
    return ServedRequest(
        "o", 0.0, "there", "r", "GET", ClientTexts("/x"), outcome, 200, None, 0.0, None
    )


def entry(number: int) -> ServedRequest:
    return ServedRequest(
        f"o-{number}", 0.0, "c", "r", "GET", ClientTexts("/x"), "miss", 400, None, 0.0, None
    )


async def test_what_they_served_is_in_every_answer(others: tuple[World, Others]) -> None:
    open_world, crew = others
    crew.untold = [served("replayed")._replace(tokens=(1, 2, 3)), served("miss")]
    status = await open_world.got("/api/v1/status")
    crew.untold = [served("live")]
    report = await open_world.got("/api/v1/report")
    crew.untold = [entry(1), entry(2)]
    journal = await open_world.got("/api/v1/journal?outcome=miss&limit=1")

    assert status["counts"] == {"replayed": 1, "recorded": 0, "live": 0, "miss": 1, "error": 0}
    assert status["upstream_connections"] == report["upstream_connections"] == 7
    assert status["open_connections"] == {"in_use": 2, "idle": 1}
    (there,) = [cassette for cassette in report["cassettes"] if cassette["name"] == "there"]
    assert (there["replayed"], there["live"]) == (1, 1)
    assert [(miss["method"], miss["path"]) for miss in there["misses"]] == [("GET", "/x")]
    assert there["usage"]["total_tokens"] == 3
    assert ([logged["id"] for logged in journal["entries"]], journal["next"]) == (["o-2"], "o-2")


async def test_a_call_that_was_repeated_to_another_process_is_one(
    others: tuple[World, Others],
) -> None:
    open_world, crew = others
    crew.untold = [
        served("live")._replace(key=b"key", attempt=1),
        served("recorded")._replace(key=b"key", attempt=2),
    ]
    report = await open_world.got("/api/v1/report")

    (there,) = [cassette for cassette in report["cassettes"] if cassette["name"] == "there"]
    assert (there["live"], there["recorded"], there["retries"]) == (0, 1, 1)


async def test_their_trouble_makes_it_unready(others: tuple[World, Others]) -> None:
    open_world, crew = others
    crew.fault = TapewayError("worker 2 is down", status=503, code="worker_down")
    refused = await open_world.call("GET", "/readyz")
    alive = await open_world.call("GET", "/healthz")
    crew.fault = None

    assert (refused.status, (await refused.json())["error"]["code"]) == (503, "worker_down")
    assert alive.status == 200
    assert (await open_world.call("GET", "/readyz")).status == 200


async def test_what_a_cassette_is_ejected_with_waits_for_their_calls(
    others: tuple[World, Others],
) -> None:
    open_world, crew = others
    await open_world.ask(cassette="there")
    crew.ended.clear()
    async with asyncio.TaskGroup() as tasks:
        ejecting = tasks.create_task(
            open_world.done("POST", "/api/v1/eject", {"cassette": "there"})
        )
        assert await crew.asked.get() == "there"
        assert not ejecting.done()
        assert open_world.broker.is_loaded("there")
        crew.ended.set()
    await open_world.ask()
    await open_world.done("POST", "/api/v1/eject", {})

    assert await crew.asked.get() == "default"


async def test_metrics_add_up_what_they_take_of_the_machine(others: tuple[World, Others]) -> None:
    open_world, crew = others
    alone = await _samples(open_world)
    crew.pids = (os.getpid(), os.getpid(), 2**22 + 1)
    crew.past_cpu_s = 1000.0
    together = await _samples(open_world)

    # Both are rounded to hundredths.
    assert together["process_cpu_seconds_total"] > 999.9 + 2 * alone["process_cpu_seconds_total"]
    assert together["process_open_fds"] >= 2 * alone["process_open_fds"] - 10
    assert together["process_max_fds"] == alone["process_max_fds"]
    assert together["process_start_time_seconds"] == alone["process_start_time_seconds"]
    assert together["tapeway_upstream_connections_total"] == 7
    assert together["tapeway_recordings_in_flight"] == 3


async def _samples(found: World) -> dict[str, float]:
    text = await (await found.call("GET", "/metrics")).text()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
