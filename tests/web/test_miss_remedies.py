"""A miss closes its own loop: recorded now, switched to auto, a rule accepted and removed again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tapeway.embedded.deck import Deck, serve
from tapeway.testing import ThreadedStandIn
from tests.web.asking import ask
from tests.web.opened_page import PageOpener
from tests.web.recorded import HOSTILE, exchange, stored

KEY = "sk-of-the-test-0123456789"


@pytest.fixture
def replaying(
    tmp_path: Path, upstream: ThreadedStandIn, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Deck]:
    """A tapeway in mode replay with the key of its service."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serve(store=str(tmp_path), mode="replay", route=[f"openai={upstream.url}"]) as deck:
        yield deck


def test_a_miss_is_recorded_with_one_click_from_the_first_view(
    replaying: Deck, open_page: PageOpener
) -> None:
    url = f"{replaying.proxy_url}/openai"
    assert ask(url, "Hello") == "miss"
    page = open_page(replaying.admin.url)
    page.see("Asks the service of route openai once for POST /v1/chat/completions")

    page.click("Record this one now")

    page.see("✓ Recorded")
    page.see("The service answered 200.")
    assert ask(url, "Hello") == "replayed"
    assert replaying.admin.call("GET", "mode")["mode"] == "replay"
    recorded = str(replaying.admin.call("GET", "cassettes/default/interactions/0"))
    assert KEY not in recorded
    assert "You said “Hello”." in recorded
    assert ask(url, "Something else") == "miss"
    assert page.faults_of_access() == []


def test_what_cannot_be_recorded_has_no_button_and_says_why(
    tmp_path: Path,
    upstream: ThreadedStandIn,
    monkeypatch: pytest.MonkeyPatch,
    open_page: PageOpener,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serve(store=str(tmp_path), mode="replay", route=[f"openai={upstream.url}"]) as deck:
        ask(f"{deck.proxy_url}/openai", "Hello")
        page = open_page(deck.admin.url)

        page.see("It cannot be recorded from here: tapeway has no key of openai")
        assert page.tab.get_by_role("button", name="Record this one now").count() == 0


@pytest.mark.slow
def test_a_cassette_is_switched_to_auto_and_the_others_are_not(
    replaying: Deck, open_page: PageOpener
) -> None:
    url = f"{replaying.proxy_url}/@mine/openai"
    ask(url, "Hello")
    page = open_page(replaying.admin.url)

    page.click("Switch mine to auto")
    page.see("The other cassettes keep their mode.")
    page.click("Switch to auto")
    page.see("mine is in mode auto.")

    assert ask(url, "Hello") == "recorded"
    assert ask(f"{replaying.proxy_url}/openai", "Hello") == "miss"


def test_a_live_answer_is_kept_in_the_place_of_the_recorded_one(
    replaying: Deck, open_page: PageOpener
) -> None:
    replaying.mode("auto")
    ask(f"{replaying.proxy_url}/openai", "Hello")
    where = "cassettes/default/interactions/0"
    recorded = replaying.admin.call("GET", where)
    recorded["response"]["json"]["choices"][0]["message"]["content"] = "An old answer."
    replaying.admin.call("PUT", where, recorded)
    page = open_page(f"{replaying.admin.url}/#/cassettes/default/0")
    page.see("An old answer.")

    page.click("Ask again live…")
    page.click("Ask live")
    page.click("Keep this answer")

    page.see("The live answer is in the place of the recorded one, as #0.")
    page.tab.locator(".side-pane").get_by_text("You said “Hello”.").wait_for()
    now = str(replaying.admin.call("GET", where))
    assert "You said “Hello”." in now
    assert KEY not in now


def test_rules_of_a_cassette_are_seen_and_removed_in_its_view(
    replaying: Deck, open_page: PageOpener
) -> None:
    url = f"{replaying.proxy_url}/openai"
    replaying.mode("auto")
    ask(url, "Hello", user="one")
    replaying.mode("replay")
    assert ask(url, "Hello", user="two") == "miss"
    page = open_page(replaying.admin.url)
    page.click("Accept")
    page.click("Add the rule")
    page.see("✓ Accepted")
    assert ask(url, "Hello", user="three") == "replayed"

    page.go("#/cassettes/default")
    page.tab.get_by_text("1 rule for what does not count").click()
    page.click('Remove ignore = ["body.user"]')
    page.click("Remove the rule")
    page.see("The rule is removed.")

    assert ask(url, "Hello", user="four") == "miss"
    assert ask(url, "Hello", user="one") == "replayed"
    assert page.tab.locator(".rules").count() == 0


@pytest.mark.slow
def test_a_rule_that_has_become_unsafe_has_no_button(
    replaying: Deck, open_page: PageOpener
) -> None:
    url = f"{replaying.proxy_url}/openai"
    replaying.mode("auto")
    ask(url, "Hello", user="one")
    replaying.mode("replay")
    ask(url, "Hello", user="two")
    replaying.mode("auto")
    ask(url, "Hello", user="three")
    where = "cassettes/default/interactions/1"
    other = replaying.admin.call("GET", where)
    other["response"]["json"]["choices"][0]["message"]["content"] = "Another answer."
    replaying.admin.call("PUT", where, other)
    (missed,) = replaying.journal(outcome="miss")
    page = open_page(f"{replaying.admin.url}/#/journal/{missed['id']}")

    page.see("The rule that was suggested is refused by now")
    assert page.tab.get_by_role("button", name="Accept").count() == 0


def test_a_mistyped_path_names_the_nearest_one_that_is_known(
    shared_deck: Deck, open_page: PageOpener
) -> None:
    stored(shared_deck, "typed", [exchange({"n": HOSTILE}, {"json": {}})])
    shared_deck.admin.call("PUT", "mode", {"mode": "replay", "cassette": "typed"})
    ask(f"{shared_deck.proxy_url}/@typed", "Hello")  # to another path
    where = shared_deck.admin.call("GET", "cassettes/typed/interactions/0")
    where["request"]["url"] = "http://service.invalid/v1/chat/completion"
    shared_deck.admin.call("PUT", "cassettes/typed/interactions/0", where)
    missed = shared_deck.journal(outcome="miss", cassette="typed")[0]
    page = open_page(f"{shared_deck.admin.url}/#/journal/{missed['id']}")

    page.see("nothing is recorded with it; /v1/chat/completion is")
