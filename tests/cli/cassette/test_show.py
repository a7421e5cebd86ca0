import json
from dataclasses import replace
from pathlib import Path

import pytest

from tapeway.core.json_text import Json, dump
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import (
    WEBSOCKET,
    BodyFile,
    ChunkTimes,
    Failure,
    Request,
    Response,
    ResponseHead,
)
from tapeway.formats.yaml.parser import parse as parse_yaml
from tapeway.inspection.pairing import without_varying
from tests.cli.invocation import run, written
from tests.conversations.recorded_calls import assistant, call, chat, user
from tests.support.exchanges import interaction

TOOL: dict[str, Json] = {
    "index": 1,
    "kind": "tool",
    "boundary": "add",
    "request": {"name": "add", "args": {"a": 1}},
    "response": 2,
}


def failed() -> Interaction:
    return replace(
        interaction(index=2),
        response=Response(ResponseHead(0)),
        failure=Failure("timeout", "the upstream did not answer in time"),
        usage=None,
        tags=(),
        metadata={},
    )


def test_each_interaction_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    item = replace(interaction(), metadata={"endpoint": "chat.completions", "model": "m"})
    written("a", item, ForeignInteraction(1, TOOL), failed())

    url = "https://api.openai.com/v1/chat/completions"
    assert run(capsys, "show", "a") == (
        0,
        f"#0 POST {url}  200  chat.completions m  3 tokens  12 ms  [smoke]  model: m → ok: true\n"
        "#1 tool add  response  name: add, args: a → 2\n"
        f"#2 POST {url}  timeout  12 ms  model: m"
        " → timeout: the upstream did not answer in time\n",
        "",
    )


def test_a_field_without_a_value_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    item = replace(interaction(), metadata={"endpoint": "models", "model": None}, latency_ms=0.0)
    bare = ForeignInteraction(1, {"kind": "tool", "boundary": None, "request": 1, "response": 2})
    written("a", item, bare)

    lines = run(capsys, "show", "a")[1].splitlines()

    assert [line.split("  ")[1:] for line in lines] == [
        ["200", "models", "3 tokens", "[smoke]", "model: m → ok: true"],
        ["response", "1 → 2"],
    ]
    assert lines[1] == "#1 tool  response  1 → 2"
    for index in ("0", "1"):
        assert "None" not in run(capsys, "show", "a", index)[1]


def test_one_interaction_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    file = written("a", interaction(), ForeignInteraction(1, TOOL), failed())

    assert run(capsys, "show", "a", "0")[1].splitlines()[2:] == [
        "POST https://api.openai.com/v1/chat/completions",
        "Content-Type: application/json",
        "",
        "{",
        '  "model": "m"',
        "}",
        "",
        "HTTP/1.1 200 OK",
        "Content-Type: application/json",
        "",
        "{",
        '  "ok": true',
        "}",
    ]
    assert json.loads(run(capsys, "show", str(file), "1")[1]) == TOOL
    shown = run(capsys, "show", "a", "2")[1]
    assert shown.endswith("\nfailed (timeout): the upstream did not answer in time\n")


def test_a_program_gets_the_documents(capsys: pytest.CaptureFixture[str]) -> None:
    file = written("a", interaction(), ForeignInteraction(1, TOOL))
    documents = json.loads(file.read_text())["interactions"]

    assert json.loads(run(capsys, "show", "a", "--format", "json")[1]) == documents
    assert json.loads(run(capsys, "show", "a", "1", "--format", "json")[1]) == documents[1]


@pytest.fixture
def agent() -> None:
    """A loop with a tool, and a call that is not read."""
    made: Json = {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "function": {"name": "add", "arguments": '{"a": 1}'}}],
    }
    history: list[Json] = [user("add\nthem"), made]
    result: Json = {"role": "tool", "tool_call_id": "c1", "content": "2"}
    written(
        "agent",
        chat(0, history[:1], made),
        chat(1, [*history, result], "It is 2."),
        chat(2, [user("other")], "", status=500),
        call(3, "/model/m/converse-stream", {}, {}, route="bedrock"),
    )


@pytest.mark.usefixtures("agent")
def test_conversations_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "show", "agent", "--messages")

    assert (code, out) == (
        0,
        """\
Conversation 0

user  #0  2026-11-21T20:35:14+00:00
  add
  them

assistant  #0  2026-11-21T20:35:14+00:00  m
  -> add({"a":1}) c1

tool  #1  2026-11-21T20:35:14+00:00  add  c1
  2

assistant  #1  2026-11-21T20:35:14+00:00  m
  It is 2.

Conversation 1

user  #2  2026-11-21T20:35:14+00:00
  other
  ! interaction 2: the answer was an error, 500

Turns
  #0  2 new messages, 1 sent
  #1  2 new messages, 3 sent  the prefix is kept
  #2  1 new message, 1 sent
  3 turns
Largest tool results
  #1  add  1 character
""",
    )
    assert err == (
        "tapeway: interaction 3 is left out: its request holds no message that is known\n"
    )


@pytest.mark.usefixtures("agent")
def test_a_program_gets_the_messages(capsys: pytest.CaptureFixture[str]) -> None:
    said = json.loads(run(capsys, "show", "agent", "--messages", "--format", "json")[1])

    assert [message["role"] for message in said["messages"]] == [
        *("user", "assistant", "tool", "assistant", "user")
    ]
    assert [omission["interaction"] for omission in said["left_out"]] == [3]
    assert [turn["prefix"]["kept"] for turn in said["turns"]] == [0, 1, 0]
    assert said["sums"]["turns"] == 3
    assert said["largest_results"][0]["name"] == "add"
    one = json.loads(run(capsys, "show", "agent", "1", "--messages", "--format", "json")[1])
    assert [message["content"] for message in one["messages"]] == ["2", "It is 2."]
    assert one["left_out"] == []
    assert [turn["interaction"] for turn in one["turns"]] == [1]


def test_nothing_recorded_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[2J\u202eevil"
    body = (json.dumps({"x": evil}).encode(), 0.0)
    item = replace(interaction(chunks=(body,)), tags=(evil,))
    written("a", item, chat(1, [user(evil), assistant(evil)], evil))

    for arguments in (("a",), ("a", "0"), ("a", "--messages")):
        out = run(capsys, "show", *arguments)[1]
        assert "evil" in out
        assert not set(out) & set("\x1b\u202e")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "there is no cassette nowhere in file:cassettes"),
        (("a", "7"), "cassette a has no interaction 7"),
        (("a", "x"), "is not a valid integer"),
        (("../a",), "is neither the name of a cassette"),
    ],
)
def test_a_missing_cassette_or_interaction_is_named(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    written("a", interaction())

    code, out, err = run(capsys, "show", *arguments)

    assert (code, out) == (2, "")
    assert said in err


def test_a_broken_cassette_is_named_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    written("a").write_text('{"version": "1",\n"interactions": {}}')

    code, _, err = run(capsys, "show", "a")

    assert code == 2
    assert "cassettes/a.json line 2" in err


def test_what_git_compares_is_each_request_and_what_its_response_adds_up_to(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = b'{"id": "chatcmpl-1", "created": 1795461659, "text": "one\\ntwo"}'
    first = interaction(body=answer, at_ms=5.25)
    written("a", first, ForeignInteraction(1, TOOL), failed())

    code, out, err = run(capsys, "show", "--textconv", "a")

    assert (code, err) == (0, "")
    assert not any(name in out for name in ("chatcmpl-1", "1795461659", "latency"))
    documents = [parse_yaml(part.encode()) for part in out.split("---\n")]
    url = "https://api.openai.com/v1/chat/completions"
    asked = {"request": f"POST {url}", "body": {"model": "m"}}
    assert documents == [
        {**asked, "response": {"status": 200, "body": {"text": "one\ntwo"}}},
        {name: value for name, value in TOOL.items() if name != "index"},
        {**asked, "response": {"status": 0, "body": ""}, "failure": "timeout"},
    ]
    assert out.count("one\n") == 1


@pytest.mark.parametrize("name", ["nowhere", "nowhere.json", "sqlite:nowhere.db#a"])
def test_what_git_compares_cannot_be_had_of_what_is_not_there(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    written("a", interaction())

    assert run(capsys, "show", "--textconv", name) == run(capsys, "show", name)


def test_what_git_compares_of_a_file_that_is_no_cassette_is_the_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("broken.json").write_text("{\n")

    assert run(capsys, "show", "--textconv", "broken.json") == (0, "{\n", "")


def test_a_websocket_session_is_printed_as_its_messages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said: list[dict[str, Json]] = [
        {"client": {"type": "session.update", "note": "\x1b[31m"}},
        {"service": {"type": "response.output_text.delta", "delta": "Hi "}},
        {"service": {"type": "response.output_text.delta", "delta": "\x1b[31m\n  closed"}},
        {"close": {"code": 1000, "reason": "done", "by": "client"}},
    ]
    lines = [dump(message) + b"\n" for message in said]
    times = ChunkTimes([(40.0 * at, len(line)) for at, line in enumerate(lines)])
    head = ResponseHead(200, framing="close")
    response = Response(head, body=b"".join(lines), chunk_times=times)
    request = Request("openai", WEBSOCKET, "/v1/realtime")
    written("live", Interaction(0, request, response))

    code, out, _ = run(capsys, "show", "live", "--messages")
    program = json.loads(run(capsys, "show", "live", "0", "--messages", "--format", "json")[1])

    assert code == 0
    assert "\x1b" not in out
    assert "  service  0.04 s  response.output_text.delta  2 pieces  Hi " in out
    assert "\n  closed\n" not in out
    assert "  closed by the client with code 1000: done" in out
    assert [message["by"] for message in program["sessions"][0]["messages"]] == [
        "client",
        "service",
    ]


@pytest.mark.parametrize("more", [("0",), ("--messages",), ("--format", "json")])
def test_what_git_compares_is_a_whole_cassette(
    capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    written("a", interaction())

    code, out, err = run(capsys, "show", "--textconv", "a", *more)

    assert (code, out) == (2, "")
    assert "--textconv prints a whole cassette" in err


def test_a_large_body_is_told_from_others_by_its_digest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = replace(interaction().request, body=b"", file=BodyFile("", 5, "ab" * 32))

    assert without_varying(replace(interaction(), request=asked))["body"] == {
        "sha256": "ab" * 32,
        "bytes": 5,
    }
