"""The journal, as scripts read it."""

from tapeway.engine.journal import ServedRequest
from tests.admin.world import World

KEYS = [
    *("id", "at", "cassette", "route", "method", "path", "outcome", "status", "interaction"),
    *("duration_ms", "match_key", "message", "nearest", "suggestion", "attempt"),
]


async def test_an_entry_says_what_became_of_a_request_and_why(open_world: World) -> None:
    recorded = await open_world.ask("/v1/models?limit=2")
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await open_world.ask("/v1/missing")

    miss, hit = (await open_world.got("/api/v1/journal"))["entries"]

    assert list(miss) == list(hit) == KEYS
    assert hit == {
        "id": hit["id"],
        "at": "2023-11-14T22:13:20.250+00:00",
        "cassette": "default",
        "route": "default",
        "method": "GET",
        "path": "/v1/models?limit=2",
        "outcome": "recorded",
        "status": 200,
        "interaction": int(recorded.headers["Tapeway-Interaction"]),
        "duration_ms": 0.0,
        "match_key": hit["match_key"],
        "message": None,
        "nearest": [],
        "suggestion": None,
        "attempt": None,
    }
    assert hit["match_key"].startswith("v1:")
    assert (miss["outcome"], miss["status"], miss["interaction"]) == ("miss", 424, None)
    assert miss["message"].startswith("replay miss: GET /v1/missing is not in cassette 'default'")


async def test_it_is_newest_first_and_can_be_narrowed(open_world: World) -> None:
    await open_world.ask("/v1/a", cassette="one")
    await open_world.ask("/v1/b", cassette="two")
    await open_world.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await open_world.ask("/v1/c", cassette="one")
    await open_world.ask("/v1/d", cassette="two")

    async def paths(query: str) -> list[str]:
        found = await open_world.got(f"/api/v1/journal{query}")
        return [entry["path"] for entry in found["entries"]]

    assert await paths("") == ["/v1/d", "/v1/c", "/v1/b", "/v1/a"]
    assert await paths("?outcome=miss") == ["/v1/d", "/v1/c"]
    assert await paths("?cassette=one") == ["/v1/c", "/v1/a"]
    assert await paths("?cassette=one&outcome=recorded") == ["/v1/a"]
    assert await paths("?outcome=live") == []


async def test_pages_hold_each_entry_once_though_new_ones_come(open_world: World) -> None:
    for number in range(5):
        await open_world.ask(f"/v1/{number}")

    first = await open_world.got("/api/v1/journal?limit=2")
    await open_world.ask("/v1/new")
    second = await open_world.got(f"/api/v1/journal?limit=2&after={first['next']}")
    third = await open_world.got(f"/api/v1/journal?limit=2&after={second['next']}")

    pages = [[entry["path"] for entry in page["entries"]] for page in (first, second, third)]
    assert pages == [["/v1/4", "/v1/3"], ["/v1/2", "/v1/1"], ["/v1/0"]]
    assert third["next"] is None
    assert (await open_world.got("/api/v1/journal?limit=6"))["next"] is None


async def test_a_page_after_an_entry_that_has_left_is_empty(open_world: World) -> None:
    await open_world.ask()

    assert await open_world.got("/api/v1/journal?after=long-gone") == {"entries": [], "next": None}


async def test_it_can_be_cleared_and_counters_stay(open_world: World) -> None:
    for number in range(3):
        await open_world.ask(f"/v1/{number}")

    assert await open_world.done("DELETE", "/api/v1/journal") == {"removed": 3}
    assert await open_world.got("/api/v1/journal") == {"entries": [], "next": None}
    assert (await open_world.got("/api/v1/status"))["counts"]["recorded"] == 3


async def test_octets_that_are_no_text_do_not_break_it(open_world: World) -> None:
    await open_world.ask()
    (entry,) = open_world.journal
    odd = b"/caf\xe9\xff".decode("utf-8", "surrogateescape")
    open_world.journal.add(entry._replace(path=odd, message=f"no route takes {odd}"))

    shown = (await open_world.got("/api/v1/journal"))["entries"][0]

    assert shown["path"] == "/caf\\udce9\\udcff"
    assert shown["message"] == "no route takes /caf\\udce9\\udcff"


async def test_a_journal_of_thousands_is_read_a_page_at_a_time(open_world: World) -> None:
    await open_world.ask()
    (entry,) = open_world.journal
    for number in range(3000):
        open_world.journal.add(_numbered(entry, number))

    page = await open_world.got("/api/v1/journal?limit=1000")

    assert len(page["entries"]) == len(open_world.journal) == 1000
    assert page["next"] is None


def _numbered(entry: ServedRequest, number: int) -> ServedRequest:
    return entry._replace(id=f"n-{number}")
