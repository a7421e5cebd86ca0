"""The report of a whole run, made of what ejects answered, and what a test runner says of the run."""

from typing import Any

import pytest

from tests.admin.admin_and_proxy import World, world

FORMS = {
    "junit": ("application/xml", "<testsuite"),
    "markdown": ("text/markdown", "| default |"),
    "text": ("text/plain", "default"),
    "html": ("text/html", "<!doctype html>"),
}


async def missed(found: World, path: str = "/v1/models?page=2") -> Any:
    """A recording, a miss that is near to it, and the report of their cassette."""
    await found.ask("/v1/models?page=1")
    await found.done("PUT", "/api/v1/mode", {"mode": "replay"})
    await found.ask(path)
    return (await found.done("POST", "/api/v1/eject"))["cassettes"]


@pytest.mark.parametrize("form", FORMS)
async def test_ejected_cassettes_make_one_report_in_each_form(open_world: World, form: str) -> None:
    reports = await missed(open_world)
    content_type, said = FORMS[form]

    sent = {"cassettes": reports}
    answer = await open_world.call("POST", f"/api/v1/report?format={form}", sent)

    text = await answer.text()
    assert (answer.status, answer.content_type) == (200, content_type), text
    assert said in text
    assert "page" in text


async def test_the_page_is_made_for_callers_with_the_token_too() -> None:
    async with world(token="token-of-the-runner") as locked:
        path = "/api/v1/report?format=html&brief=true"
        answer = await locked.call("POST", path, {"cassettes": []})

        assert "recorded" in await answer.text()


async def test_a_runner_gets_causes_annotations_and_the_renamed_cassette(open_world: World) -> None:
    reports = await missed(open_world)
    (entry,) = [
        logged
        for logged in (await open_world.got("/api/v1/journal"))["entries"]
        if logged["outcome"] == "recorded"
    ]

    notes = await open_world.done(
        "POST",
        "/api/v1/report/notes",
        {
            "cassettes": reports,
            "places": {"default": {"file": "tests/test_a.py", "line": 7}},
            "missing": {"defaults": [entry["match_key"]], "other": ["no such key"]},
            "unclaimed": ["default", "absent"],
        },
    )

    assert [cause.partition(":")[0] for cause in notes["causes"]] == ["1 miss"]
    assert notes["annotations"][0].startswith("::error file=tests/test_a.py,line=7,")
    assert notes["renamed"] == {"defaults": "default"}


async def test_a_difference_at_no_place_is_refused(open_world: World) -> None:
    (report,) = await missed(open_world)
    report["misses"][0]["nearest"][0]["differences"] = [{}]

    answer = await open_world.call("POST", "/api/v1/report", {"cassettes": [report]})

    assert answer.status == 400
    assert "needs a 'path'" in await answer.text()
