"""The report, as continuous integration reads it."""

import json
import re
from xml.etree import ElementTree

from tests.admin.world import World


async def test_a_report_before_anything_happened(open_world: World) -> None:
    assert await open_world.got("/api/v1/report") == {"cassettes": [], "upstream_connections": 0}


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
    failed = [each.get("name") for each in suites.iter("testcase") if len(each)]
    assert failed == ["GET /v1/%3Cb%3E"] * 2
    assert "default: 1 recorded, 2 missed, 1 unused" in await answers[1].text()
    assert [each.content_type for each in answers] == ["application/xml", "text/plain"]


async def test_tokens_that_replays_spared_are_counted(open_world: World) -> None:
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    open_world.service.body = json.dumps({"object": "chat.completion", "usage": usage}).encode()
    sent = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    for _ in range(3):
        async with open_world.http.post(
            open_world.proxy + "/v1/chat/completions", json=sent
        ) as response:
            assert response.status == 200

    (part,) = (await open_world.got("/api/v1/report"))["cassettes"]

    assert part["usage"] == {name: 2 * count for name, count in usage.items()}
    assert part["saved"] == {"calls": 2, "tokens": 36, "usd": None}


async def test_octets_that_are_no_text_do_not_break_it(open_world: World) -> None:
    await open_world.ask()
    odd = b"GET /caf\xe9".decode("utf-8", "surrogateescape")
    open_world.broker._tallies["default"].misses.append(odd)

    (part,) = (await open_world.got("/api/v1/report"))["cassettes"]

    assert part["misses"] == ["GET /caf\\udce9"]
