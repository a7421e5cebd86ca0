"""Views of large cassettes: how often they ask the server, and for how much."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Response

from tapeway.embedded.deck import Deck
from tests.web.asking import MODEL
from tests.web.opened_page import OpenedPage, PageOpener
from tests.web.recorded import exchange, stored

MANY = 2500
KIB = 1024


def calls(count: int = MANY) -> list[dict[str, Any]]:
    found = []
    for at in range(count):
        body = {"model": MODEL, "messages": [{"role": "user", "content": f"Question {at}."}]}
        message = {"role": "assistant", "content": f"Its answer is word{at}."}
        choices = [{"index": 0, "message": message}]
        answer = {"json": {"object": "chat.completion", "model": MODEL, "choices": choices}}
        interaction = exchange(body, answer, latency_ms=float(at * 7919 % count))
        interaction["request"] |= {
            "url": "https://api.openai.com/v1/chat/completions",
            "route": "openai",
        }
        found.append(interaction)
    return found


@dataclass(slots=True)
class Asked:
    """Calls of the API, without those that every view makes."""

    responses: list[Response] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        return [response.url.partition("/cassettes/many/")[2] for response in self.responses]

    @property
    def bytes(self) -> int:
        return sum(len(response.body()) for response in self.responses)


@contextmanager
def asked(page: OpenedPage) -> Iterator[Asked]:
    found = Asked()

    def note(response: Response) -> None:
        if "/cassettes/many/" in response.url:
            found.responses.append(response)

    page.tab.on("response", note)
    yield found
    page.tab.remove_listener("response", note)


@pytest.fixture
def many(shared_deck: Deck, open_page: PageOpener) -> OpenedPage:
    stored(shared_deck, "many", calls())
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/many")
    page.see(f"{MANY:,} interactions")
    return page


@pytest.mark.slow
def test_a_list_is_searched_filtered_and_ordered_by_the_server_in_one_call_each(
    many: OpenedPage,
) -> None:
    search = many.tab.get_by_label("Search")
    with asked(many) as found:
        search.fill("word1234")
        many.see("1 found")
        assert "#1234" in many.tab.locator("[role=option]").inner_text()
        search.fill("")
        many.until("() => document.querySelectorAll('[role=option]').length > 5")
    # The whole list takes a second call, which asks whether it can be entered anywhere.
    assert len(found.responses) == 3
    assert found.bytes < 400 * KIB

    with asked(many) as found:
        many.tab.get_by_label("Order").select_option("slowest first")
        many.see(f"{MANY:,} found")
        many.tab.locator("[role=listbox]").focus()
        many.tab.keyboard.press("End")
        # 7919 * 0 is the shortest.
        many.tab.get_by_text("#0", exact=True).wait_for()
        many.until("() => !document.querySelector('.loading')")
    assert all("order=slowest" in path for path in found.paths)
    assert len(found.responses) <= 3
    assert found.bytes < 600 * KIB


@pytest.mark.slow
def test_any_turn_of_a_conversation_is_three_calls_away(many: OpenedPage) -> None:
    with asked(many) as found:
        many.go("#/conversation/many?interaction=2000")
        many.see("Its answer is word2000.")
    assert [path.partition("?")[0] for path in found.paths] == ["turns", "turns", "messages"]
    assert found.bytes < 1500 * KIB

    with asked(many) as found:
        many.tab.get_by_label("Search").fill("word77.")
        many.see("1 found")
        many.tab.get_by_role("button", name="Turn 78", exact=True).click()
        many.see("Its answer is word77.")
        many.until("() => document.getElementById('turn-77') !== null")
    assert [path.partition("?")[0] for path in found.paths] == ["messages", "turns", "messages"]
    # The bar of time does not have an element for each turn.
    assert many.tab.locator(".time-bar rect").count() <= 500


SHOWN_AFTER_MS = """async ([hash, wanted]) => {
    const start = performance.now();
    location.hash = hash;
    const there = () => document.querySelector('main').innerText.includes(wanted);
    while (!there()) await new Promise((drawn) => requestAnimationFrame(drawn));
    return performance.now() - start;
}"""


@pytest.mark.slow
def test_lists_and_recordings_of_twenty_thousand_are_shown_within_half_a_second(
    shared_deck: Deck, open_page: PageOpener
) -> None:
    stored(shared_deck, "twenty", calls(20_000))
    page = open_page(f"{shared_deck.admin.url}/#/cassettes/twenty?order=slowest")
    page.see("20,000 found")

    for hash_, wanted in [
        ("#/cassettes/twenty", "20,000 interactions"),
        ("#/cassettes/twenty/15000", "/ #15000"),
        ("#/cassettes/twenty?order=tokens", "20,000 found"),
        ("#/cassettes/twenty/17499?text=word17499", "/ #17499"),
    ]:
        # On a busy machine some looks take longer: the page can do it.
        took = []
        for _ in range(3):
            page.go("#/deck")
            took.append(page.tab.evaluate(SHOWN_AFTER_MS, [hash_, wanted]))
        assert min(took) < 500, (hash_, took)
