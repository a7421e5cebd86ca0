"""Cassettes and their interactions: listed, shown, changed, and never run."""

import json
from pathlib import Path

import pytest

from tapeway.embedded.deck import Deck, serve
from tapeway.testing import ThreadedStandIn
from tests.support.thoroughness import runs_everything, step
from tests.web.asking import ask
from tests.web.conftest import NARROW
from tests.web.opened_page import OpenedPage, PageOpener
from tests.web.recorded import HOSTILE, exchange, png, stored, stream, text_base64, wav


@pytest.fixture
def many(tmp_path: Path) -> int:
    """A file of very many interactions; 100,000 take ten seconds to load."""
    number = 100_000 if runs_everything() else 3_000
    interactions = [
        exchange({"n": position}, {"json": {"answer": position}}) for position in range(number)
    ]
    head = {"version": "1", "created_at": "2020-01-02T00:00:00+00:00", "run_id": "", "meta": {}}
    (tmp_path / "cassettes").mkdir()
    (tmp_path / "cassettes" / "many.json").write_text(
        json.dumps({**head, "interactions": interactions})
    )
    return number


@pytest.mark.slow
def test_a_very_long_cassette_is_scrolled_from_end_to_end(
    many: int, tmp_path: Path, open_page: PageOpener
) -> None:
    store = str(tmp_path / "cassettes")
    with serve(store=store, mode="replay", cassette="many", max_age="30d") as deck:
        page = open_page(f"{deck.admin.url}/#/cassettes")
        page.see("many")
        # All are unused and stale, and none is unmarked.
        numbers = page.tab.locator("[role=option] .number.extra").all_inner_texts()[:3]
        assert numbers == [f"{many:,}", f"{many:,}", "0"]
        page.tab.locator("[role=option]").first.click()
        page.see(f"{many:,} interactions")
        page.see("#0")

        page.tab.locator("[role=listbox]").focus()
        page.tab.keyboard.press("End")
        page.see(f"#{many - 1}")
        page.until("() => !document.querySelector('.loading')")
        page.tab.evaluate(
            "document.querySelector('[role=listbox]').scrollTop = document.querySelector('.rows').offsetHeight / 2"
        )
        page.see(f"#{many // 2}")
        page.until("() => !document.querySelector('.loading')")

        assert page.tab.locator("[role=option]").count() < 60
        page.tab.get_by_text(f"#{many // 2}", exact=True).click()
        page.see(f"/ #{many // 2}")
        page.tab.get_by_role("button", name="next", exact=True).click()
        page.see(f"/ #{many // 2 + 1}")
        page.go(f"#/cassettes/many/{many - 1}")
        assert page.tab.get_by_role("button", name="previous", exact=True).is_enabled()
        assert page.tab.get_by_role("button", name="next", exact=True).is_disabled()


@pytest.mark.slow
def test_an_interaction_shows_both_sides_and_can_be_copied_without_a_key(
    shared_deck: Deck, open_page: PageOpener
) -> None:
    ask(f"{shared_deck.proxy_url}/@said", "Say it's 'fine'")
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/said/0")

    page.see("Say it's 'fine'")
    page.see("Messages")
    assert "You said" in page.text
    page.click("Copy as…")
    dialog = page.tab.get_by_role("dialog")
    for language, words in {
        "curl": "curl -X POST",
        "Python": "httpx.request",
        "fetch": "await fetch(",
    }.items():
        dialog.get_by_role("tab", name=language).click()
        text = dialog.locator("pre").inner_text()
        assert words in text
        assert "sk-0123456789abcdef" not in text
    page.click("Close")


@pytest.mark.slow
def test_bodies_are_shown_as_what_they_are(shared_deck: Deck, open_page: PageOpener) -> None:
    image, sound = text_base64(png()), text_base64(wav())
    inline = {
        "image": {"type": "image", "source": {"media_type": "image/png", "data": image}},
        "url": f"data:image/png;base64,{image}",
    }
    large = {
        "items": [f"item {number} of a long list" for number in range(60_000)],
        "last": "the end",
    }
    stored(
        shared_deck,
        "bodies",
        [
            exchange(inline, {"json": {"ok": True}}),
            exchange(1, {"headers": {"Content-Type": "image/png"}, "body_b64": image}),
            exchange(2, {"headers": {"Content-Type": "audio/wav"}, "body_b64": sound}),
            exchange(3, {"headers": {"Content-Type": "application/json"}, "json": large}),
            exchange(4, {"body_b64": text_base64(bytes(range(256)) * 8)}),
        ],
    )
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/bodies/0")
    page.until("() => document.querySelectorAll('.json img').length >= 1")
    page.until(
        "() => [...document.querySelectorAll('.json img')].every((each) => each.naturalWidth === 8)"
    )

    page.go("#/cassettes/bodies/1")
    page.until("() => document.querySelector('.body img')?.naturalWidth === 8")
    page.go("#/cassettes/bodies/2")
    page.until("() => document.querySelector('.body audio')?.duration > 0")

    page.go("#/cassettes/bodies/3")
    page.see("only the start is shown")
    page.click("Show all")
    page.see("60,000 items")
    page.see("the end")
    with page.tab.expect_download() as download:
        page.tab.get_by_role("button", name="Download").last.click()
    assert json.loads(download.value.path().read_bytes()) == large

    page.go("#/cassettes/bodies/4")
    page.see("00000000  00 01 02 03")


@pytest.mark.slow
def test_an_answer_plays_in_its_own_time(shared_deck: Deck, open_page: PageOpener) -> None:
    words = ["It ", "came ", "word ", "by ", "word."]
    stored(
        shared_deck,
        "streams",
        [exchange({"model": "m", "stream": True}, stream(words, gap_ms=150))],
    )
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/streams/0")

    page.see("In time")
    assert page.tab.locator("svg.axis .bar").count() == 6
    page.click("▶ Play")
    page.until(
        "() => ['It ', 'It came ', 'It came word '].includes(document.querySelector('.assembled').textContent)"
    )
    page.until("() => document.querySelector('.assembled').textContent === 'It came word by word.'")
    page.tab.get_by_role("button", name="▶ Play").wait_for()
    page.tab.locator(".events [role=option]").nth(1).click()
    page.see("Event 2, after 300 ms")
    assert page.faults_of_access() == []


@pytest.mark.slow
def test_an_edit_is_checked_and_a_conflict_shows_both(
    shared_deck: Deck, open_page: PageOpener
) -> None:
    stored(shared_deck, "edited", [exchange({"n": 1}, {"json": {"said": "first"}})])
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/edited/0")
    page.click("Edit…")
    field = page.tab.get_by_label("Answer", exact=True)
    mine = field.input_value().replace("first", "mine")

    field.fill("{")
    page.see("This is no JSON")
    field.fill(mine.replace("200", "99"))
    page.click("Save")
    page.see("must be a whole number between 200 and 599")

    theirs = shared_deck.admin.call("GET", "cassettes/edited/interactions/0")
    theirs["response"]["json"]["said"] = "theirs"
    shared_deck.admin.call("PUT", "cassettes/edited/interactions/0", theirs)
    field.fill(mine)
    page.click("Save")
    page.see("Nothing was stored.")
    assert '"theirs"' in page.tab.get_by_label("Stored meanwhile").input_value()
    said = shared_deck.admin.call("GET", "cassettes/edited/interactions/0")["response"]["json"][
        "said"
    ]
    assert said == "theirs"
    page.click("Save over theirs")
    page.see("The answer is stored.")
    page.see("mine")
    said = shared_deck.admin.call("GET", "cassettes/edited/interactions/0")["response"]["json"][
        "said"
    ]
    assert said == "mine"

    page.click("Duplicate")
    page.see("#0 is duplicated as #1.")
    page.until("() => location.hash.endsWith('/1')")
    page.see("/ #1")
    page.click("Delete…")
    page.click("Delete the recording")
    page.see("#1 is deleted.")
    page.see("1 interaction")
    page.click("Delete…")
    page.click("Delete the cassette")
    page.see("edited is deleted.")
    assert "edited" not in [
        cassette["name"] for cassette in shared_deck.admin.call("GET", "cassettes")["cassettes"]
    ]


@pytest.mark.slow
def test_an_upstream_is_asked_again_only_with_a_key_and_replaces_nothing(
    tmp_path: Path,
    upstream: ThreadedStandIn,
    monkeypatch: pytest.MonkeyPatch,
    open_page: PageOpener,
) -> None:
    store, route = str(tmp_path), [f"openai={upstream.url}"]
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serve(store=store, route=route, mode="auto") as deck:
        ask(f"{deck.proxy_url}/openai", "Hello")
        before = deck.admin.call("GET", "cassettes/default/interactions/0")
        page = open_page(f"{deck.admin.url}/#/cassettes/default/0")
        page.click("Ask again live…")
        page.see("OPENAI_API_KEY")
        assert page.tab.get_by_role("dialog").count() == 0

    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-test-0123456789")
    with serve(store=store, route=route, mode="auto") as deck:
        page = open_page(f"{deck.admin.url}/#/cassettes/default/0")
        page.click("Ask again live…")
        page.see("The recording stays as it is.")
        page.click("Ask live")
        page.see("The live answer is equal but for ids and times.")
        dialog = page.tab.get_by_role("dialog")
        assert dialog.locator("section").count() == 2
        assert "sk-of-the-test-0123456789" not in dialog.inner_text()
        assert page.faults_of_access() == []
        assert deck.admin.call("GET", "cassettes/default/interactions/0") == before


def hostile_cassette(shared_deck: Deck) -> None:
    """Markup in every field that takes a text."""
    request = {
        "method": "POST",
        "url": "http://service.invalid/v1/chat/completions?q=%3Cscript%3Ewindow.ran=1%3C/script%3E",
        "headers": {"x-note": HOSTILE, "content-type": "application/json"},
        "json": {
            "model": HOSTILE,
            HOSTILE: HOSTILE,
            "messages": [{"role": "user", "content": HOSTILE}],
            "stream": True,
        },
        "route": "openai",
    }
    answer = stream([HOSTILE, "<script>window.ran = 5</script>"])
    answer["headers"]["X-Answer"] = HOSTILE
    more = {
        "tags": [HOSTILE],
        "metadata": {"provider": "openai", "endpoint": "chat.completions", "model": HOSTILE},
    }
    page = f"<!doctype html><title>{HOSTILE}</title><body onload='window.ran = 6'>{HOSTILE}"
    svg = f"<svg xmlns='http://www.w3.org/2000/svg' onload='window.ran = 7'><script>window.ran = 8</script>{HOSTILE}</svg>"
    stored(
        shared_deck,
        "hostile",
        [
            {
                "kind": "http",
                "request": request,
                "response": {"status_code": 200, **answer},
                **more,
            },
            exchange(HOSTILE, {"headers": {"Content-Type": "text/html"}, "text": page}),
            exchange(HOSTILE, {"headers": {"Content-Type": "image/svg+xml"}, "text": svg}),
            exchange(
                1,
                {
                    "headers": {"Content-Type": "image/svg+xml"},
                    "body_b64": text_base64(svg.encode() + b"\xff"),
                },
            ),
            exchange(
                {"url": f"data:image/svg+xml;base64,{text_base64(svg.encode())}"},
                {"json": {HOSTILE: [HOSTILE]}},
            ),
        ],
    )


def nothing_ran(page: OpenedPage) -> None:
    assert page.tab.evaluate("window.ran === undefined")
    assert page.violations() == []
    outside = page.tab.evaluate(
        "document.querySelectorAll('main script, main iframe, main [onerror], main [onload], main a[href^=javascript]').length"
    )
    assert outside == 0


def test_a_hostile_cassette_runs_nothing_anywhere(shared_deck: Deck, open_page: PageOpener) -> None:
    hostile_cassette(shared_deck)
    shared_deck.admin.call("PUT", "mode", {"mode": "replay", "cassette": "hostile"})
    ask(f"{shared_deck.proxy_url}/@hostile", HOSTILE, user=HOSTILE)
    (missed,) = shared_deck.journal(outcome="miss")
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/hostile")

    for hash_ in [
        "#/deck",
        "#/journal",
        f"#/journal/{missed['id']}",
        "#/cassettes",
        "#/cassettes/hostile",
        *(f"#/cassettes/hostile/{index}" for index in range(5)),
        "#/conversation/hostile",
        "#/compare?a=hostile&b=hostile",
        "#/compare?a=hostile:0&b=hostile:1",
        "#/recordings",
        "#/journal/%3Cscript%3Ewindow.ran=1%3C/script%3E",
        "#/%3Cimg src=x onerror=window.ran=1%3E",
    ]:
        page.go(hash_)
        for closed in page.tab.locator(
            "main details.raw > summary, main details.fold > summary"
        ).all():
            closed.click()
        for tab in page.tab.locator("main [role=tab]").all():
            tab.click()
        nothing_ran(page)
    page.go("#/cassettes/hostile/0")
    assert "<script>window.ran = 1</script>" in page.text
    page.click("Copy as…")
    nothing_ran(page)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), [(NARROW, "dark"), ((1280, 800), "light")][:: step(2)])
def test_they_can_be_read_and_used_on_both_sizes_and_in_both_schemes(
    shared_deck: Deck, open_page: PageOpener, size: tuple[int, int], scheme: str
) -> None:
    ask(f"{shared_deck.proxy_url}/@hello", "Hello", stream=True)
    page = open_page(f"{shared_deck.admin.url}/#/cassettes", size, scheme)

    for hash_ in ("#/cassettes", "#/cassettes/hello", "#/cassettes/hello/0"):
        page.go(hash_)
        assert page.faults_of_access() == []
        assert not page.overflows(), hash_
