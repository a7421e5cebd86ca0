"""The server stops and starts again under an open page: each view says so, and comes back by itself."""

from pathlib import Path

import pytest

from tapeway.embedded.deck import ServingDeck, serve
from tapeway.testing import ThreadedStandIn
from tests.support.ports import free_port
from tests.web.asking import ask
from tests.web.opened_page import PageOpener

GONE = "tapeway does not answer: it has stopped, or the network to it is down."
VIEWS = {
    "deck": "Loaded cassettes",
    "journal": "Live",
    "recordings": "Nothing is being recorded now",
    "cassettes": "kept",
    "cassettes/kept": "1 interaction",
    "cassettes/kept/0": "You said “Hello”.",
    "conversation/kept": "Tokens in",
    "compare?a=kept&b=kept": "equal",
}


@pytest.mark.parametrize("view", ["cassettes", *[each for each in VIEWS if each != "cassettes"]])
def test_a_view_says_that_the_server_is_gone_and_opens_by_itself_once_it_is_back(
    tmp_path: Path, upstream: ThreadedStandIn, open_page: PageOpener, view: str
) -> None:
    port = free_port()

    def served() -> ServingDeck:
        address = f"127.0.0.1:{port}"
        store = str(tmp_path / "store")
        return serve(store=store, mode="auto", upstream=upstream.url, admin_listen=address)

    with served() as deck:
        ask(f"{deck.proxy_url}/@kept", "Hello")
        page = open_page(f"{deck.admin.url}/#/journal")
        page.see("Live")
    page.see(GONE)
    page.tab.locator(".strip").get_by_role("img", name="tapeway does not answer").wait_for()

    # A view that was never open before.
    page.tab.evaluate("hash => { location.hash = hash; }", f"#/{view}")
    if view != "journal":
        page.see("This cannot be shown")

    with served():
        page.see("tapeway is back.")
        page.tab.locator("main").get_by_text(VIEWS[view]).first.wait_for()
        page.tab.locator(".strip").get_by_role("img", name="tapeway answers").wait_for()
        assert page.tab.get_by_text("This cannot be shown").count() == 0


@pytest.mark.slow
def test_an_open_list_goes_on_with_the_server_that_is_back(
    tmp_path: Path, upstream: ThreadedStandIn, open_page: PageOpener
) -> None:
    port = free_port()

    def served() -> ServingDeck:
        address = f"127.0.0.1:{port}"
        return serve(store=str(tmp_path), mode="auto", upstream=upstream.url, admin_listen=address)

    with served() as deck:
        ask(deck.proxy_url, "Hello")
        page = open_page(f"{deck.admin.url}/#/journal")
        page.tab.locator("[role=option]").click()
        page.see("You said “Hello”.")
        beside = open_page(f"{deck.admin.url}/#/cassettes")
        beside.see("default")
    page.see(GONE)
    beside.see(GONE)

    with served() as deck:
        ask(f"{deck.proxy_url}/@other", "And now?")
        page.tab.locator(".master").get_by_text("And now?", exact=True).wait_for()
        beside.see("other")
