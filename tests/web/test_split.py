"""A list with what is opened of it beside it: keys, history, sizes, the bars of time, the strip."""

import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tapeway.embedded.deck import Deck, serve
from tests.web.asking import ask
from tests.web.conftest import NARROW
from tests.web.opened_page import OpenedPage, PageOpener
from tests.web.recorded import exchange, stored, stream
from tests.web.slow_upstream import SlowUpstream

ROWS = "[role=listbox] > .rows > [role=option]"
SELECTED = "() => document.querySelector('.master [aria-selected=true]')?.dataset.at"


def opened(page: OpenedPage) -> str:
    """The text of the pane."""
    return page.tab.locator(".side-pane").inner_text()


@pytest.fixture
def asked(deck: Deck) -> Deck:
    """A tapeway that was asked four questions."""
    for words in ("One", "Two", "Three", "Four"):
        ask(deck.proxy_url, words)
    return deck


def test_the_list_stays_beside_a_call_and_back_returns_to_it_however_many_were_read(
    asked: Deck, open_page: PageOpener
) -> None:
    page = open_page(f"{asked.admin.url}/#/journal")
    page.tab.locator(ROWS).first.click()
    page.see("You said “Four”.")
    assert page.tab.locator(ROWS).nth(1).is_visible()

    for words in ("Three", "Two", "One"):
        page.tab.keyboard.press("j")
        page.tab.locator(".side-pane").get_by_text(f"You said “{words}”.").wait_for()
    page.tab.keyboard.press("k")
    page.tab.locator(".side-pane").get_by_text("You said “Two”.").wait_for()
    page.tab.locator(ROWS).nth(1).click()
    page.tab.locator(".side-pane").get_by_text("You said “Three”.").wait_for()
    page.tab.go_back()

    page.until("() => location.hash === '#/journal' && !document.querySelector('.opened')")
    assert page.tab.evaluate(SELECTED) == "1"
    page.tab.keyboard.press("Enter")
    page.tab.locator(".side-pane").get_by_text("You said “Three”.").wait_for()
    page.tab.keyboard.press("Escape")
    page.until("() => location.hash === '#/journal'")


def test_what_is_opened_covers_the_list_below_900_pixels(
    asked: Deck, open_page: PageOpener
) -> None:
    page = open_page(f"{asked.admin.url}/#/journal", NARROW)
    page.tab.locator(ROWS).first.click()
    page.tab.locator(".side-pane").get_by_text("You said “Four”.").wait_for()

    for width, beside in ((390, False), (899, False), (900, True)):
        page.tab.set_viewport_size({"width": width, "height": 800})
        assert page.tab.locator(ROWS).first.is_visible() == beside
        assert not page.overflows()
    page.tab.set_viewport_size({"width": 390, "height": 800})
    page.tab.keyboard.press("j")
    page.tab.locator(".side-pane").get_by_text("You said “Three”.").wait_for()
    page.click("Back to the list")
    page.tab.locator(ROWS).first.wait_for()


@pytest.mark.slow
def test_keys_change_the_recording_that_is_open(shared_deck: Deck, open_page: PageOpener) -> None:
    stored(
        shared_deck, "keys-in", [exchange({"n": n}, {"json": {"is": f"n{n}"}}) for n in range(9)]
    )
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/keys-in/4")
    page.see("/ #4")

    page.tab.keyboard.press("j")
    page.see("/ #5")
    page.tab.keyboard.press("]")
    page.see("/ #6")
    page.tab.keyboard.press("[")
    page.see("/ #5")
    assert page.tab.evaluate(SELECTED) == "5"
    page.click("Back to the list")
    page.until("() => location.hash === '#/cassettes/keys-in'")


def bars(page: OpenedPage) -> list[tuple[float, float, float]]:
    """Of each row from the top: where its bar begins, where it streams, and where it ends."""
    found: list[tuple[float, float, float]] = page.tab.evaluate(
        """() => [...document.querySelectorAll('.master [role=option]')].map((row) => {
            const [waited, streamed] = ['waited', 'streamed'].map((kind) => row.querySelector(`rect.${kind}`));
            const [x, width] = [Number(streamed.getAttribute('x')), Number(streamed.getAttribute('width'))];
            return [Number(waited.getAttribute('x')), x, x + width];
        })"""
    )
    return found


def test_bars_show_which_calls_were_asked_at_once_and_which_after_each_other(
    tmp_path: Path, open_page: PageOpener
) -> None:
    with (
        SlowUpstream().serving() as slow,
        serve(store=str(tmp_path), mode="auto", upstream=slow.url) as deck,
        ThreadPoolExecutor() as threads,
    ):
        slow.say("first", None)
        ask(deck.proxy_url, "first", stream=True)
        both = [threads.submit(ask, deck.proxy_url, words, stream=True) for words in ("one", "two")]
        while deck.admin.call("GET", "status")["in_flight"] < len(both):
            pass
        slow.say("one", "two", None, None)
        assert [asked.result() for asked in both] == ["recorded", "recorded"]
        page = open_page(f"{deck.admin.url}/#/journal")
        page.until("() => document.querySelectorAll('.streamed').length === 3")

        *both_bars, first = bars(page)
        # The shortest bar that is drawn is six units wide.
        assert max(begins for begins, _, _ in both_bars) < min(ends for _, _, ends in both_bars)
        assert min(begins for begins, _, _ in both_bars) >= first[2] - 6


def test_bars_of_replays_are_as_long_as_what_was_recorded(
    shared_deck: Deck, open_page: PageOpener
) -> None:
    chat = {"model": "m", "stream": True}
    slow = stream(["a ", "b ", "c"], gap_ms=500.0)
    stored(
        shared_deck,
        "paced",
        [
            exchange({**chat, "n": 0}, slow, latency_ms=2000.0),
            exchange({**chat, "n": 1}, {"json": {"is": 1}}, latency_ms=1000.0),
        ],
    )
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/paced")
    page.until("() => document.querySelectorAll('.streamed').length === 2")

    (begins, streams, ends), (other_begins, _, other_ends) = bars(page)
    assert begins == other_begins == 0
    assert (round(streams), round(ends)) == (250, 1000)
    assert 490 < other_ends < 520


@pytest.mark.slow
def test_who_scrolls_the_list_away_from_what_is_open_stays_there(
    asked: Deck, open_page: PageOpener
) -> None:
    for _ in range(60):
        ask(asked.proxy_url, "Again")
    page = open_page(f"{asked.admin.url}/#/journal")
    page.until("() => document.querySelector('[role=option]')?.ariaSetSize === '64'")
    page.tab.locator(ROWS).first.click()
    page.see("You said “Again”.")
    page.tab.evaluate("document.querySelector('[role=listbox]').scrollTop = 2000")

    ask(asked.proxy_url, "One more")

    page.until("() => document.querySelector('[role=option]')?.ariaSetSize === '65'")
    assert page.tab.evaluate("document.querySelector('[role=listbox]').scrollTop") >= 2000


@pytest.mark.slow
def test_a_retry_is_named_as_one(asked: Deck, open_page: PageOpener) -> None:
    url = f"{asked.proxy_url}/v1/models"
    again = urllib.request.Request(url, headers={"x-stainless-retry-count": "1"})  # noqa: S310
    urllib.request.urlopen(again).close()  # noqa: S310 - our own

    page = open_page(f"{asked.admin.url}/#/journal")

    assert "attempt 2" in page.tab.locator(ROWS).first.inner_text()


def test_every_view_says_the_mode_the_cassette_and_the_address_to_paste(
    asked: Deck, open_page: PageOpener
) -> None:
    page = open_page(f"{asked.admin.url}/#/journal")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])

    for view in ("journal", "deck", "recordings", "cassettes", "cassettes/default/0", "compare"):
        page.go(f"#/{view}")
        strip = page.tab.locator(".strip")
        strip.get_by_role("link", name="auto").wait_for()
        strip.get_by_role("link", name="default").wait_for()
        strip.get_by_role("img", name="tapeway answers").wait_for()
        assert asked.proxy_url in strip.inner_text()
    page.click("Copy address")
    page.see("Copied")
    assert page.tab.evaluate("navigator.clipboard.readText()") == asked.proxy_url


@pytest.mark.slow
def test_a_question_mark_lists_the_keys(asked: Deck, open_page: PageOpener) -> None:
    page = open_page(f"{asked.admin.url}/#/cassettes")

    page.tab.keyboard.press("?")

    dialog = page.tab.get_by_role("dialog", name="Keys")
    assert "the call before and after" in dialog.inner_text()
    assert page.faults_of_access() == []
    page.tab.go_back()
    page.tab.keyboard.press("Escape")
    dialog.wait_for(state="detached")


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), [((1280, 800), "dark"), (NARROW, "light")])
def test_both_sides_can_be_read_and_used(
    asked: Deck, open_page: PageOpener, size: tuple[int, int], scheme: str
) -> None:
    page = open_page(f"{asked.admin.url}/#/journal", size, scheme)
    page.tab.locator(ROWS).nth(1).click()
    page.tab.locator(".side-pane").get_by_text("You said “Three”.").wait_for()

    assert page.faults_of_access() == []
    assert not page.overflows()
