"""Runs and sessions: how many clicks from the page's first view the answers are.

Which turn was slow, which was dear, what was said, what changed between two runs.
"""

from typing import Any

import pytest

from tapeway.embedded.deck import Deck
from tests.support.thoroughness import step
from tests.web.conftest import NARROW, WIDE
from tests.web.opened_page import OpenedPage, PageOpener
from tests.web.recorded import HOSTILE, exchange, png, stored, text_base64, wav
from tests.web.test_call_views import spoken, websocket
from tests.web.test_history_views import call

PCM = text_base64(b"\1\2" * 2400)
HEARD = "conversation.item.input_audio_transcription.completed"
ROWS = ".tree-list [role=option]"


def agent(sky: str = "sunny") -> list[dict[str, Any]]:
    """Three turns; the second is slow, and the tool of the second fails."""
    asked: list[dict[str, Any]] = [{"role": "user", "content": "How is it in Paris?"}]
    calls = []
    for number, result in enumerate((f'{{"sky": "{sky}, 12\\u00b0C"}}', '{"error": "no rain"}')):
        wanted = {"name": f"tool_{number}", "arguments": '{"city": "Paris"}'}
        made = {"tool_calls": [{"id": f"c{number}", "type": "function", "function": wanted}]}
        calls.append(call([*asked], made) | {"latency_ms": (300.0, 9000.0)[number]})
        asked.append({"role": "assistant", **made})
        asked.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    calls.append(call([*asked], {"content": f"It is {sky}. {HOSTILE}"}) | {"latency_ms": 400.0})
    return calls


def realtime() -> dict[str, Any]:
    """A session with server-side turns: what was heard is transcribed after the answer began."""
    update = {"type": "session.update", "session": {"model": "gpt-realtime"}}
    part = {"item_id": "answer", "response_id": "r"}
    result = {"type": "function_call_output", "call_id": "f", "output": '{"error": "full"}'}
    lines: list[Any] = [
        {"client": update},
        {"client": {"type": "input_audio_buffer.append", "audio": PCM}},
        *spoken({"type": "input_audio_buffer.committed", "item_id": "heard"}),
        *spoken({"type": "response.output_audio_transcript.delta", "delta": "Of course. ", **part}),
        *spoken({"type": "response.output_audio.delta", "delta": PCM, **part}),
        *spoken({"type": HEARD, "item_id": "heard", "transcript": f"A table. {HOSTILE}"}),
        *spoken({"type": "response.output_audio_transcript.delta", "delta": "When?", **part}),
        *spoken({"type": "response.output_audio_transcript.done", "transcript": "no", **part}),
        *spoken(
            {
                "type": "response.output_item.done",
                "item": {
                    "type": "function_call",
                    "call_id": "f",
                    "name": "book",
                    "arguments": "{}",
                },
            }
        ),
        {"client": {"type": "conversation.item.create", "item": result}},
        {"close": {"code": 1000, "reason": "done", "by": "client"}},
    ]
    return websocket("v1/realtime?model=gpt-realtime", update, lines)


def gemini_live() -> dict[str, Any]:
    """A session of the Gemini Live API, whose messages come in binary frames."""
    blob = {"mimeType": "audio/pcm;rate=16000", "data": PCM}
    lines: list[Any] = [
        {"client": {"setup": {"model": "gemini-live"}}},
        {"client": {"realtimeInput": {"audio": blob}}},
        *[
            {"service_binary_json": {"serverContent": content}}
            for content in (
                {"inputTranscription": {"text": "What time "}},
                {"inputTranscription": {"text": "is it?"}},
                {"modelTurn": {"parts": [{"inlineData": blob}]}},
                {"outputTranscription": {"text": "Ten."}},
                {"turnComplete": True},
            )
        ],
    ]
    return websocket("ws/gemini", {"setup": {}}, lines)


@pytest.fixture(scope="module")
def runs(shared_deck: Deck) -> Deck:
    stored(shared_deck, "runs/first", agent())
    stored(shared_deck, "runs/second", agent("cloudy"))
    stored(shared_deck, "runs/voice", [realtime(), gemini_live()])
    return shared_deck


def first_view(runs: Deck, open_page: PageOpener) -> OpenedPage:
    return open_page(f"{runs.admin.url}/#/deck")


def one_click(page: OpenedPage, name: str) -> None:
    """The only click of a question."""
    page.tab.locator("main").get_by_role("link", name=name, exact=True).click()


def test_one_click_says_which_turn_was_slow_and_which_was_dear(
    runs: Deck, open_page: PageOpener
) -> None:
    page = first_view(runs, open_page)
    one_click(page, "runs/first")

    page.see("The slowest is")
    assert "The slowest is turn 2 with 9.00 s." in page.text
    assert "The dearest is turn 3 with $0.0013" in page.text
    assert page.tab.locator(f"{ROWS} .swatch[data-kind=slow]").count() == 1


def test_one_click_says_what_was_said_in_a_session(runs: Deck, open_page: PageOpener) -> None:
    page = first_view(runs, open_page)
    one_click(page, "runs/voice")

    page.see("A table.")
    first, second = page.tab.locator(".spoken .panel").all()
    said = [text.split("\n\n") for text in first.locator(".message-box").all_inner_texts()]
    assert [(words[0].split(" ")[0], words[1].split(" <")[0]) for words in said[:2]] == [
        ("you", "A table."),
        ("assistant", "Of course. When?"),
    ]
    assert first.locator("audio").count() == 2
    assert first.locator("[data-failed]").inner_text().startswith("tool result of book, failed")
    assert [text.split("\n\n")[1] for text in second.locator(".message-box").all_inner_texts()] == [
        "What time is it?",
        "Ten.",
    ]
    assert second.locator("audio").count() == 2
    assert page.tab.evaluate("window.ran === undefined")


def test_one_click_says_what_changed_between_two_runs(runs: Deck, open_page: PageOpener) -> None:
    stored(runs, "pair/one", agent())
    stored(runs, "pair/two", agent("cloudy"))
    page = first_view(runs, open_page)
    row = page.tab.get_by_role("row").filter(has=page.tab.get_by_role("link", name="pair/two"))
    row.get_by_role("link", name="what changed since pair/one").click()

    page.see("cloudy")


def test_a_session_is_a_transcript_and_its_protocol_events_are_folded(
    runs: Deck, open_page: PageOpener
) -> None:
    page = open_page(f"{runs.admin.url}/#/cassettes/runs%2Fvoice/0")

    page.see("Of course. When?")
    assert "session.update" not in page.tab.locator(".messages").inner_text()
    page.tab.locator(".fold summary", has_text="protocol events").click()
    page.see("session.update")


def test_a_run_is_a_tree_of_turns_and_tool_calls_with_their_results(
    runs: Deck, open_page: PageOpener
) -> None:
    page = open_page(f"{runs.admin.url}/#/conversation/runs%2Ffirst")

    rows = page.tab.locator(ROWS)
    page.until("() => document.querySelectorAll('.tree-list [role=option]').length === 6")
    texts = [" ".join(text.split()) for text in rows.all_inner_texts()]
    assert texts[0].startswith("runs/first 3 turns 9.70 s")
    assert texts[1].startswith("1 calls tool_0 300 ms 107")
    assert texts[2].startswith('tool_0(city=Paris) → {"sky": "sunny, 12°C"}')
    assert texts[2].endswith("≈ 193 ≈ $0.0005")
    assert texts[4].startswith('failed tool_1(city=Paris) → {"error": "no rain"}')
    red = page.tab.evaluate("getComputedStyle(document.querySelector('.failed')).color")
    assert red == "rgb(177, 38, 27)"
    assert page.tab.locator(".message-box[data-failed] .role").all_inner_texts() == [
        "tool result of tool_1, failed"
    ]

    rows.nth(4).click()
    page.until("() => document.querySelectorAll('details[data-call][open]').length === 1")
    assert page.tab.locator("#turn-1 details[data-call][open]").count() == 1


def test_a_run_is_sorted_by_time_and_by_cost_and_its_bars_have_a_legend(
    runs: Deck, open_page: PageOpener
) -> None:
    page = open_page(f"{runs.admin.url}/#/conversation/runs%2Ffirst")

    def turns() -> list[str]:
        return page.tab.locator(f"{ROWS} [data-level='1'] strong").all_inner_texts()

    assert turns() == ["1", "2", "3"]
    assert "twice the median or more" in page.tab.locator(".legend").inner_text()
    page.click("slowest first")
    assert turns() == ["2", "3", "1"]
    page.click("dearest first")
    assert turns() == ["3", "2", "1"]
    assert "input" in page.tab.locator(".legend").inner_text()
    assert page.tab.url.endswith("?order=dearest")
    page.tab.reload()
    page.see("The slowest is")
    assert turns() == ["3", "2", "1"]


def picture(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def test_pictures_of_messages_are_shown_and_an_svg_never_is(
    runs: Deck, open_page: PageOpener
) -> None:
    svg = text_base64(f"<svg xmlns='http://www.w3.org/2000/svg'>{HOSTILE}</svg>".encode())
    parts = [
        picture(f"data:image/svg+xml;base64,{text_base64(png())}"),
        picture(f"data:image/svg+xml;base64,{svg}"),
        picture(f"data:image/png;base64,{svg}"),
        picture("https://elsewhere.invalid/a.png"),
    ]
    stored(runs, "pictures", [call([{"role": "user", "content": parts}], {"content": "Green."})])
    page = open_page(f"{runs.admin.url}/#/cassettes/pictures/0")

    for hash_ in ("#/cassettes/pictures/0", "#/conversation/pictures"):
        page.go(hash_)
        image = page.tab.locator(".message-box img")
        image.first.wait_for()
        # The bytes say what a picture is: a PNG is one whatever its name, and markup never is.
        assert image.count() == 1
        assert str(image.get_attribute("src")).startswith("data:image/png;base64,iVBOR")
        page.until("() => document.querySelector('.message-box img').naturalWidth === 8")
        page.see("https://elsewhere.invalid/a.png")
    assert page.tab.evaluate("window.ran === undefined")


def test_a_form_lists_its_parts(runs: Deck, open_page: PageOpener) -> None:
    parts = [
        (f'name="prompt"; filename="{"x" * 60}.txt"', HOSTILE.encode()),
        ('name="image"; filename="a.png"', png()),
        ('name="file"; filename="a.wav"', wav()),
        ('name="drawing"; filename="a.svg"', b"<svg onload='window.ran = 5'/>"),
    ]
    body = b"".join(
        f"--x\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + content + b"\r\n"
        for head, content in parts
    )
    recorded = exchange(None, {"json": {"text": "Hello"}})
    recorded["request"] = {
        **recorded["request"],
        "headers": {"Content-Type": "multipart/form-data; boundary=x"},
        "body_b64": text_base64(body + b"--x--\r\n"),
    }
    del recorded["request"]["json"]
    stored(runs, "form", [recorded])
    page = open_page(f"{runs.admin.url}/#/cassettes/form/0", NARROW)

    shown = page.tab.locator(".part")
    shown.first.wait_for()
    assert shown.count() == 4
    assert "window.ran = 1" in shown.nth(0).inner_text()
    assert "image/png" in shown.nth(1).inner_text()
    assert [shown.nth(at).locator("img").count() for at in range(4)] == [0, 1, 0, 0]
    page.until("() => document.querySelector('.part audio').duration > 0")
    assert page.tab.evaluate("window.ran === undefined")
    assert page.faults_of_access() == []
    assert not page.overflows()


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "dark"), (NARROW, "light")][:: step(2)])
def test_runs_and_sessions_can_be_read_on_both_sizes_and_in_both_schemes(
    runs: Deck, open_page: PageOpener, size: tuple[int, int], scheme: str
) -> None:
    page = open_page(f"{runs.admin.url}/", size, scheme)

    for hash_ in ("#/deck", "#/conversation/runs%2Ffirst", "#/conversation/runs%2Fvoice"):
        page.go(hash_)
        assert page.faults_of_access() == []
        assert not page.overflows(), hash_
