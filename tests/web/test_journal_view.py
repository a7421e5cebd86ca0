"""The journal: requests as they come, by outcome, cassette and route."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Route

from tapeway.embedded.deck import Deck
from tests.support.thoroughness import step
from tests.web.asking import ask
from tests.web.conftest import NARROW
from tests.web.opened_page import PageOpener

ROWS = "[role=option]"
BROKEN_WORDS = """() => [...document.querySelectorAll('.verdict-reason')].flatMap((reason) =>
    [...reason.childNodes].filter((each) => each.nodeType === Node.TEXT_NODE).flatMap((node) =>
        [...node.data.matchAll(/\\w+/g)].filter((word) => {
            const range = document.createRange();
            range.setStart(node, word.index);
            range.setEnd(node, word.index + word[0].length);
            return range.getClientRects().length > 1;
        }).map((word) => word[0])))"""
"""Words of verdicts that are on two lines."""


def test_requests_appear_as_they_come_and_can_be_filtered(
    deck: Deck, open_page: PageOpener
) -> None:
    page = open_page(f"{deck.admin.url}/#/journal")
    page.see("No request has come yet")
    page.see("Live")

    ask(deck.proxy_url, "One")
    page.until("() => document.querySelectorAll('[role=option]').length === 1")
    ask(deck.proxy_url, "One")
    ask(f"{deck.proxy_url}/@other", "Two")
    page.until("() => document.querySelectorAll('[role=option]').length === 3")
    # A screen reader reads rows in this order, wherever they are drawn.
    first = page.tab.locator(ROWS).first.inner_text()
    assert "recorded" in first
    assert "other" in first
    page.until("() => document.querySelector('[role=option]').innerText.includes('Two')")
    at = datetime.fromisoformat(deck.journal(limit=1)[0]["at"])
    assert at.astimezone(ZoneInfo("Europe/Berlin")).strftime("%H:%M:%S") in first

    page.tab.get_by_role("button", name="replayed").click()
    page.until("() => document.querySelectorAll('[role=option]').length === 1")
    assert page.tab.url.endswith("#/journal?outcome=replayed")
    # What comes is filtered too, and counted all the same.
    ask(deck.proxy_url, "Three")
    ask(deck.proxy_url, "Three")
    page.until("() => document.querySelectorAll('[role=option]').length === 2")
    page.until(
        "() => document.querySelector('.chip[data-outcome=recorded]').innerText.includes('3')"
    )

    page.tab.reload()
    page.until("() => document.querySelectorAll('[role=option]').length === 2")
    page.tab.get_by_label("Cassette").select_option("default")
    page.tab.get_by_role("button", name="error").click()
    page.see("No request passes this filter")
    page.click("Show all requests")
    page.until("() => document.querySelectorAll('[role=option]').length === 5")


@pytest.mark.slow
def test_what_came_during_a_break_is_fetched_and_said(deck: Deck, open_page: PageOpener) -> None:
    ask(deck.proxy_url, "One")
    page = open_page(deck.admin.url)
    ended = iter([": it ends at once\n\n"])

    def cut(route: Route) -> None:
        if (body := next(ended, None)) is None:
            route.abort()
        else:
            route.fulfill(body=body, content_type="text/event-stream")

    page.tab.route("**/api/v1/events*", cut)
    page.go("#/journal")
    page.see("tapeway does not answer: trying again")
    page.until("() => document.querySelectorAll('[role=option]').length === 1")
    ask(deck.proxy_url, "Two")
    ask(deck.proxy_url, "Three")
    page.tab.unroute("**/api/v1/events*")

    page.see("The connection was lost; 2 requests came meanwhile.")
    page.see("Live")
    page.until("() => document.querySelectorAll('[role=option]').length === 3")


@pytest.mark.slow
def test_many_requests_are_all_counted_and_few_of_them_drawn(
    deck: Deck, open_page: PageOpener
) -> None:
    page = open_page(f"{deck.admin.url}/#/journal")
    page.see("Live")

    for number in range(300):
        ask(deck.proxy_url, f"{number % 3}")

    page.until("() => document.querySelector('[role=option]')?.ariaSetSize === '300'")
    assert page.tab.locator(ROWS).count() < 60
    page.until(
        "() => document.querySelector('.chip[data-outcome=replayed]').innerText.includes('297')"
    )


@pytest.mark.slow
def test_text_is_searched_in_bodies_and_streams_by_the_server(
    deck: Deck, open_page: PageOpener
) -> None:
    ask(deck.proxy_url, "an armadillo", stream=True)
    ask(deck.proxy_url, "a zebra")
    page = open_page(f"{deck.admin.url}/#/journal")
    page.until("() => document.querySelectorAll('[role=option]').length === 2")

    # Words of the answer, which came in several chunks.
    page.tab.get_by_label("Text").fill("said “an armadillo”")
    page.see("Searched 2 requests: 1 found.")
    page.until("() => document.querySelectorAll('[role=option]').length === 1")
    ask(deck.proxy_url, "an armadillo", stream=True)
    page.until("() => document.querySelectorAll('[role=option]').length === 2")

    page.tab.get_by_label("without it").check()
    page.see("Searched 3 requests: 1 found.")
    page.until("() => document.querySelectorAll('[role=option]').length === 1")
    assert "negate=true" in page.tab.url


@pytest.mark.slow
def test_it_is_used_by_keyboard_alone(deck: Deck, open_page: PageOpener) -> None:
    for words in ("One", "Two", "Three"):
        ask(deck.proxy_url, words)
    page = open_page(f"{deck.admin.url}/#/journal")
    page.until("() => document.querySelectorAll('[role=option]').length === 3")

    page.tab.keyboard.press("j")
    page.tab.keyboard.press("ArrowDown")
    page.tab.keyboard.press("ArrowDown")

    assert page.tab.locator("[aria-selected=true]").get_attribute("data-at") == "2"
    page.tab.keyboard.press("/")
    assert page.tab.evaluate("document.activeElement.id") == "text"


@pytest.mark.slow
def test_it_can_be_read_and_used_on_both_sizes_and_in_both_schemes(
    deck: Deck, open_page: PageOpener
) -> None:
    ask(deck.proxy_url, "Hello")

    for size, scheme in [(NARROW, "light"), ((1280, 800), "dark")][:: step(2)]:
        page = open_page(f"{deck.admin.url}/#/journal", size, scheme)
        page.until("() => document.querySelectorAll('[role=option]').length === 1")
        assert page.faults_of_access() == []
        assert not page.overflows()


def test_a_miss_shows_what_differs_and_becomes_a_hit_when_its_rule_is_accepted(
    deck: Deck, open_page: PageOpener
) -> None:
    ask(deck.proxy_url, "Hello", temperature=0.2, user="ci-41")
    deck.admin.call("PUT", "mode", {"mode": "replay"})
    assert ask(deck.proxy_url, "Hello", temperature=0.7, user="ci-97") == "miss"
    page = open_page(f"{deck.admin.url}/#/journal?outcome=miss")

    page.tab.locator(ROWS).first.click()
    page.see("nearest #0 differs at temperature and user")
    assert page.tab.locator("[data-verdict=differs]").inner_text().startswith("≠")
    assert page.tab.locator("[data-verdict]").count() == 7
    # A place leads to the trees, which are folded below the messages of a model's call.
    page.tab.get_by_role("button", name="body.temperature").click()
    page.tab.locator(".side-requested .flash").wait_for()
    for side, values in (("requested", ["0.7", "ci-97"]), ("recorded", ["0.2", "ci-41"])):
        marked = page.tab.locator(f".side-{side} [data-mark]").all_inner_texts()
        assert len(marked) == 2
        assert all(value in text for value, text in zip(values, marked, strict=True))
    for width in (1280, 1101, 900, 761, 390):
        page.tab.set_viewport_size({"width": width, "height": 800})
        assert page.tab.evaluate(BROKEN_WORDS) == []
    # Of a text, only what differs is marked.
    assert page.tab.locator(".side-requested mark").inner_text() == "97"

    page.see("With it this request is answered by #0.")
    page.click("Accept")
    page.click("Add the rule")
    page.see("✓ Accepted")
    page.see("The same request is now answered by #0.")
    assert ask(deck.proxy_url, "Hello", temperature=0.7, user="ci-97") == "replayed"

    page.go("#/journal")
    page.tab.locator(ROWS).first.click()
    page.see("Recording #0 of default")


@pytest.mark.slow
def test_a_miss_without_anything_near_says_so(deck: Deck, open_page: PageOpener) -> None:
    deck.admin.call("PUT", "mode", {"mode": "replay"})
    ask(deck.proxy_url, "Hello")
    (missed,) = deck.journal(outcome="miss")

    for size, scheme in [(NARROW, "dark"), ((1280, 800), "light")][:: step(2)]:
        page = open_page(f"{deck.admin.url}/#/journal/{missed['id']}", size, scheme)
        page.see("Nothing like it is in the cassette. Record it:")
        assert page.faults_of_access() == []
        assert not page.overflows()
    page.go("#/journal/tw-nothing")
    page.see("It has left the journal, or was cleared")
