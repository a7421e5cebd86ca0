"""What the pages on cassettes, histories and the library say of names, limits and messages is so."""

import json
from typing import get_args

import pytest

from tapeway.conversations.model import document
from tapeway.conversations.transcript import transcript
from tapeway.core.json_text import Json
from tapeway.errors import RequestError
from tapeway.integrations.calls.cassette import Kind
from tapeway.integrations.history import storage
from tapeway.integrations.history.storage import cassette_name
from tests.conversations.recorded_calls import CHAT, DATE, call, user
from tests.support.markdown import ROOT, blocks

CASSETTES = (ROOT / "docs/cassettes.md").read_text("utf-8")
HISTORY = (ROOT / "docs/history.md").read_text("utf-8")
LIBRARY = (ROOT / "docs/library.md").read_text("utf-8")


def test_the_message_that_is_shown_is_one_that_is_told() -> None:
    (shown,) = [
        json.loads(block.text) for block in blocks("docs/cassettes.md") if block.language == "json"
    ]
    (called,) = shown["tool_calls"]
    function = {"name": called["name"], "arguments": json.dumps(called["arguments"])}
    answer: Json = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": called["id"], "function": function}],
    }
    asked: Json = {"model": shown["model"], "messages": [user("add")]}
    made = call(0, CHAT, asked, {"choices": [{"message": answer}]}, more=(DATE,))

    assert document(transcript([made]).messages[1]) == shown


def test_the_limits_of_a_history_are_those_it_says() -> None:
    assert "up to 128 lowercase letters" in HISTORY
    assert cassette_name("a" * 128) == "history/" + "a" * 128
    assert "up to 762 characters in total" in HISTORY
    assert cassette_name("_" + "a" * 759).startswith("history/escaped/s_5f")
    with pytest.raises(RequestError):
        cassette_name("_" + "a" * 760)
    assert f"after using {storage.MAX_CLAIMED} other sessions" in HISTORY


def test_the_page_on_the_library_names_every_kind() -> None:
    assert all(f"`{kind}`" in LIBRARY for kind in get_args(Kind))
