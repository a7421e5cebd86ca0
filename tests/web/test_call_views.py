"""A call is looked at: how many clicks away the answers to a person's questions are."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tapeway.embedded.deck import Deck, serve
from tapeway.testing import ThreadedStandIn
from tests.support.thoroughness import step
from tests.web.asking import ask
from tests.web.conftest import NARROW
from tests.web.opened_page import OpenedPage, PageOpener
from tests.web.recorded import HOSTILE, stored
from tests.web.test_history_views import call, history

ROWS = "[role=option]"


def long_history(turns: int, last: str) -> list[dict[str, Any]]:
    """The messages of an agent's later call."""
    said: list[dict[str, Any]] = [{"role": "system", "content": "You are an agent."}]
    for number in range(turns):
        said.append({"role": "user", "content": f"Question {number}"})
        said.append({"role": "assistant", "content": f"Answer {number}"})
    return [*said, {"role": "user", "content": last}]


@pytest.fixture(scope="module")
def replaying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deck]:
    """A tapeway in mode replay over an agent's run."""
    store = str(tmp_path_factory.mktemp("cassettes"))
    with serve(store=store, mode="replay") as found:
        stored(found, "agent", [*history(), call(long_history(13, "And now?"), {"content": "Go."})])
        yield found


def send(deck: Deck, cassette: str, body: dict[str, Any]) -> str:
    """Send a chat completion; the id of its entry in the journal."""
    deck_url = f"{deck.proxy_url}/@{cassette}/openai"
    ask(deck_url, "", **body)
    return str(deck.journal(limit=1)[0]["id"])


def open_newest(page: OpenedPage) -> None:
    """The one click on the newest row."""
    page.until("() => document.querySelectorAll('[role=option]').length > 0")
    page.tab.locator(ROWS).first.click()
    page.tab.locator("main .entry").wait_for()


def test_one_click_shows_what_a_call_asked_and_what_came_back(
    replaying: Deck, open_page: PageOpener
) -> None:
    body = call(long_history(13, "And now?"), {})["request"]["json"]
    send(replaying, "agent", body)
    page = open_page(f"{replaying.admin.url}/#/journal")

    open_newest(page)

    shown = page.tab.locator(".messages").inner_text()
    assert "27 earlier messages" in shown
    assert "And now?" in shown
    assert "Go." in shown
    assert "Question 3" not in shown
    assert page.tab.get_by_text("Go.", exact=True).first.is_visible()
    page.tab.locator("details.fold summary").click()
    page.see("Question 3")
    assert not page.tab.locator("details.raw .sides").is_visible()
    page.tab.keyboard.press("r")
    page.tab.locator("details.raw .sides").wait_for()


def test_a_miss_opens_only_the_messages_that_differ(replaying: Deck, open_page: PageOpener) -> None:
    send(replaying, "agent", call(long_history(13, "And then?"), {})["request"]["json"])
    page = open_page(f"{replaying.admin.url}/#/journal?outcome=miss")

    # No click: the list says what was asked, and below it what differs.
    page.until("() => document.querySelector('[role=option]')?.innerText.includes('And then?')")
    row = page.tab.locator(ROWS).first
    assert row.locator(".asked").inner_text() == "And then?"
    assert row.locator(".answered").inner_text() == "≠ messages[27].content: And now? → And then?"
    assert "gpt-4o" in row.inner_text()
    open_newest(page)

    shown = page.tab.locator(".messages")
    assert "27 unchanged messages" in shown.inner_text()
    assert shown.locator("article mark").all_inner_texts() == ["then"]
    page.see("What the client got")


def test_one_click_shows_why_a_call_that_was_passed_on_failed(
    tmp_path: Path, upstream: ThreadedStandIn, open_page: PageOpener
) -> None:
    with serve(store=str(tmp_path), mode="auto", upstream=upstream.url) as deck:
        ask(deck.proxy_url, "Hello", model="error-429")
        page = open_page(f"{deck.admin.url}/#/journal")
        open_newest(page)

        assert "429" in page.tab.locator(".panel").first.inner_text()
        page.see("Hello")
        assert page.tab.locator(".messages .wrong").inner_text() != ""


@pytest.mark.slow
def test_keys_and_links_lead_to_the_calls_beside_it_and_to_its_turn(
    replaying: Deck, open_page: PageOpener
) -> None:
    bodies = [request["request"]["json"] for request in history()]
    ids = [send(replaying, "agent", body) for body in bodies[:2]]
    page = open_page(f"{replaying.admin.url}/#/journal/{ids[1]}")

    page.tab.keyboard.press("[")
    page.until("(id) => location.hash.endsWith(id)", ids[0])
    page.tab.keyboard.press("]")
    page.until("(id) => location.hash.endsWith(id)", ids[1])
    page.tab.get_by_role("link", name="its turn in the conversation").click()
    page.see("Turn 2")


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), [((1280, 800), "dark"), (NARROW, "light")][:: step(2)])
def test_calls_can_be_read_and_used_on_both_sizes_and_in_both_schemes(
    replaying: Deck, open_page: PageOpener, size: tuple[int, int], scheme: str
) -> None:
    hit = send(replaying, "agent", history()[1]["request"]["json"])
    miss = send(replaying, "agent", {**history()[1]["request"]["json"], "user": json.dumps(1)})
    page = open_page(f"{replaying.admin.url}/#/journal/{hit}", size, scheme)

    for hash_ in (f"#/journal/{hit}", f"#/journal/{miss}", "#/cassettes/agent/1"):
        page.go(hash_)
        assert page.faults_of_access() == []
        assert not page.overflows(), hash_


LONG_TYPE = "conversation.item.input_audio_transcription.completed"


@pytest.fixture(scope="module")
def sockets(shared_deck: Deck) -> Deck:
    """A turn of the Responses API and a session, whose texts are markup."""
    asked = {"type": "response.create", "model": "m", "input": "Say hello"}
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hello there"}],
    }
    done = {"type": "response.completed", "response": {"id": "r", "model": "m", "output": [said]}}
    session = {"type": "session.update", "session": {"note": HOSTILE}}
    lines = [
        {"client": session},
        *spoken({"type": "response.output_text.delta", "delta": "Hi "}),
        *spoken({"type": "response.output_audio.delta", "delta": "AAAA"}),
        {"client_text": "between"},
        *spoken({"type": "response.output_audio.delta", "delta": "AAAA"}),
        *spoken({"type": "response.output_text.delta", "delta": "there"}),
        *spoken({"type": "session.updated"}),
        *spoken({"type": LONG_TYPE, "item_id": "i", "transcript": f"A table, please. {HOSTILE}"}),
        *spoken({"type": HOSTILE, "text": HOSTILE}),
        {"close": {"code": 1000, "reason": "done", "by": "client"}},
    ]
    turn = websocket("v1/responses", asked, [done])
    stored(shared_deck, "sockets", [turn, websocket("v1/realtime", session, lines)])
    return shared_deck


def test_a_websocket_turn_reads_as_messages_and_a_session_in_time(
    sockets: Deck, open_page: PageOpener
) -> None:
    page = open_page(f"{sockets.admin.url}/#/cassettes/sockets/0")
    page.see("WEBSOCKET /v1/responses")
    page.see("Say hello")
    page.see("Hello there")

    page.go("#/cassettes/sockets/1")
    page.see("WEBSOCKET /v1/realtime")
    # Words are read without opening what came.
    page.see("Hi there")
    assert page.tab.get_by_text("A table, please.").first.is_visible()
    assert page.tab.locator(".messages audio").count() == 1
    page.see("The client closed the connection with code 1000: done.")
    page.tab.locator(".messages > .fold summary").click()
    page.see("session.updated")
    page.see("80 ms to 240 ms, 2 pieces")
    events = page.tab.locator(".messages > .fold")
    assert (
        events.locator(".message-box .role")
        .all_text_contents()[0]
        .startswith("client session.update")
    )
    events.locator(".message-box summary").first.click()
    page.tab.locator(".json-string", has_text="window.ran = 1").wait_for()
    assert page.tab.evaluate("window.ran === undefined")
    # The messages have their times: they do not stand there a second time.
    assert page.tab.locator(".timeline").count() == 0


@pytest.mark.parametrize(("size", "scheme"), [(NARROW, "dark"), ((1280, 800), "light")])
def test_a_session_can_be_read_on_both_sizes_and_in_both_schemes(
    sockets: Deck, open_page: PageOpener, size: tuple[int, int], scheme: str
) -> None:
    page = open_page(f"{sockets.admin.url}/#/cassettes/sockets/1", size, scheme)
    page.see("A table, please.")

    # One type is longer than a phone is wide.
    assert page.faults_of_access() == []
    assert not page.overflows()
    page.tab.keyboard.press("r")
    page.tab.locator("details.raw .sides").wait_for()
    assert page.faults_of_access() == []
    assert not page.overflows()
    assert page.tab.evaluate("window.ran === undefined")


def spoken(event: dict[str, Any]) -> list[Any]:
    return [{"service": event}]


def websocket(path: str, asked: object, lines: list[Any]) -> dict[str, Any]:
    """A recorded turn, or a session, of messages that came 40 ms after each other."""
    texts = [json.dumps(line) for line in lines]
    return {
        "kind": "websocket",
        "request": {
            "method": "WEBSOCKET",
            "url": f"https://api.openai.com/{path}",
            "json": asked,
            "route": "openai",
        },
        "response": {
            "status_code": 200,
            "framing": "close",
            "headers": {"Content-Type": "application/x-ndjson"},
            "text": "".join(f"{text}\n" for text in texts),
            "chunks": [[40.0 * (at + 1), len(text) + 1] for at, text in enumerate(texts)],
        },
    }
