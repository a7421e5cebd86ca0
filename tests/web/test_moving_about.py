"""Moving about: rows are links, Back returns to the row, keys work in every list."""

import pytest

from tapeway.embedded.deck import Deck
from tests.web.asking import ask
from tests.web.opened_page import PageOpener
from tests.web.recorded import exchange, stored

SELECTED = "() => document.querySelector('[aria-selected=true]')?.dataset.at"
ON_SCREEN = """() => { const list = document.querySelector('[role=listbox]').getBoundingClientRect();
    const row = document.querySelector('[aria-selected=true]').getBoundingClientRect();
    return row.top >= list.top && row.bottom <= list.bottom; }"""


def test_rows_are_links_and_back_returns_to_the_same_row(
    shared_deck: Deck, open_page: PageOpener
) -> None:
    stored(shared_deck, "rows", [exchange({"n": n}, {"json": {"n": n}}) for n in range(300)])
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/rows")
    page.see("300 interactions")
    page.tab.locator("[role=listbox]").focus()
    page.tab.keyboard.press("End")
    row = page.tab.locator("[role=option][data-at='290'][href]")  # once it is loaded
    assert str(row.get_attribute("href")).endswith("#/cassettes/rows/290")

    row.click()
    page.see("/ #290")
    page.tab.go_back()

    page.until(f"() => ({SELECTED})() === '290'")
    page.until(ON_SCREEN)


@pytest.mark.slow
def test_a_row_opens_in_another_tab(shared_deck: Deck, open_page: PageOpener) -> None:
    ask(f"{shared_deck.proxy_url}/@tabs", "Hello")
    page = open_page(f"{shared_deck.admin.url}/#/journal")
    row = page.tab.locator("[role=option]").first

    with page.context.expect_page() as opened:
        row.click(modifiers=["ControlOrMeta"])

    opened.value.wait_for_url("**/#/journal/*")
    assert page.tab.url.endswith("#/journal")


@pytest.mark.slow
@pytest.mark.parametrize("where", ["journal", "cassettes", "cassettes/keys"])
def test_keys_move_and_open_in_every_list(
    shared_deck: Deck, open_page: PageOpener, where: str
) -> None:
    for words in ("One", "Two", "Three"):
        ask(f"{shared_deck.proxy_url}/@keys", words)
        ask(f"{shared_deck.proxy_url}/@keys-{words}", words)
    page = open_page(f"{shared_deck.admin.url}/#/{where}")
    page.until("() => document.querySelectorAll('[role=option]').length > 2")

    page.tab.keyboard.press("j")
    page.tab.keyboard.press("j")
    page.tab.keyboard.press("k")
    assert page.tab.evaluate(SELECTED) == "0"
    page.tab.keyboard.press("Enter")
    page.until("(before) => location.hash.length > before", len(where) + 3)


@pytest.mark.slow
def test_a_cassette_is_searched_filtered_and_sorted(
    shared_deck: Deck, open_page: PageOpener
) -> None:
    calls = [exchange({"n": n}, {"json": {"n": n}}, latency_ms=float(n)) for n in range(1500)]
    calls[700] = exchange({"text": "a wombat"}, {"status_code": 500, "json": {"error": "no"}})
    stored(shared_deck, "sought", calls)
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/sought")
    page.see("1,500 interactions")

    page.tab.get_by_label("Search").fill("wombat")
    page.see("1 found")
    assert "#700" in page.tab.locator("[role=option]").inner_text()
    page.tab.get_by_label("Search").fill("")
    page.tab.get_by_label("Order").select_option("slowest first")
    page.see("1,500 found")
    assert "#1499" in page.tab.locator("[role=option]").first.inner_text()
    page.tab.get_by_label("Show").select_option("errors and failures")
    page.until("() => document.querySelectorAll('[role=option]').length === 1")
    assert page.tab.url.endswith("?kind=failed&order=slowest")
    page.tab.locator("[role=option]").click()
    page.see("/ #700")
    page.tab.go_back()
    page.see("1 found")
