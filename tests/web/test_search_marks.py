"""A search marks what it found: in the row, in the call that is opened, and in what was folded there."""

from collections.abc import Iterator

import pytest

from tapeway.embedded.deck import Deck, serve
from tests.web.opened_page import PageOpener
from tests.web.recorded import HOSTILE, exchange, stored
from tests.web.test_call_views import long_history, send
from tests.web.test_history_views import call

FOUND = "mark.found"


@pytest.fixture(scope="module")
def replaying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deck]:
    store = str(tmp_path_factory.mktemp("cassettes"))
    with serve(store=store, mode="replay") as found:
        yield found


def test_a_row_and_the_folded_message_of_its_call_have_the_text_marked(
    replaying: Deck, open_page: PageOpener
) -> None:
    recorded = call(long_history(13, "And now, wombat?"), {"content": "Go to the Wombat."})
    stored(replaying, "folded", [recorded])
    send(replaying, "folded", recorded["request"]["json"])
    page = open_page(f"{replaying.admin.url}/#/journal")

    page.tab.get_by_label("Text").fill("wombat")
    page.see("Searched 1 request: 1 found.")
    assert page.tab.locator("[role=option] mark.found").all_inner_texts() == ["wombat", "Wombat"]
    page.tab.get_by_label("Text").fill("Question 3")
    page.until("() => location.hash.endsWith('text=Question+3')")
    page.tab.locator("[role=option]").first.click()

    shown = page.tab.locator(".side-pane")
    shown.locator(FOUND).first.wait_for()
    assert shown.locator(FOUND).all_inner_texts() == ["Question 3"]
    assert shown.locator("details.fold[open]").count() == 1
    assert shown.locator(FOUND).is_visible()
    assert page.faults_of_access() == []
    assert not shown.locator("details.raw[open]").count()


def test_trees_open_to_what_is_searched_for_however_deep_it_is(
    shared_deck: Deck, open_page: PageOpener
) -> None:
    deep: object = {"needle": "a *needle* (here)"}
    for _ in range(9):
        deep = {"in": deep}
    answer = {"json": {"list": [*range(300), "the *needle* again", *range(300)], "deep": deep}}
    stored(shared_deck, "deep", [exchange({"n": 1}, answer), exchange({"n": 2}, {"json": {}})])
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/deep?text=*needle*")
    page.see("1 found")

    page.tab.locator("[role=option]").click()

    page.until("() => document.querySelectorAll('.side-pane mark.found').length === 2")
    found = page.tab.locator(".side-pane mark.found")
    assert found.all_inner_texts() == ["*needle*", "*needle*"]
    assert all(mark.is_visible() for mark in found.all())


def test_what_is_found_in_markup_stays_text(shared_deck: Deck, open_page: PageOpener) -> None:
    stored(shared_deck, "marked-markup", [exchange(HOSTILE, {"json": {HOSTILE: HOSTILE}})])
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/marked-markup/0?text=onerror")

    page.tab.locator(".side-pane mark.found").first.wait_for()
    assert page.tab.evaluate("window.ran === undefined")
    assert page.tab.locator("main [onerror]").count() == 0
