"""What Prometheus reads."""

import asyncio
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tapeway.admin.metrics import MAX_NAMED, OTHERS
from tapeway.engine.cassette_context import CassetteCounts
from tapeway.errors import StoreAway
from tests.admin.admin_and_proxy import World

Samples = dict[tuple[str, tuple[str, ...]], float]


async def _samples(found: World) -> Samples:
    response = await found.call("GET", "/metrics")
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(await response.text())
        for sample in family.samples
    }


async def test_counts_grow_with_what_happens(open_world: World) -> None:
    before = await _samples(open_world)
    for path in ("/v1/a", "/v1/a", "/v1/b"):
        await open_world.ask(path)
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await open_world.ask("/v1/c")
    after = await _samples(open_world)

    requests = "tapeway_requests_total"
    assert {labels: value for (name, labels), value in before.items() if name == requests} == {
        (outcome,): 0.0 for outcome in ("replayed", "recorded", "live", "miss", "error")
    }
    assert {labels: value for (name, labels), value in after.items() if name == requests} == {
        ("replayed",): 1.0,
        ("recorded",): 2.0,
        ("live",): 0.0,
        ("miss",): 1.0,
        ("error",): 0.0,
    }
    assert after["tapeway_upstream_connections_total", ()] == 2.0
    assert after["tapeway_cassette_interactions", ("default",)] == 2.0
    assert after["tapeway_build_info", ("1.2.3",)] == 1.0
    assert (before["tapeway_mode", ("auto",)], after["tapeway_mode", ("auto",)]) == (1.0, 0.0)
    assert after["tapeway_mode", ("replay",)] == 1.0
    assert after["process_resident_memory_bytes", ()] > 0


async def test_recordings_in_flight_are_counted(open_world: World) -> None:
    open_world.service.gate.clear()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(open_world.ask())
        await open_world.service.asked.get()
        during = await _samples(open_world)
        open_world.service.gate.set()
    after = await _samples(open_world)

    assert during["tapeway_recordings_in_flight", ()] == 1.0
    assert after["tapeway_recordings_in_flight", ()] == 0.0


async def test_draining_is_seen(open_world: World) -> None:
    open_world.broker.drain()

    assert (await _samples(open_world))["tapeway_draining", ()] == 1.0


async def test_labels_do_not_grow_with_the_number_of_cassettes(open_world: World) -> None:
    for number in range(MAX_NAMED + 3):
        await open_world.ask(cassette=f"run-{number}")

    found = {
        labels[0]: value
        for (name, labels), value in (await _samples(open_world)).items()
        if name == "tapeway_cassette_interactions"
    }
    assert len(found) == MAX_NAMED + 1
    assert found[OTHERS] == 3.0
    assert sum(found.values()) == MAX_NAMED + 3


async def test_names_and_labels_keep_to_prometheus_rules(open_world: World) -> None:
    await open_world.ask()

    text = await (await open_world.call("GET", "/metrics")).text()

    for line in text.splitlines():
        assert re.match(
            r"# (HELP|TYPE) [a-z_]+ |[a-z_]+(\{[a-z]+=\"[^\"\\]*\"\})? [-+0-9.e]+$", line
        )


@pytest.mark.parametrize("place", ["/v1/models?key=canary-key-1234567890", "/v1/canary"])
async def test_no_path_and_no_key_is_in_them(open_world: World, place: str) -> None:
    await open_world.ask(place)

    assert "canary" not in await (await open_world.call("GET", "/metrics")).text()


async def test_they_are_told_while_the_store_is_away(
    open_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> list[CassetteCounts]:
        raise StoreAway("the database is away")

    await open_world.ask()
    before = await _samples(open_world)
    monkeypatch.setattr(open_world.broker, "loaded", away)
    during = await _samples(open_world)

    assert during["tapeway_requests_total", ("recorded",)] == 1.0
    assert set(before) - set(during) == {
        ("tapeway_cassettes_loaded", ()),
        ("tapeway_cassette_interactions", ("default",)),
    }


async def test_they_say_whether_it_is_ready(open_world: World) -> None:
    assert (await _samples(open_world))["tapeway_ready", ()] == 1.0
    open_world.broker.drain()
    assert (await _samples(open_world))["tapeway_ready", ()] == 0.0
