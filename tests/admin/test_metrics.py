"""What Prometheus reads."""

import asyncio
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tapeway.engine.cassettes.context import CassetteCounts
from tapeway.engine.journal import MAX_NAMED, OTHERS, ClientTexts, ServedAnswer, ServedRequest
from tapeway.errors import StoreAway, StoreFull
from tests.admin.admin_and_proxy import World

Samples = dict[tuple[str, tuple[str, ...]], float]
OUTCOMES = ("replayed", "recorded", "live", "miss", "error")


async def _samples(found: World) -> Samples:
    response = await found.call("GET", "/metrics")
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(await response.text())
        for sample in family.samples
    }


def _by_outcome(samples: Samples) -> dict[str, float]:
    sums: dict[str, float] = {}
    for (name, labels), value in samples.items():
        if name == "tapeway_requests_total":
            sums[labels[1]] = sums.get(labels[1], 0.0) + value
    return sums


async def test_counts_grow_with_what_happens(open_world: World) -> None:
    before = await _samples(open_world)
    for path in ("/v1/a", "/v1/a", "/v1/b"):
        await open_world.ask(path)
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await open_world.ask("/v1/c")
    after = await _samples(open_world)

    assert _by_outcome(before) == dict.fromkeys(OUTCOMES, 0.0)
    assert _by_outcome(after) == dict.fromkeys(OUTCOMES, 0.0) | {
        "recorded": 3.0,
        "miss": 1.0,
    }
    assert after["tapeway_upstream_connections_total", ()] == 3.0
    assert after["tapeway_cassette_interactions", ("default",)] == 3.0
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


async def test_requests_of_further_cassettes_are_counted_together(open_world: World) -> None:
    for mode in ("auto", "replay"):
        await open_world.done("PUT", "/api/v1/mode", {"mode": mode})
        for number in range(MAX_NAMED + 3):
            await open_world.ask(cassette=f"run-{number}")

    found: dict[tuple[str, str], float] = {
        (labels[1], labels[0]): value
        for (name, labels), value in (await _samples(open_world)).items()
        if name == "tapeway_requests_total" and labels[0]
    }
    assert len(found) == 2 * (MAX_NAMED + 1)
    assert found["recorded", "run-99"] == found["replayed", "run-99"] == 1.0
    assert found["recorded", OTHERS] == found["replayed", OTHERS] == 3.0


async def test_a_request_is_counted_with_its_route_status_class_and_cassette(
    open_world: World,
) -> None:
    await open_world.ask(cassette="smoke")
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await open_world.ask(cassette="smoke")
    await open_world.ask("/v1/other", cassette="smoke")

    text = await (await open_world.call("GET", "/metrics")).text()
    for outcome, status in (("recorded", "2xx"), ("replayed", "2xx"), ("miss", "4xx")):
        labels = f'outcome="{outcome}",route="default",status="{status}"'
        assert f'tapeway_requests_total{{cassette="smoke",{labels}}} 1.0' in text
        count = f"tapeway_request_duration_seconds_count{{{labels}}} 1.0"
        assert count in text


async def test_durations_are_counted_in_seconds_by_their_bucket(open_world: World) -> None:
    for duration_ms in (0.02, 1.0, 1.5, 60_000.0, 61_000.0):
        open_world.journal.add(
            ServedRequest(
                *("o", 0.0, "c", "r", "GET", ClientTexts("/"), ServedAnswer("live", 200)),
                *(duration_ms, None),
            )
        )

    samples = await _samples(open_world)

    name = "tapeway_request_duration_seconds"
    buckets = {
        labels[0]: value
        for (sample, labels), value in samples.items()
        if sample == f"{name}_bucket"
    }
    assert list(buckets) == [
        *("0.001", "0.002", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5"),
        *("1", "2.5", "5", "10", "30", "60", "+Inf"),
    ]
    assert (buckets["0.001"], buckets["0.002"], buckets["30"]) == (2.0, 3.0, 3.0)
    assert (buckets["60"], buckets["+Inf"]) == (4.0, 5.0)
    assert samples[f"{name}_count", ("live", "r", "2xx")] == 5.0
    assert samples[f"{name}_sum", ("live", "r", "2xx")] == pytest.approx(121.00252)


async def test_bytes_are_those_of_bodies_to_clients_and_from_upstreams(open_world: World) -> None:
    open_world.service.body = b"x" * 1000
    for _ in range(3):
        await open_world.ask()
    await open_world.done("PUT", "/api/v1/mode", {"mode": "passthrough"})
    await open_world.ask()
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    missed = await open_world.ask("/v1/other")

    samples = await _samples(open_world)
    told = 4000 + int(missed.headers["Content-Length"])
    assert samples["tapeway_sent_bytes_total", ("default",)] == told
    assert samples["tapeway_received_bytes_total", ("default",)] == 4000


async def test_a_request_that_failed_because_of_the_store_is_counted(
    open_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise StoreFull("no space left")

    await open_world.ask()
    before = await _samples(open_world)
    monkeypatch.setattr(open_world.broker, "decide", full)
    assert (await open_world.ask("/v1/other")).status == 507
    after = await _samples(open_world)

    name = ("tapeway_store_errors_total", ())
    assert (before[name], after[name]) == (0.0, 1.0)


async def test_names_and_labels_keep_to_prometheus_rules(open_world: World) -> None:
    await open_world.ask()

    text = await (await open_world.call("GET", "/metrics")).text()

    for line in text.splitlines():
        assert re.match(
            r"# (HELP|TYPE) [a-z_]+ |[a-z_]+(\{([a-z]+=\"[^\"\\]*\",?)+\})? [-+0-9.e]+$", line
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
    monkeypatch.setattr(open_world.broker.source, "counts", away)
    during = await _samples(open_world)

    assert _by_outcome(during)["recorded"] == 1.0
    assert set(before) - set(during) == {
        ("tapeway_cassettes_loaded", ()),
        ("tapeway_cassette_interactions", ("default",)),
    }


async def test_they_say_whether_it_is_ready(open_world: World) -> None:
    assert (await _samples(open_world))["tapeway_ready", ()] == 1.0
    open_world.broker.drain()
    assert (await _samples(open_world))["tapeway_ready", ()] == 0.0
