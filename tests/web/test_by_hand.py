"""By hand: a new interaction, drafts that are not lost, and the order of a list with gaps."""

import urllib.request

import pytest

from tapeway.embedded.deck import Deck, serve
from tapeway.testing import ThreadedStandIn
from tests.web.asking import ask
from tests.web.opened_page import OpenedPage, PageOpener
from tests.web.recorded import exchange, stored


def test_a_new_interaction_of_a_form_answers_the_request(
    shared_deck: Deck, open_page: PageOpener
) -> None:
    stored(shared_deck, "hand", [exchange({"n": 1}, {"json": {}})])
    shared_deck.admin.call("PUT", "mode", {"mode": "replay", "cassette": "hand"})
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/hand")
    page.click("New…")
    page.tab.get_by_label("Method").select_option("POST")
    page.tab.get_by_label("Path").fill("v1/chat/completions")
    page.tab.get_by_label("Body of the request").fill(
        '{"model": "gpt-5.5", "messages": [{"role": "user", "content": "Hi"}]}'
    )
    page.tab.get_by_label("Body of the answer").fill('{"by": "hand"}')
    assert page.faults_of_access() == []
    page.click("Store it")
    page.see("The path begins with a slash")
    page.tab.get_by_label("Path").fill("/v1/chat/completions")
    page.click("Store it")

    page.see("It is stored as #1.")
    page.see("/ #1")
    assert ask(f"{shared_deck.proxy_url}/@hand", "Hi") == "replayed"

    page.click("Back to the list")
    page.click("New…")
    page.tab.get_by_label("Path").fill("/plain?x=1")
    page.tab.get_by_label("Body of the answer").fill("no JSON")
    page.click("Store it")
    page.see("/ #2")
    url = f"{shared_deck.proxy_url}/@hand/plain?x=1"
    with urllib.request.urlopen(url) as answer:  # noqa: S310 - our own
        assert answer.read() == b"no JSON"


def test_a_draft_is_thrown_away_only_when_that_is_confirmed(
    shared_deck: Deck, open_page: PageOpener
) -> None:
    stored(shared_deck, "drafts", [exchange({"n": n}, {"json": {"n": n}}) for n in range(2)])
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/drafts")
    page.tab.locator("[role=option]").first.click()
    page.click("Edit…")
    field = page.tab.get_by_label("Answer", exact=True)
    field.fill('{"a": "draft"}')

    page.click("Cancel", within=page.tab.get_by_role("dialog", name="Edit the answer"))
    ask_first = page.tab.get_by_role("dialog", name="Throw the draft away?")
    page.click("Cancel", within=ask_first)
    assert field.input_value() == '{"a": "draft"}'
    page.tab.go_back()
    page.click("Cancel", within=ask_first)
    assert field.input_value() == '{"a": "draft"}'
    page.tab.go_forward()
    page.click("Throw it away", within=ask_first)
    field.wait_for(state="detached")
    stored_now = shared_deck.admin.call("GET", "cassettes/drafts/interactions/0")
    assert stored_now["response"]["json"] == {"n": 0}


@pytest.mark.slow
def test_a_dialog_closes_when_the_address_changes(shared_deck: Deck, open_page: PageOpener) -> None:
    stored(shared_deck, "asked-of", [exchange({"n": n}, {"json": {"n": n}}) for n in range(2)])
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/asked-of")
    page.tab.locator("[role=option]").first.click()
    page.click("Delete…")
    page.see("Delete #0?")

    page.tab.go_back()

    page.tab.get_by_role("dialog").wait_for(state="detached")
    assert (
        len(shared_deck.admin.call("GET", "cassettes/asked-of/interactions")["interactions"]) == 2
    )


@pytest.mark.parametrize("opened_from", ["the list", "its address"])
def test_previous_and_next_follow_the_list_and_skip_what_it_does_not_have(
    shared_deck: Deck, open_page: PageOpener, opened_from: str
) -> None:
    calls = [exchange({"n": n}, {"json": {"n": n}}) for n in range(4)]
    calls[0]["response"]["status_code"] = calls[3]["response"]["status_code"] = 500
    stored(shared_deck, "failing", calls)
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/failing?kind=failed")
    if opened_from == "the list":
        page.tab.locator("[role=option]").nth(1).click()
    else:
        page.go("#/cassettes/failing/3?kind=failed")

    follow(page)


@pytest.mark.slow
@pytest.mark.parametrize("opened_from", ["the list", "its address"])
def test_previous_and_next_skip_gaps_between_indexes(
    postgres_dsn: str, upstream: ThreadedStandIn, open_page: PageOpener, opened_from: str
) -> None:
    schema = f"gaps_{opened_from.replace(' ', '_')}"
    store = f"{postgres_dsn}{'&' if '?' in postgres_dsn else '?'}schema={schema}"
    with serve(store=store, mode="auto", upstream=upstream.url) as deck:
        for words in ("a", "b", "c", "d"):
            ask(deck.proxy_url, words)
        for index in (1, 2):
            deck.admin.call("DELETE", f"cassettes/default/interactions/{index}")
        page = open_page(f"{deck.admin.url}/#/cassettes/default")
        if opened_from == "the list":
            page.tab.locator("[role=option]").nth(1).click()
        else:
            page.go("#/cassettes/default/3")

        follow(page)


def follow(page: OpenedPage) -> None:
    """Go from #3 to #0, which is before it in the list, and back."""
    page.see("/ #3")
    page.click("previous")
    page.see("/ #0")
    assert page.tab.get_by_role("button", name="previous", exact=True).is_disabled()
    page.click("next")
    page.see("/ #3")
    assert page.tab.get_by_role("button", name="next", exact=True).is_disabled()
