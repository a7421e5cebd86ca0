"""The deck: what tapeway does now, and its controls."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Route

from tapeway.embedded.deck import Deck, serve
from tapeway.testing import ThreadedStandIn
from tests.support.thoroughness import step
from tests.web.asking import ask
from tests.web.conftest import NARROW
from tests.web.opened_page import PageOpener
from tests.web.slow_upstream import SlowUpstream


@pytest.mark.slow
def test_the_controls_say_what_will_happen_and_do_it(deck: Deck, open_page: PageOpener) -> None:
    page = open_page(f"{deck.admin.url}/#/deck")
    page.see("Nothing was asked yet")
    assert ask(deck.proxy_url, "Hello") == "recorded"
    page.until(
        "() => document.querySelector('[data-outcome=recorded]').parentElement.innerText.startsWith('1')"
    )

    page.click("replay")
    page.see("A new take starts: every cassette is answered from its first recordings again.")
    page.click("Cancel")
    assert deck.admin.call("GET", "mode")["mode"] == "auto"
    page.click("replay")
    page.click("Switch to replay")
    page.see("Mode replay is in force.")
    assert deck.admin.call("GET", "mode")["mode"] == "replay"

    page.click("Insert…")
    page.tab.get_by_label("Cassette", exact=True).fill("tests/other")
    page.click("Insert")
    page.see("tests/other is the active cassette.")
    assert deck.admin.call("GET", "status")["cassette"] == "tests/other"

    page.click("Rewind…")
    page.click("Rewind")
    page.see("A new take has started.")

    page.click("Eject default")
    page.see("Its final file is written, and it is unloaded.")
    page.click("Eject")
    page.see("default is ejected; its file is written.")
    assert "default" not in [
        cassette["name"] for cassette in deck.admin.call("GET", "status")["cassettes"]
    ]


def test_the_controls_name_cassettes_with_a_mode_of_their_own_and_end_it(
    deck: Deck, open_page: PageOpener
) -> None:
    deck.mode("record", cassette="smoke")
    page = open_page(f"{deck.admin.url}/#/deck")
    page.see("Not in this mode: smoke (record). It has a mode of its own.")

    page.click("replay")
    page.tab.get_by_label("End these modes too").check()
    page.click("Switch to replay")
    page.see("Mode replay is in force.")

    assert deck.mode(cassette="smoke") == "replay"
    page.click("Insert…")
    page.tab.get_by_label("Cassette", exact=True).fill("smok")
    page.click("Insert")
    page.see("smok is the active cassette. Warning: there is no cassette 'smok' in")


@pytest.mark.slow
def test_a_refused_change_is_said(deck: Deck, open_page: PageOpener) -> None:
    page = open_page(f"{deck.admin.url}/#/deck")

    page.click("Insert…")
    page.tab.get_by_label("Cassette", exact=True).fill("../away")
    page.click("Insert")

    page.see("cassette name")
    assert deck.admin.call("GET", "status")["cassette"] == "default"


@pytest.mark.slow
def test_a_token_is_asked_for_once_and_kept_for_the_tab(
    tmp_path: Path, open_page: PageOpener
) -> None:
    token = "token-of-the-page-0123456789"
    with serve(store=str(tmp_path), mode="replay", admin_token=token) as deck:
        page = open_page(f"{deck.admin.url}/#/deck", token="a wrong one")
        page.see("That token was not accepted.")
        page.enter_token(token)
        page.see("Active cassette")

        page.tab.reload()

        page.see("Active cassette")
        assert page.tab.get_by_role("dialog").count() == 0
        assert token not in page.tab.url


@pytest.mark.slow
def test_it_can_be_read_and_used_on_both_sizes_and_in_both_schemes(
    deck: Deck, open_page: PageOpener
) -> None:
    ask(deck.proxy_url, "Hello")

    for size, scheme in [((1280, 800), "light"), (NARROW, "dark")][:: step(2)]:
        page = open_page(f"{deck.admin.url}/#/deck", size, scheme)
        page.see("Loaded cassettes")
        assert page.faults_of_access() == []
        assert not page.overflows()


def test_on_a_phone_nothing_is_beyond_the_edge(deck: Deck, open_page: PageOpener) -> None:
    ask(deck.proxy_url, "Hello")
    ask(f"{deck.proxy_url}/@tests%2Fgeography-of-france", "Hello")
    page = open_page(f"{deck.admin.url}/#/deck", NARROW)
    page.see("tests/geography-of-france".partition("/")[0])

    assert page.tab.evaluate(BEYOND) == []


BEYOND = """() => [...document.querySelectorAll('nav a, main td, main button, main .counter, main code')]
    .filter((each) => each.getBoundingClientRect().right > document.documentElement.clientWidth)
    .map((each) => each.textContent)"""


@pytest.mark.slow
def test_a_stream_that_is_being_recorded_grows_until_it_is_durable(
    tmp_path: Path, open_page: PageOpener
) -> None:
    slow = SlowUpstream()
    with (
        ThreadPoolExecutor(1) as caller,
        slow.serving(),
        serve(store=str(tmp_path), mode="record", upstream=slow.url) as deck,
    ):
        page = open_page(f"{deck.admin.url}/#/recordings")
        page.see("Nothing is being recorded now")
        asked = caller.submit(ask, deck.proxy_url, "Count", stream=True)
        slow.say("one ", "two ")
        page.tab.get_by_role("link", name="POST /v1/chat/completions").click()
        page.see("receiving: not durable yet")
        page.until("() => document.querySelector('.growing').textContent.includes('one')")
        assert page.faults_of_access() == []
        beside = open_page(f"{deck.admin.url}/#/deck")
        beside.click("Eject default")
        beside.see("1 in use, 0 idle, 1 opened since the start")
        beside.see("It waits for 1 recording in flight.")
        beside.click("Cancel")

        slow.say("three ")
        page.until("() => document.querySelector('.growing').textContent.includes('two')")
        slow.say("four.", None)
        page.see("durable: in the store, whatever happens now")
        page.until("() => document.querySelector('.growing').textContent.includes('four.')")
        assert asked.result() == "recorded"
        page.tab.get_by_role("link", name="Open #0").click()
        page.see("one two three four.")
        page.go("#/recordings/gone")
        page.see("This recording has ended")


@pytest.mark.slow
def test_it_works_behind_a_path_prefix(deck: Deck, open_page: PageOpener) -> None:
    ask(deck.proxy_url, "Hello")

    def forward(route: Route) -> None:
        where = urlsplit(route.request.url)
        rest = where.path.removeprefix("/of/tapeway")
        if rest == where.path:
            route.abort()  # it would reach the root of somebody else's host
        elif rest.endswith("/events"):
            route.fulfill(body=": it begins\n\n", content_type="text/event-stream")
        else:
            query = f"?{where.query}" if where.query else ""
            # The guard compares Origin and Host, which in this test are of two hosts.
            headers = {"accept": route.request.headers.get("accept", "*/*")}
            route.fulfill(response=route.fetch(url=deck.admin.url + rest + query, headers=headers))

    page = open_page("about:blank", wait=False)
    page.tab.route("http://host.invalid/**", forward)
    page.tab.goto("http://host.invalid/of/tapeway/#/deck")
    page.see("Loaded cassettes")
    page.go("#/journal")
    page.until("() => document.querySelectorAll('[role=option]').length === 1")
    page.go("#/cassettes/default/0")
    page.see("You said")


@pytest.mark.slow
def test_a_change_on_a_shared_store_names_all_instances(
    postgres_dsn: str, open_page: PageOpener
) -> None:
    store = f"{postgres_dsn}{'&' if '?' in postgres_dsn else '?'}schema=deck_of_the_page"
    with serve(store=store, mode="auto") as deck, serve(store=store, mode="auto") as other:
        page = open_page(f"{deck.admin.url}/#/deck")
        page.click("replay")
        page.see("It is done on all 2 instances that share this store")
        page.click("Switch to replay")
        page.see("Mode replay is in force.")
        assert other.admin.call("GET", "mode")["mode"] == "replay"


def test_the_deck_shows_what_to_set_as_base_url(
    tmp_path: Path, upstream: ThreadedStandIn, open_page: PageOpener
) -> None:
    with serve(store=str(tmp_path), mode="auto", route=[f"openai={upstream.url}"]) as deck:
        page = open_page(f"{deck.admin.url}/#/deck")

        page.see(deck.proxy_url)
        page.see(f"export OPENAI_BASE_URL={deck.proxy_url}/openai/v1")
