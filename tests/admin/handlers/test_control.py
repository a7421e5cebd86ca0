"""Insert, eject and rewind, the mode changed while requests are served, and the report."""

import asyncio
import json
import re
from xml.etree import ElementTree

import pytest

from tapeway.engine.journal import MissedCall
from tapeway.providers.prices import PRICES_OF
from tests.admin.admin_and_proxy import World, world
from tests.support.fakes.store_instances import Common, InstanceStore


async def test_an_inserted_cassette_is_the_active_one(open_world: World) -> None:
    said = await open_world.done("POST", "/api/v1/insert", {"cassette": "runs/one"})

    assert said == {"cassette": "runs/one", "mode": "auto"}
    assert (await open_world.got("/api/v1/status"))["cassette"] == "runs/one"
    assert (await open_world.ask()).headers["Tapeway-Cassette"] == "runs/one"


async def test_an_inserted_cassette_is_created_at_its_first_recording(open_world: World) -> None:
    await open_world.done("POST", "/api/v1/insert", {"cassette": "new"})
    before = await open_world.broker.store.names()
    await open_world.ask()

    assert (list(before), list(await open_world.broker.store.names())) == ([], ["new"])


async def test_an_insert_may_change_the_mode(open_world: World) -> None:
    await open_world.done("PUT", "/api/v1/mode", {"mode": "passthrough", "cassette": "other"})

    said = await open_world.done("POST", "/api/v1/insert", {"cassette": "other", "mode": "replay"})

    assert (said["cassette"], said["mode"]) == ("other", "replay")
    assert await open_world.got("/api/v1/mode") == in_force("replay")
    assert (await open_world.ask()).status == 400


async def test_an_insert_warns_in_replay_of_a_cassette_that_does_not_exist(
    open_world: World,
) -> None:
    await open_world.ask(cassette="smoke")
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})

    mistyped = await open_world.done("POST", "/api/v1/insert", {"cassette": "smoek"})
    others = [
        await open_world.done("POST", "/api/v1/insert", sent)
        for sent in ({"cassette": "smoke"}, {"cassette": "new", "mode": "auto"})
    ]

    assert mistyped["warning"] == (
        "there is no cassette 'smoek' in memory:: its requests miss; is smoke meant?"
    )
    assert ["warning" in said for said in others] == [False, False]


async def test_a_rewind_goes_back_to_the_first_recording(open_world: World) -> None:
    await open_world.done("PUT", "/api/v1/mode", {"mode": "record"})
    for _ in range(2):
        await open_world.ask()
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})

    first = [await (await open_world.ask()).json() for _ in range(3)]
    said = await open_world.done("POST", "/api/v1/rewind")
    second = [await (await open_world.ask()).json() for _ in range(2)]

    assert first == [{"answer": 1}, {"answer": 2}, {"answer": 2}]
    assert second == [{"answer": 1}, {"answer": 2}]
    assert said == {"takes": 4} == {"takes": (await open_world.got("/api/v1/status"))["takes"]}


async def test_one_cassette_may_be_rewound_alone(open_world: World) -> None:
    for name in ("one", "two"):
        await open_world.ask(cassette=name)

    await open_world.done("POST", "/api/v1/rewind", {"cassette": "one"})

    status = await open_world.got("/api/v1/status")
    assert [(cassette["name"], cassette["unused"]) for cassette in status["cassettes"]] == [
        ("one", 1),
        ("two", 0),
    ]


async def test_an_eject_reports_what_the_run_got(open_world: World) -> None:
    for path in ("/v1/a", "/v1/b"):
        await open_world.ask(path)
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    for _ in range(2):
        await open_world.ask("/v1/a")
    await open_world.ask("/v1/c?page=2")

    report = await open_world.done("POST", "/api/v1/eject")

    assert len(report["cassettes"][0]["unused"][0].pop("mark")) == 16
    assert report == {
        "cassettes": [
            {
                "name": "default",
                "replayed": 2,
                "recorded": 2,
                "live": 0,
                "failed": {},
                "misses": [
                    {
                        "method": "GET",
                        "path": "/v1/c?page=2",
                        "message": "replay miss: GET /v1/c is not in cassette 'default'; "
                        "nothing is recorded for this method and path",
                        "nearest": [],
                        "suggestion": None,
                        "record_command": None,
                        "times": 1,
                    }
                ],
                "unused": [{"index": 1, "method": "GET", "path": "/v1/b"}],
                "duplicates": [],
                "unmarked": [],
                "stale": [],
                "dated": [],
                "unrecorded": [],
                "repeated": [],
                "told_apart": [],
                "unreached": [],
                "faulted": [],
                "redacted": 0,
                "redacted_kinds": {},
                "elsewhere": [],
                "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
                "saved": {
                    "calls": 2,
                    "tokens": 0,
                    "usd": 0.0,
                    "unpriced": [],
                    "prices": f"list prices of {PRICES_OF}",
                },
                "retries": 0,
            }
        ],
        "upstream_connections": 2,
        "bypassed": [],
        "offline": None,
    }
    assert (await open_world.got("/api/v1/status"))["cassettes"] == []


async def test_what_is_not_in_cannot_be_ejected(open_world: World) -> None:
    await open_world.ask()

    first = await open_world.call("POST", "/api/v1/eject")
    second = await open_world.call("POST", "/api/v1/eject")
    other = await open_world.call("POST", "/api/v1/eject", {"cassette": "other"})

    assert [answer.status for answer in (first, second, other)] == [200, 409, 409]


async def test_pruning_drops_what_the_take_did_not_touch(open_world: World) -> None:
    for path in ("/v1/a", "/v1/b", "/v1/c"):
        await open_world.ask(path)
    await open_world.done("POST", "/api/v1/rewind")
    await open_world.ask("/v1/b")

    report = await open_world.done("POST", "/api/v1/eject", {"prune": True})

    left = (await open_world.got("/api/v1/cassettes/default"))["interactions"]
    assert [entry["path"] for entry in report["cassettes"][0]["unused"]] == ["/v1/a", "/v1/c"]
    assert [interaction["request"]["url"] for interaction in left] == [
        "http://service.invalid/v1/b"
    ]


async def test_the_mode_is_told_as_it_is_set(open_world: World) -> None:
    assert await open_world.got("/api/v1/mode") == in_force("auto")
    for mode in ("replay", "record", "passthrough", "auto"):
        assert await open_world.done("PUT", "/api/v1/mode", {"mode": mode}) == in_force(mode)
        assert await open_world.got("/api/v1/mode") == in_force(mode)


async def test_a_cassette_may_have_a_mode_of_its_own(open_world: World) -> None:
    own = in_force("replay", "a/b", **{"a/b": "replay"})
    sent = {"mode": "replay", "cassette": "a/b"}

    assert await open_world.done("PUT", "/api/v1/mode", sent) == own
    assert await open_world.got("/api/v1/mode?cassette=a%2Fb") == own
    assert await open_world.got("/api/v1/mode") == in_force("auto", **{"a/b": "replay"})
    assert (await open_world.ask(cassette="a/b")).status == 400
    assert (await open_world.ask()).headers["Tapeway-Outcome"] == "recorded"


async def test_a_cassette_loses_its_own_mode_with_null(open_world: World) -> None:
    await open_world.done("PUT", "/api/v1/mode", {"mode": "record", "cassette": "smoke"})
    still = await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    recorded = await open_world.ask(cassette="smoke")

    said = await open_world.done("PUT", "/api/v1/mode", {"mode": None, "cassette": "smoke"})

    assert still == in_force("replay", smoke="record")
    assert recorded.headers["Tapeway-Outcome"] == "recorded"
    assert said == in_force("replay", "smoke")
    assert (await open_world.ask("/v1/new", cassette="smoke")).status == 400


async def test_a_mode_for_all_ends_the_modes_of_single_cassettes(open_world: World) -> None:
    for name in ("smoke", "other"):
        await open_world.done("PUT", "/api/v1/mode", {"mode": "record", "cassette": name})

    said = await open_world.done("PUT", "/api/v1/mode", {"mode": "replay", "all": True})

    assert said == in_force("replay")
    for name in ("smoke", "other"):
        assert (await open_world.ask(cassette=name)).status == 400


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ({"mode": None}, "field 'mode': null ends the mode of one cassette"),
        ({"mode": None, "all": True}, "field 'mode': null ends the mode of one cassette"),
        ({"mode": "auto", "cassette": "x", "all": True}, "field 'all': it is for all cassettes"),
        ({"cassette": "x"}, "field 'mode': Field required"),
    ],
)
async def test_a_mode_that_is_for_nobody_is_refused(
    sent: dict[str, object], reason: str, open_world: World
) -> None:
    answer = await open_world.call("PUT", "/api/v1/mode", sent)

    assert answer.status == 400
    assert reason in await answer.text()
    assert await open_world.got("/api/v1/mode") == in_force("auto")


async def test_the_status_lists_modes_of_cassettes_that_are_not_loaded_too(
    open_world: World,
) -> None:
    await open_world.done("PUT", "/api/v1/mode", {"mode": "record", "cassette": "smoke"})

    status = await open_world.got("/api/v1/status")

    assert status["cassettes"] == []
    assert status["own_modes"] == [{"name": "smoke", "mode": "record"}]


def in_force(mode: str, cassette: str | None = None, **own: str) -> dict[str, object]:
    """What is answered about the mode."""
    modes = [{"name": name, "mode": own[name]} for name in sorted(own)]
    return {"mode": mode, "cassette": cassette, "cassettes": modes}


async def test_a_change_starts_a_take_and_no_change_starts_none(open_world: World) -> None:
    for mode in ("auto", "replay", "replay", "auto"):
        await open_world.done("PUT", "/api/v1/mode", {"mode": mode})

    assert (await open_world.got("/api/v1/status"))["takes"] == 3


async def test_after_a_put_no_request_is_served_in_the_old_mode(open_world: World) -> None:
    recorded = 0
    for turn in range(25):
        await open_world.done("PUT", "/api/v1/mode", {"mode": "auto"})
        async with asyncio.TaskGroup() as tasks:
            early = [tasks.create_task(open_world.ask(f"/v1/{turn}/{n}")) for n in range(8)]
            await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
            late = [tasks.create_task(open_world.ask(f"/v1/late/{turn}/{n}")) for n in range(8)]

        outcomes = [task.result().headers["Tapeway-Outcome"] for task in early]
        recorded += outcomes.count("recorded")
        assert set(outcomes) <= {"recorded", "miss"}
        assert {task.result().headers["Tapeway-Outcome"] for task in late} == {"miss"}
    assert recorded == open_world.service.connections


async def test_a_report_before_anything_happened(open_world: World) -> None:
    assert await open_world.got("/api/v1/report") == {
        "cassettes": [],
        "upstream_connections": 0,
        "bypassed": [],
        "offline": None,
    }


async def test_each_cassette_has_its_part(open_world: World) -> None:
    await open_world.done("PUT", "/api/v1/mode", {"mode": "record", "cassette": "two"})
    await open_world.ask("/v1/a", cassette="one")
    for _ in range(2):
        await open_world.ask("/v1/a", cassette="two")
    await open_world.done("PUT", "/api/v1/mode", {"mode": "passthrough", "cassette": "one"})
    await open_world.ask("/v1/a", cassette="one")

    report = await open_world.got("/api/v1/report?format=json")

    one, two = report["cassettes"]
    item = {"method": "GET", "path": "/v1/a"}
    assert (one["name"], one["recorded"], one["live"]) == ("one", 1, 1)
    (unused,) = one["unused"]
    assert re.fullmatch("[0-9a-f]{16}", unused.pop("mark"))
    assert unused == {"index": 0, **item}
    assert (two["name"], two["recorded"], two["replayed"]) == ("two", 2, 0)
    assert two["duplicates"] == [[{"index": 0, **item}, {"index": 1, **item}]]
    assert report["upstream_connections"] == 4


async def test_a_build_server_and_a_person_read_it_in_their_own_forms(open_world: World) -> None:
    await open_world.ask("/v1/a")
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    for _ in range(2):
        await open_world.ask("/v1/<b>")

    answers = [
        await open_world.call("GET", f"/api/v1/report?format={form}") for form in ("junit", "text")
    ]

    suites = ElementTree.fromstring(await answers[0].text())  # noqa: S314 - our own
    failed = [element.get("name") for element in suites.iter("testcase") if len(element)]
    assert failed == ["GET /v1/%3Cb%3E"]
    assert "default: 1 recorded, 2 missed, 1 unused" in await answers[1].text()
    assert [answer.content_type for answer in answers] == ["application/xml", "text/plain"]


@pytest.mark.parametrize(
    ("model", "usd", "unpriced"),
    [
        ("gpt-4o", round(2 * (11 * 2.5 + 7 * 10) / 1e6, 9), []),
        (
            *("gpt-4o-like", None),
            [
                {
                    "model": "openai/gpt-4o-like",
                    "calls": 2,
                    "prompt_tokens": 22,
                    "completion_tokens": 14,
                }
            ],
        ),
    ],
)
async def test_what_replays_spared_is_counted_and_has_a_price_if_the_model_has(
    open_world: World, model: str, usd: float | None, unpriced: list[object]
) -> None:
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    open_world.service.body = json.dumps({"object": "chat.completion", "usage": usage}).encode()
    sent = {"model": model, "messages": [{"role": "user", "content": "hello"}]}
    for _ in range(3):
        async with open_world.http.post(
            open_world.proxy + "/v1/chat/completions", json=sent
        ) as response:
            assert response.status == 200

    (part,) = (await open_world.got("/api/v1/report"))["cassettes"]

    assert part["usage"] == {name: 2 * count for name, count in usage.items()}
    assert part["saved"] == {
        "calls": 2,
        "tokens": 36,
        "usd": usd,
        "unpriced": unpriced,
        "prices": f"list prices of {PRICES_OF}",
    }


async def test_octets_that_are_no_text_do_not_break_it(open_world: World) -> None:
    await open_world.ask()
    odd = b"/caf\xe9".decode("utf-8", "surrogateescape")
    missed = MissedCall("GET", odd, f"GET {odd}")
    open_world.broker.journal.tallies["default"].misses["GET", odd, None] = missed

    (part,) = (await open_world.got("/api/v1/report"))["cassettes"]

    (miss,) = part["misses"]
    assert (miss["path"], miss["message"]) == ("/caf\\udce9", "GET /caf\\udce9")


async def test_what_an_eject_would_do_is_told_before(open_world: World) -> None:
    await open_world.ask("/v1/a")
    await open_world.ask("/v1/b")
    await open_world.done("POST", "/api/v1/rewind")
    await open_world.ask("/v1/a")
    await open_world.done("PUT", "/api/v1/slots/w-1", {"cassette": "default"})

    found = await open_world.got("/api/v1/eject")
    other = await open_world.got("/api/v1/eject?cassette=other")

    assert found == {
        "cassette": "default",
        "loaded": True,
        "in_flight": 0,
        "interactions": 2,
        "recorded": 2,
        "unused": 1,
        "slots": ["w-1"],
        "instances": [],
    }
    assert (other["loaded"], other["interactions"]) == (False, 0)
    assert (await open_world.got("/api/v1/status"))["cassettes"] != [], "nothing was ejected"


async def test_recordings_in_flight_are_counted_by_cassette(open_world: World) -> None:
    async with asyncio.TaskGroup() as tasks:
        open_world.service.gate.clear()
        tasks.create_task(open_world.ask("/v1/a", cassette="one"))
        await open_world.service.asked.get()

        one = await open_world.got("/api/v1/eject?cassette=one")
        other = await open_world.got("/api/v1/eject?cassette=other")
        status = await open_world.got("/api/v1/status")
        open_world.service.gate.set()

    assert (one["in_flight"], other["in_flight"], status["in_flight"]) == (1, 0, 1)


async def test_instances_of_a_shared_store_are_named() -> None:
    common = Common()
    async with world(store=InstanceStore(common)) as found:
        before = await found.got("/api/v1/eject")
        common.instances.append(other := InstanceStore(common))
        after = await found.got("/api/v1/eject")
        common.instances.remove(other)

    assert (len(before["instances"]), len(after["instances"])) == (1, 2)
