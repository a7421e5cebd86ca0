"""The page on cassettes: what it shows is what there is."""

import json
import re
import shlex

import pytest
from click import Context

from tapeway.cli.cassette.group import cassette
from tapeway.conversations.model import document
from tapeway.conversations.transcript import transcript
from tapeway.core.json_text import Json
from tests.conversations.recorded_calls import CHAT, DATE, call, user
from tests.support.markdown import ROOT, fenced

PAGE = (ROOT / "docs/cassettes.md").read_text("utf-8")
SHELL = next(each for each in fenced(PAGE) if each.language == "sh")


@pytest.mark.parametrize("line", SHELL.text.strip().splitlines())
def test_a_command_that_is_shown_is_understood(line: str) -> None:
    program, group, name, *arguments = shlex.split(line)

    assert (program, group) == ("tapeway", "cassette")
    command = cassette.get_command(Context(cassette), name)
    assert command is not None
    command.make_context(name, arguments)


def test_the_message_that_is_shown_is_one_that_is_told() -> None:
    (shown,) = [json.loads(each.text) for each in fenced(PAGE) if each.language == "json"]
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


def test_the_table_names_the_fields_a_message_may_have() -> None:
    table = PAGE.partition("## Conversations")[2]
    rows = re.findall(r"^\| (`[a-z_` ]+`) \|", table, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}

    assert named == {
        *("conversation", "role", "content", "timestamp", "interaction", "model", "thinking"),
        *("tool_calls", "tool_call_id", "name", "attachments", "notes"),
    }
