"""Makes the pictures of docs/page.md: `.venv/bin/python -m tests.web.screenshots`.

Look at them afterwards: they show what people will see.
"""

import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tapeway.embedded.deck import Deck, serve
from tests.web.asking import MODEL, ask
from tests.web.conftest import CHROMIUM, NARROW, SANDBOX
from tests.web.opened_page import OpenedPage
from tests.web.recorded import exchange, stored, stream

FOLDER = Path(__file__).parents[2] / "docs" / "images"
ANSWER = "Paris is the capital of France. It lies on the Seine, and has been the capital since 987."


def chat(words: str, response: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A recorded chat completion."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": words}], **more}
    usage = {"prompt_tokens": 14, "completion_tokens": 23, "total_tokens": 37}
    found = exchange(body, response, usage=usage, latency_ms=1240.0)
    found["request"] |= {"url": "https://api.openai.com/v1/chat/completions", "route": "openai"}
    found["metadata"] = {"provider": "openai", "endpoint": "chat.completions", "model": MODEL}
    return found


def said(text: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    return {"json": {"object": "chat.completion", "model": MODEL, "choices": [choice]}}


def turns() -> list[dict[str, Any]]:
    """A short history of an agent; its last turn brings a tool more."""
    asked: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a travel agent. Answer in one sentence."},
        {"role": "user", "content": "Will it be dry in Paris on Friday?"},
    ]
    wanted = {"name": "get_forecast", "arguments": '{"city":"Paris","day":"Friday"}'}
    called: dict[str, Any] = {
        "tool_calls": [{"id": "call_1", "type": "function", "function": wanted}]
    }
    result = '{"city":"Paris","day":"Friday","sky":"clear","celsius":21,"rain_percent":5}'
    told = [
        *asked,
        {"role": "assistant", **called},
        {"role": "tool", "tool_call_id": "call_1", "content": result},
    ]
    dry = "Yes: a clear sky and 21 degrees, with hardly any chance of rain."
    more = [
        *told,
        {"role": "assistant", "content": dry},
        {"role": "user", "content": "Book a table outside."},
    ]
    tool = {"type": "function", "function": {"name": "get_forecast", "parameters": {}}}
    other = {"type": "function", "function": {"name": "book_table", "parameters": {}}}
    found = []
    for messages, message, tools in [
        (asked, called, [tool]),
        (told, {"content": dry}, [tool]),
        (more, {"content": "A table for two is booked at eight."}, [tool, other]),
    ]:
        each = chat("", said(""), messages=messages, tools=tools)
        choice = {"index": 0, "message": {"role": "assistant", **message}}
        each["response"]["json"]["choices"] = [choice]
        each["latency_ms"] = 900.0 if len(messages) != 4 else 4100.0
        each["usage"] = {"prompt_tokens": 90 * len(messages), "completion_tokens": 18}
        found.append(each)
    return found


def prepare(deck: Deck) -> None:
    """Cassettes, and requests of which some miss."""
    words = [f"{word} " for word in ANSWER.split()]
    questions = ["What is the capital of France?", "And of Italy?", "Name a river in Spain."]
    recorded = [chat(questions[0], stream(words, gap_ms=70.0), stream=True)]
    recorded += [chat(each, said("Rome."), temperature=0.2, user="ci-41") for each in questions]
    stored(deck, "tests/geography", recorded)
    stored(deck, "agents/trip", turns())
    stored(deck, "tests/greeting", [chat("Hello", said("Hello! How can I help?"))])
    deck.admin.call("POST", "insert", {"cassette": "tests/geography"})
    base = f"{deck.proxy_url}/openai"
    for number in range(3):
        for each in questions:
            ask(base, each, temperature=0.2, user="ci-41")
        ask(f"{deck.proxy_url}/@tests%2Fgreeting/openai", "Hello")
        ask(base, questions[0], stream=True)
        if number == 1:
            ask(f"{deck.proxy_url}/@tests%2Fgreeting/openai", "Good morning")
    ask(base, questions[1], temperature=0.7, user="ci-97")


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as store,
        serve(store=store, mode="replay") as deck,
        sync_playwright() as client,
        client.chromium.launch(executable_path=CHROMIUM, args=SANDBOX) as browser,
    ):
        prepare(deck)
        hit = deck.journal(outcome="replayed", cassette="tests/geography", limit=1)[0]["id"]
        missed = deck.journal(outcome="miss", limit=1)[0]["id"]
        for name, hash_, size, scheme in [
            ("deck", "#/deck", (1280, 720), "light"),
            ("journal", "#/journal", (1280, 620), "light"),
            ("miss", f"#/journal/{missed}", (1280, 900), "light"),
            ("call", f"#/journal/{hit}", (1280, 640), "dark"),
            ("stream", "#/cassettes/tests%2Fgeography/0", (1280, 760), "light"),
            ("conversation", "#/conversation/agents%2Ftrip", (1280, 900), "dark"),
            ("phone", f"#/journal/{missed}", NARROW, "dark"),
            ("phone-conversation", "#/conversation/agents%2Ftrip", NARROW, "light"),
        ]:
            page = OpenedPage(browser, f"{deck.admin.url}/{hash_}", size, scheme, None)
            page.tab.locator("main .panel, main [role=option]").first.wait_for()
            page.tab.screenshot(path=FOLDER / f"page-{name}.png")
            page.close()


if __name__ == "__main__":
    main()
