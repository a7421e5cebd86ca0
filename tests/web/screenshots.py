"""Makes the pictures of docs/page.md and of the README, and docs/last.html.

Run as `.venv/bin/python -m tests.web.screenshots`.

Look at them afterwards: they show what people will see.
"""

import base64
import json
import math
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tapeway.embedded.deck import Deck, serve
from tapeway.testing import ThreadedStandIn
from tests.web.asking import MODEL, ask
from tests.web.conftest import CHROMIUM, NARROW, SANDBOX
from tests.web.film import made
from tests.web.opened_page import OpenedPage
from tests.web.recorded import exchange, stored, stream
from tests.web.test_call_views import spoken, websocket

DOCS = Path(__file__).parents[2] / "docs"
FOLDER = DOCS / "images"
ANSWER = "Paris is the capital of France. It lies on the Seine, and has been the capital since 987."
TASK = "The test test_total_is_rounded fails. Find out why, and mend it. Today is 2026-11-27."
RESULTS = {
    "read_file": "def total(net, tax):\n    return round(net) + tax",
    "search": "src/app.py:12: total(order.net, order.tax)\nsrc/db.py:88: total(row.net, row.tax)",
    "run_tests": "1 failed, 213 passed in 4.2s\nE   assert Decimal('11.90') == Decimal('12.00')",
    "edit_file": '{"ok":true,"changed_lines":1}',
}
STEPS: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = [
    ("I run the test first.", [("run_tests", {"path": "tests/test_app.py"})]),
    (
        "I look at the function and at its callers.",
        [("read_file", {"path": "src/app.py"}), ("search", {"pattern": "total(", "glob": "*.py"})],
    ),
    ("", [("read_file", {"path": "src/db.py", "from_line": 80})]),
    ("The tax is added after the rounding.", [("edit_file", {"path": "src/app.py", "line": 13})]),
    ("", [("run_tests", {"path": "tests"})]),
    ("One caller rounds once more.", [("edit_file", {"path": "src/db.py", "line": 88})]),
    ("", [("run_tests", {"path": "tests"})]),
    ("The total was rounded before the tax was added. All 214 tests pass now.", []),
]


def chat(messages: list[dict[str, Any]], response: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A recorded chat completion."""
    body = {"model": MODEL, "messages": messages, **more}
    usage = {"prompt_tokens": 14, "completion_tokens": 23, "total_tokens": 37}
    found = exchange(body, response, usage=usage, latency_ms=1240.0)
    found["request"] |= {"url": "https://api.openai.com/v1/chat/completions", "route": "openai"}
    found["metadata"] = {"provider": "openai", "endpoint": "chat.completions", "model": MODEL}
    return found


def user(words: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": words}]


def said(**message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}}
    return {"json": {"object": "chat.completion", "model": MODEL, "choices": [choice]}}


def agent_run() -> Iterator[dict[str, Any]]:
    """An agent that mends a test; the fifth turn is slow, and the sixth brings a tool more."""
    tools = [
        {"type": "function", "function": {"name": result, "parameters": {}}} for result in RESULTS
    ]
    system = "You are a careful software engineer. Run the tests after each change."
    messages = [{"role": "system", "content": system}, *user(TASK)]
    for number, (words, wanted) in enumerate(STEPS):
        calls = [
            {
                "id": f"call_{number}_{at}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for at, (name, arguments) in enumerate(wanted)
        ]
        message = {"content": words, **({"tool_calls": calls} if calls else {})}
        found = chat([*messages], said(**message), tools=tools if number > 4 else tools[:3])
        tokens = 210 * len(messages)
        found["latency_ms"] = 4100.0 if number == 4 else 700.0 + 90 * number
        found["usage"] = {
            "prompt_tokens": tokens,
            "completion_tokens": 40 + 7 * number,
            "total_tokens": tokens + 40 + 7 * number,
        }
        found["response"]["json"]["created"] = 1795770000 + 2 * number
        yield found
        messages.append({"role": "assistant", **message})
        for call, (name, _) in zip(calls, wanted, strict=True):
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": RESULTS[name]})


def tone(milliseconds: int) -> str:
    samples = (int(6000 * math.sin(at / 9)) for at in range(24 * milliseconds))
    return base64.b64encode(b"".join(struct.pack("<h", sample) for sample in samples)).decode()


def voice_session() -> dict[str, Any]:
    """A session of the Realtime API in which somebody books a table."""
    update = {"type": "session.update", "session": {"model": "gpt-realtime", "voice": "marin"}}
    heard = "conversation.item.input_audio_transcription.completed"
    asked = "Hello, I would like to book a table for two on Friday."
    lines: list[Any] = [{"client": update}]
    lines += spoken({"type": "session.updated", "session": update["session"]})
    lines += [{"client": {"type": "input_audio_buffer.append", "audio": tone(400)}}] * 4
    lines += spoken({"type": heard, "item_id": "item_1", "transcript": asked})
    for word in ["Of", "course.", "At", "what", "time", "shall", "I", "expect", "you?"]:
        part = {"response_id": "resp_1", "item_id": "item_2"}
        transcript = {"type": "response.output_audio_transcript.delta", "delta": f"{word} "}
        lines += spoken({**transcript, **part})
        lines += spoken({"type": "response.output_audio.delta", "delta": tone(200), **part})
    lines += spoken({"type": "response.done", "response": {"id": "resp_1", "status": "completed"}})
    lines.append({"close": {"code": 1000, "reason": "done", "by": "client"}})
    return websocket("v1/realtime?model=gpt-realtime", update, lines)


def prepare(deck: Deck) -> None:
    """Cassettes, and requests of which some miss and one fails."""
    words = [f"{word} " for word in ANSWER.split()]
    questions = ["What is the capital of France?", "And of Italy?", "Name a river in Spain."]
    answers = ["Paris.", "Rome.", "The Ebro."]
    geography = [chat(user(questions[0]), stream(words, gap_ms=70.0), stream=True)]
    geography += [
        chat(user(question), said(content=answer), temperature=0.2)
        for question, answer in zip(questions, answers, strict=True)
    ]
    run = [*agent_run()]
    stored(deck, "tests/geography", geography)
    stored(deck, "agents/mend-total", run)
    stored(deck, "voice/receptionist", [voice_session()])
    deck.admin.call("POST", "insert", {"cassette": "tests/geography"})
    base = f"{deck.proxy_url}/openai"
    for question in questions:
        ask(base, question, temperature=0.2)
    ask(base, questions[0], stream=True)
    agent = f"{deck.proxy_url}/@agents%2Fmend-total/openai"
    for interaction in run:
        ask(agent, "", **interaction["request"]["json"])
    ask(base, questions[1], temperature=0.7)
    ask(base, "", messages=user("What is the capital of Spain?"))
    deck.mode("passthrough", cassette="tests/geography")
    ask(deck.proxy_url, "Summarise the report.", model="error-429")
    deck.mode("replay", cassette="tests/geography")
    today = [run[0]["request"]["json"]["messages"][0], *user(TASK.replace("11-27", "11-28"))]
    ask(agent, "", **run[0]["request"]["json"] | {"messages": today})


def main() -> None:
    """Write all pictures, and the report."""
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as store,
        ThreadedStandIn() as upstream,
        serve(store=store, mode="replay", upstream=upstream.url, route=["openai"]) as deck,
        sync_playwright() as client,
        client.chromium.launch(executable_path=CHROMIUM, args=SANDBOX) as browser,
    ):
        prepare(deck)
        hit = deck.journal(outcome="replayed", cassette="agents/mend-total", limit=3)[-1]["id"]
        missed = deck.journal(outcome="miss", limit=1)[0]["id"]
        wide, conversation = (1280, 760), "#/conversation/agents%2Fmend-total"
        for name, hash_, size, scheme in [
            ("deck", "#/deck", (1280, 640), "light"),
            ("journal", "#/journal", (1280, 560), "light"),
            ("miss", f"#/journal/{missed}", (860, 430), "light"),
            ("call", f"#/journal/{hit}", wide, "dark"),
            ("stream", "#/cassettes/tests%2Fgeography/0", (1280, 780), "light"),
            ("conversation", conversation, wide, "dark"),
            ("session", "#/cassettes/voice%2Freceptionist/0", wide, "light"),
            ("phone", f"#/journal/{missed}", NARROW, "dark"),
            ("phone-journal", "#/journal", NARROW, "light"),
            ("phone-conversation", conversation, NARROW, "light"),
        ]:
            page = OpenedPage(browser, f"{deck.admin.url}/{hash_}", size, scheme, None)
            page.tab.locator("main .panel:visible, main [role=option]:visible").first.wait_for()
            for marked in page.tab.locator("main mark").all()[:1]:
                marked.evaluate("each => { each.scrollIntoView(); scrollBy(0, -130); }")
            page.tab.screenshot(path=FOLDER / f"page-{name}.png")
            page.close()
        with tempfile.TemporaryDirectory() as project:
            recording, report = made(browser, Path(project))
        (FOLDER / "red-to-green.png").write_bytes(recording)
        (DOCS / "last.html").write_text(report, "utf-8")


if __name__ == "__main__":
    main()
