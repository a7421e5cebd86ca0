import json
from dataclasses import replace

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import Failure
from tests.cli.invocation import run, written
from tests.conversations.recorded_calls import CHAT, call, sse, user
from tests.support.exchanges import JSON_TYPE, interaction


def answering(text: str, index: int = 0, asked: str = "hi") -> Interaction:
    return call(index, CHAT, {"messages": [user(asked)]}, {"text": text})


def test_equal_cassettes_have_no_differences(capsys: pytest.CaptureFixture[str]) -> None:
    item = interaction(body=b'{"n": 1}', at_ms=5.0)
    slower = replace(
        item,
        latency_ms=99.0,
        response=replace(item.response, body=b'{"n":1.0}', at_ms=7.0),
    )
    written("a", item)
    other = written("b", slower)

    assert run(capsys, "diff", "a", "b") == (
        0,
        "1 equal, 0 different, 0 only in a, 0 only in b\n",
        "",
    )
    assert run(capsys, "diff", "a", str(other))[0] == 0


def test_a_difference_between_responses_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    written("a", answering("one"), answering("same", 1))
    written("b", answering("two"), answering("same", 1))

    code, out, _ = run(capsys, "diff", "a", "b")

    assert code == 1
    assert out.splitlines()[1:] == [
        "  response.body.text",
        '    a: "one"',
        '    b: "two"',
        "1 equal, 1 different, 0 only in a, 0 only in b",
    ]


def test_differences_between_requests_and_unpaired_recordings_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    embedding = call(1, "/v1/embeddings", {"input": "x"}, {})
    written("a", answering("x"), embedding)
    written("b", answering("x", asked="ho"), call(1, "/v1/models", {}, {}))

    code, out, _ = run(capsys, "diff", "a", "b")

    assert code == 1
    assert out.splitlines()[1:] == [
        "  request.body.messages[0].content",
        '    a: "hi"',
        '    b: "ho"',
        "only in a: #1 POST /v1/embeddings  200  input: x",
        "only in b: #1 POST /v1/models  200",
        "0 equal, 1 different, 1 only in a, 1 only in b",
    ]


def test_repeats_are_compared_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    written("a", answering("1"), answering("2", 1), answering("3", 2))
    written("b", answering("1"), answering("2", 1))

    assert run(capsys, "diff", "a", "b")[1].splitlines() == [
        "only in a: #2 POST /v1/chat/completions  200  hi → text: 3",
        "2 equal, 0 different, 1 only in a, 0 only in b",
    ]


def test_a_program_gets_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    written("a", answering("one"))
    written("b", answering("two"), answering("three", 1, asked="ho"))

    code, out, _ = run(capsys, "diff", "a", "b", "--format", "json")

    assert code == 1
    assert json.loads(out) == {
        "equal": 0,
        "equal_but_for_ids_and_times": 0,
        "different": [
            {
                "first": 0,
                "second": 0,
                "summary": "#0 POST /v1/chat/completions  200  hi → text: one",
                "differences": [{"path": "response.body.text", "first": "one", "second": "two"}],
                "more": False,
            }
        ],
        "only_first": [],
        "only_second": [
            {"index": 1, "summary": "#1 POST /v1/chat/completions  200  ho → text: three"}
        ],
    }


def test_headers_are_compared_if_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    written("a", interaction(response_headers=(JSON_TYPE, (b"X-A", b"1"))))
    written("b", interaction(response_headers=(JSON_TYPE, (b"x-a", b"2"))))

    assert run(capsys, "diff", "a", "b")[0] == 0
    code, out, _ = run(capsys, "diff", "a", "b", "--headers")
    assert (code, out.splitlines()[1]) == (1, "  response.headers.x-a")


def test_streams_are_compared_event_by_event(capsys: pytest.CaptureFixture[str]) -> None:
    def stream(*events: Json) -> Interaction:
        return call(0, CHAT, {}, sse(events), media=b"text/event-stream")

    written("a", stream({"n": 1}, {"n": 2}, {"n": 3}))
    written("b", stream({"n": 1}, {"n": 3}))

    assert run(capsys, "diff", "a", "b")[1].splitlines()[1:4] == [
        "  response.body[1]",
        '    a: {"n":2}',
        "    b: nothing",
    ]


def test_failures_binary_bodies_and_other_kinds_are_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def made(octets: bytes, result: int, failure: Failure | None) -> tuple[Interaction, ...]:
        image = ((b"Content-Type", b"image/png"),)
        item = interaction(body=octets, response_headers=image)
        return item, replace(interaction(index=1, target="/v1/x"), failure=failure)

    def tool(result: int) -> ForeignInteraction:
        document: dict[str, Json] = {"kind": "tool", "request": {}, "response": result}
        return ForeignInteraction(2, document)

    written("a", *made(b"\xff1", 1, None), tool(1))
    written("b", *made(b"\xff2", 2, Failure("cut", "x")), tool(2))

    code, out, _ = run(capsys, "diff", "a", "b")

    paths = [line.strip() for line in out.splitlines() if line.startswith("  ") and ":" not in line]
    assert code == 1
    assert paths == ["response.body.sha256", "failure", "response"]


def test_a_cassette_that_cannot_be_read_is_no_difference(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written("a", interaction())
    written("b").write_text("{")

    assert run(capsys, "diff", "a", "nowhere")[0] == 2
    assert run(capsys, "diff", "a", "b", "--store", "cassettes/a.json")[0] == 2
    code, _, err = run(capsys, "diff", "a", "b")
    assert code == 2
    assert "cassettes/b.json line 1" in err
