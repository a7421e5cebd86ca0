"""The conversation of a cassette, and two cassettes compared by what they mean."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tapeway.embedded.deck import Deck, serve
from tests.support.thoroughness import step
from tests.web.conftest import NARROW
from tests.web.opened_page import PageOpener
from tests.web.recorded import HOSTILE, exchange, stored

TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}


def call(messages: list[dict[str, Any]], answer: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A recorded chat completion."""
    body = {"model": "gpt-4o", "messages": messages, "tools": [TOOL], **more}
    usage = {"prompt_tokens": 100 * len(messages), "completion_tokens": 7, "total_tokens": 0}
    response = {
        "object": "chat.completion",
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": {"role": "assistant", **answer}}],
        "usage": usage,
    }
    found = exchange(body, {"json": response}, usage=usage)
    found["request"] |= {"url": "http://service.invalid/v1/chat/completions", "route": "openai"}
    found["metadata"] = {"provider": "openai", "endpoint": "chat.completions", "model": "gpt-4o"}
    return found


SHARED_WORDS = """async (seed) => {
    const { differences } = await import('./web/parts/text-diff.js');
    const drawn = (most) => (seed = (seed * 1103515245 + 12345) % 2147483648) % most;
    const words = ['a', 'bb', 'c1', ' ', ', ', '.', 'é', '😀', '<b>'];
    const made = (most) => Array.from({ length: drawn(most) }, () => words[drawn(words.length)]).join('');
    const rest = (text, places) => places.reduceRight((left, [from, to]) => left.slice(0, from) + left.slice(to), text);
    const unlike = [];
    for (let turn = 0; turn < 500; turn += 1) {
        const most = turn < 495 ? 12 : 20000;
        const [one, two] = [made(most), made(most)];
        const [first, second] = [rest(one, differences(one, two)), rest(two, differences(two, one))];
        if (first.replace(/\\s/g, '') !== second.replace(/\\s/g, '')) unlike.push([one, two].map((each) => each.slice(0, 200)));
    }
    return unlike;
}"""
"""Texts drawn at random of which what is not marked on either side is not the same, but for blanks."""


STATUS_TEXTS = """() => {
    window.told = [];
    const tell = () => window.told.push(document.querySelector('.result [role=status]')?.textContent);
    new MutationObserver(tell).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""
"""What the result of a comparison says of itself is kept, however short it stands there."""


def history() -> list[dict[str, Any]]:
    """Three turns; the third brings other tools, so that nothing of its prefix is cached."""
    asked: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a weather agent."},
        {"role": "user", "content": "How is it in Paris?"},
    ]
    wanted = {"name": "get_weather", "arguments": '{"city":"Paris"}'}
    called = {"tool_calls": [{"id": "call_1", "type": "function", "function": wanted}]}
    told: list[dict[str, Any]] = [
        *asked,
        {"role": "assistant", **called},
        {"role": "tool", "tool_call_id": "call_1", "content": '{"sky":"sunny","celsius":21}'},
    ]
    said = {"role": "assistant", "content": f"It is sunny. {HOSTILE}"}
    more: list[dict[str, Any]] = [*told, said, {"role": "user", "content": "And tomorrow?"}]
    return [
        call(asked, called),
        call(told, {"content": said["content"]}),
        call(more, {"content": "It will rain."}, tools=[]),
    ]


@pytest.fixture(scope="module")
def trips(shared_deck: Deck) -> Deck:
    first = history()
    second = copy.deepcopy(first)
    second[1]["response"]["json"]["choices"][0]["message"]["content"] = "It is cloudy."
    second[0]["request"]["json"]["temperature"] = 0.5
    stored(shared_deck, "first", first)
    stored(shared_deck, "second", second[:2])
    return shared_deck


@pytest.mark.slow
def test_a_conversation_shows_each_turn_and_where_its_prefix_breaks(
    trips: Deck, open_page: PageOpener
) -> None:
    page = open_page(f"{trips.admin.url}/#/conversation/first")

    turns = page.tab.locator(".turn")
    assert turns.count() == 3
    assert "Continues all 2 messages of the turn before." in turns.nth(1).inner_text()
    assert "prefix breaks at tools" in turns.nth(2).inner_text()
    assert "You are a weather agent." not in turns.nth(1).inner_text()
    assert "1,200" in page.tab.locator(".sums").inner_text()
    result = turns.nth(1).locator("details.tool")
    assert "sunny" in result.locator("summary").inner_text()
    result.locator("summary").click()
    page.until(
        "() => document.querySelectorAll('.turn')[1].querySelector('.json')?.innerText.includes('celsius')"
    )
    assert page.tab.evaluate("window.ran === undefined")


@pytest.mark.slow
def test_a_conversation_tells_which_turn_was_slow_and_finds_what_is_not_on_the_screen(
    shared_deck: Deck, open_page: PageOpener
) -> None:
    calls = []
    for number in range(120):
        asked = [{"role": "user", "content": f"Question {number}"}]
        answer = "a wombat" if number == 110 else f"Answer {number}"
        calls.append(call(asked, {"content": answer}) | {"latency_ms": 100.0 + number})
    calls[70]["latency_ms"] = 9000.0
    stored(shared_deck, "long", calls)
    page = open_page(f"{shared_deck.admin.url}/#/conversation/long")

    # No click: which turn was slow, and which was dear.
    page.tab.get_by_role("button", name="turn 71", exact=True).wait_for()
    page.see("The slowest is")
    first = page.tab.locator("[role=option]").nth(1).inner_text().split()
    assert first[0] == "1"
    assert "100 ms" in " ".join(first)
    page.click("slowest first")
    assert page.tab.locator("[role=option]").nth(1).inner_text().split()[0] == "71"
    assert page.tab.locator(".tree-list .swatch[data-kind=slow]").count() == 1
    assert page.tab.locator(".turn").count() == 50

    page.tab.get_by_label("Search").fill("wombat")
    page.see("1 found")
    page.click("Turn 111")
    page.until("() => document.getElementById('turn-110') !== null")
    page.see("Show turns before 111")


@pytest.mark.slow
def test_two_cassettes_are_compared_key_by_key(trips: Deck, open_page: PageOpener) -> None:
    page = open_page(f"{trips.admin.url}/#/compare")
    page.tab.get_by_label("First").fill("first")
    page.tab.get_by_label("Second").fill("second")
    page.click("Compare")

    page.see("request.body.temperature")
    rows = page.tab.locator(".comparison > li")
    assert [row.get_attribute("data-state") for row in rows.all()] == [
        "different",
        "different",
        "only_first",
    ]
    keys = rows.nth(1).locator("dt").all_inner_texts()
    assert keys == ["response.body.choices[0].message.content"]
    # Word by word: what both say between them is not marked.
    recorded = rows.nth(1).locator("[data-mark=missing] mark").all_inner_texts()
    assert recorded[0] == "sunny"
    assert recorded[1].strip().startswith("<script>")
    assert rows.nth(1).locator("[data-mark=added] mark").all_inner_texts() == ["cloudy"]
    assert page.tab.url.endswith("#/compare?a=first&b=second")

    assert page.tab.evaluate(SHARED_WORDS, 7) == []

    page.go("#/compare?a=first%3A1&b=second%3A1")
    page.see("response.body.choices[0].message.content")
    assert page.tab.locator(".comparison > li").count() == 1
    page.tab.get_by_label("Second").fill("nothing")
    page.click("Compare")
    page.see("nothing")


def test_a_comparison_tells_how_far_it_is_and_counts_all_differences(
    tmp_path: Path, open_page: PageOpener
) -> None:
    with serve(store=str(tmp_path), mode="replay") as deck:
        for name in ("before", "after"):
            recordings = [exchange({"number": at}, {"text": f"{name} {at}"}) for at in range(1003)]
            stored(deck, name, recordings)
        page = open_page(f"{deck.admin.url}/#/compare")
        page.tab.evaluate(STATUS_TEXTS)
        page.tab.get_by_label("First").fill("before")
        page.tab.get_by_label("Second").fill("after")
        page.click("Compare")
        page.tab.locator(".numbers [data-state=different] dd", has_text="1,003").wait_for()
        for _ in range(3):
            page.tab.get_by_role("button", name="more").click()
        row = page.tab.locator(".comparison > li").last

        assert "#1002 and #1002" in row.inner_text()
        row.get_by_role("link").click()
        page.see("response.body")
        told = page.tab.evaluate("window.told")

    assert "Read 0 of 2,006 recordings …" in told


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), [((1280, 800), "dark"), (NARROW, "light")][:: step(2)])
def test_they_can_be_read_and_used_on_both_sizes_and_in_both_schemes(
    trips: Deck, open_page: PageOpener, size: tuple[int, int], scheme: str
) -> None:
    page = open_page(f"{trips.admin.url}/#/conversation/first", size, scheme)

    for hash_ in ("#/conversation/first", "#/compare?a=first&b=second"):
        page.go(hash_)
        assert page.faults_of_access() == []
        assert not page.overflows(), hash_
