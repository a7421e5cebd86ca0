"""Conversations from recorded calls: each message once and in order."""

import pytest

from tapeway.conversations.model import document
from tapeway.conversations.transcript import LeftOut, transcript
from tapeway.core.json_text import Json
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import BodyFile, Request
from tests.conversations.recorded_calls import (
    CHAT,
    WHEN,
    assistant,
    call,
    chat,
    lines,
    messages_of,
    sse,
    user,
)

TOOL_CALL: Json = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    ],
}


def result(text: str, identifier: str = "call_1") -> Json:
    return {"role": "tool", "tool_call_id": identifier, "content": text}


def notes(*calls: Interaction) -> list[str]:
    return [note for message in transcript(calls).messages for note in message.notes]


def test_a_growing_history_is_listed_once() -> None:
    history = [{"role": "system", "content": "Be brief."}, user("add 1")]
    calls = [
        chat(0, history, TOOL_CALL),
        chat(1, [*history, TOOL_CALL, result("2")], "It is 2."),
        chat(2, [*history, TOOL_CALL, result("2"), assistant("It is 2."), user("thanks")], "Bye"),
    ]

    assert messages_of(transcript(calls)) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "add 1"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_1", "name": "add", "arguments": {"a": 1}}],
        },
        {"role": "tool", "content": "2", "tool_call_id": "call_1", "name": "add"},
        {"role": "assistant", "content": "It is 2."},
        {"role": "user", "content": "thanks"},
        {"role": "assistant", "content": "Bye"},
    ]


def test_a_message_says_who_when_where_and_by_which_model() -> None:
    asked, answered = transcript([chat(7, [user("hi")], "hello")]).messages

    assert document(asked) == {
        "conversation": 0,
        "role": "user",
        "content": "hi",
        "timestamp": WHEN,
        "interaction": 7,
    }
    assert document(answered) == {
        "conversation": 0,
        "role": "assistant",
        "content": "hello",
        "timestamp": WHEN,
        "interaction": 7,
        "model": "m",
    }


@pytest.mark.parametrize(
    ("created", "more", "when"),
    [
        (1_795_293_314, (), "2026-11-21T20:35:14+00:00"),
        ("2026-11-21T20:35:14.123456789Z", (), "2026-11-21T20:35:14.123456+00:00"),
        (10**30, ((b"date", b"Sat, 21 Nov 2026 20:35:14 GMT"),), WHEN),
        ("yesterday", ((b"date", b"yesterday"),), None),
        (None, (), None),
    ],
)
def test_the_time_is_the_services_own_then_its_clocks_then_unknown(
    created: Json, more: tuple[tuple[bytes, bytes], ...], when: str | None
) -> None:
    answer: Json = {"created": created, "choices": [{"message": assistant("x")}]}

    found = transcript([call(0, CHAT, {"messages": [user("hi")]}, answer, more=more)])

    assert {message.at for message in found.messages} == {when}


def test_renamed_identifiers_and_trimmed_blanks_are_the_same_message() -> None:
    renamed: Json = {
        "role": "assistant",
        "tool_calls": [{"id": "other", "function": {"name": "add", "arguments": '{ "a":1 }'}}],
    }
    first = chat(0, [user("add")], TOOL_CALL)
    second = chat(1, [user("add "), renamed, result("2", "other")], "2")

    assert lines(first, second) == ["0 user: add", "0 assistant: ", "0 tool: 2", "0 assistant: 2"]


def test_interleaved_conversations_are_kept_apart() -> None:
    calls = [
        chat(0, [user("a")], "A1"),
        chat(1, [user("b")], "B1"),
        chat(2, [user("a"), assistant("A1"), user("a2")], "A2"),
        chat(3, [user("b"), assistant("B1"), user("b2")], "B2"),
    ]

    assert lines(*calls) == [
        *("0 user: a", "0 assistant: A1", "0 user: a2", "0 assistant: A2"),
        *("1 user: b", "1 assistant: B1", "1 user: b2", "1 assistant: B2"),
    ]
    assert notes(*calls) == []


def test_a_conversation_that_begins_like_another_is_separate_and_noted() -> None:
    calls = [
        chat(0, [user("a")], "one"),
        chat(1, [user("a")], "two"),
        chat(2, [user("a"), assistant("one"), user("b")], "three"),
        chat(3, [user("a"), assistant("two"), user("b")], "four"),
    ]

    assert lines(*calls) == [
        *("0 user: a", "0 assistant: one", "0 user: b", "0 assistant: three"),
        *("1 user: a", "1 assistant: two", "1 user: b", "1 assistant: four"),
    ]
    assert notes(*calls) == ["it begins like conversation 0"]


def test_a_run_that_was_recorded_again_is_a_conversation_of_its_own() -> None:
    run = [
        ([user("a")], "one"),
        ([user("a"), assistant("one"), user("b")], "two"),
    ]
    calls = [chat(at, asked, said) for at, (asked, said) in enumerate([*run, *run])]

    assert lines(*calls) == [
        f"{number} {said}"
        for number in (0, 1)
        for said in ("user: a", "assistant: one", "user: b", "assistant: two")
    ]


def test_of_two_equal_histories_the_later_one_is_continued() -> None:
    calls = [
        chat(0, [user("a")], "same"),
        chat(1, [user("a")], "same"),
        chat(2, [user("a"), assistant("same"), user("b")], "B"),
    ]

    assert lines(*calls)[2:] == [*("1 user: a", "1 assistant: same", "1 user: b", "1 assistant: B")]


def test_a_history_without_its_beginning_is_continued_and_noted_once() -> None:
    whole = [user("1"), assistant("A"), user("2"), assistant("B"), user("3")]
    calls = [
        chat(0, whole[:1], "A"),
        chat(1, whole[:3], "B"),
        chat(2, whole[2:], "C"),
        chat(3, [*whole[2:], assistant("C"), user("4")], "D"),
    ]

    assert lines(*calls) == [
        f"0 {said}"
        for said in (
            *("user: 1", "assistant: A", "user: 2", "assistant: B", "user: 3", "assistant: C"),
            *("user: 4", "assistant: D"),
        )
    ]
    assert notes(*calls) == ["interaction 2 edits the history: it leaves out 2"]


def test_a_result_that_was_shortened_later_is_listed_where_it_changed() -> None:
    start = [user("read"), TOOL_CALL]
    calls = [
        chat(0, start[:1], TOOL_CALL),
        chat(1, [*start, result("a long text")], "Read."),
        chat(2, [*start, result("(gone)"), assistant("Read."), user("next")], "Done."),
    ]

    assert lines(*calls) == [
        *("0 user: read", "0 assistant: ", "0 tool: a long text", "0 assistant: Read."),
        *("0 tool: (gone)", "0 user: next", "0 assistant: Done."),
    ]
    assert notes(*calls) == [
        "interaction 2 edits the history: it leaves out 1 and puts 1 in between"
    ]


def test_two_calls_that_share_one_common_answer_are_not_one_conversation() -> None:
    calls = [
        chat(0, [user("a")], "OK"),
        chat(1, [user("b"), assistant("OK"), user("c")], "done"),
    ]

    assert lines(*calls)[2:] == [
        *("1 user: b", "1 assistant: OK", "1 user: c", "1 assistant: done")
    ]


def test_other_instructions_are_listed_where_they_change() -> None:
    first: Json = {"role": "system", "content": "one"}
    second: Json = {"role": "system", "content": "two"}
    calls = [
        chat(0, [first, user("a")], "A"),
        chat(1, [second, user("a"), assistant("A"), user("b")], "B"),
        chat(2, [user("a"), assistant("A"), user("b"), assistant("B"), user("c")], "C"),
    ]

    assert lines(*calls) == [
        *("0 system: one", "0 user: a", "0 assistant: A"),
        *("0 system: two", "0 user: b", "0 assistant: B", "0 user: c", "0 assistant: C"),
    ]
    assert notes(*calls) == ["other instructions from here on", "no instructions from here on"]


def test_other_instructions_before_any_answer_are_another_conversation() -> None:
    refused = chat(0, [{"role": "system", "content": "one"}, user("a")], "", status=500)
    other = chat(1, [{"role": "system", "content": "two"}, user("a")], "A")

    assert lines(refused, other)[2:] == ["1 system: two", "1 user: a", "1 assistant: A"]


def test_a_question_answered_at_the_second_try_is_listed_once() -> None:
    error: Json = {"error": {"type": "rate_limit", "message": "Slow down"}}
    calls = [
        call(0, CHAT, {"messages": [user("a")]}, error, status=429),
        chat(1, [user("a")], "A"),
    ]

    assert messages_of(transcript(calls)) == [
        {
            "role": "user",
            "content": "a",
            "notes": ["interaction 0: the answer was an error, 429: rate_limit: Slow down"],
        },
        {"role": "assistant", "content": "A"},
    ]


def test_an_answer_that_was_cut_off_is_listed_as_far_as_it_came() -> None:
    deltas: list[Json] = [
        {"choices": [{"delta": {"content": text}}]} for text in ("Hel", "lo", "x")
    ]
    cut = call(
        *(0, CHAT, {"messages": [user("a")]}, sse(deltas, cut=True)),
        media=b"text/event-stream",
        verdict="truncated",
    )

    assert messages_of(transcript([cut]))[1] == {
        "role": "assistant",
        "content": "Hello",
        "notes": ["the answer was cut off here"],
    }


def test_an_answer_that_stopped_early_says_why() -> None:
    answer: Json = {"choices": [{"message": assistant("Once"), "finish_reason": "length"}]}

    found = transcript([call(0, CHAT, {"messages": [user("a")]}, answer)])

    assert found.messages[1].notes == ("the answer is incomplete: length",)


@pytest.mark.parametrize("answer", [b"<html>", b"", b"[]", b'{"a":1}'])
def test_an_answer_in_an_unknown_format_is_noted(answer: bytes) -> None:
    assert notes(call(0, CHAT, {"messages": [user("a")]}, answer)) == [
        "interaction 0: the answer holds no message in the format of openai's chat.completions"
    ]


def test_unreadable_calls_are_named_and_other_calls_are_no_conversations() -> None:
    large = Request("openai", "POST", CHAT, file=BodyFile("", 9_000_000, "0" * 64))
    broken = Request("openai", "POST", CHAT, body=b"{")
    answer = chat(0, [user("a")], "A").response
    calls = [
        Interaction(3, large, answer),
        Interaction(4, broken, answer),
        call(5, "/model/m/invoke", {"inputText": "hi"}, {}, route="bedrock"),
        call(6, "/v1/embeddings", {"input": "x"}, {}),
        call(9, "/v1/chat", {"message": "hi", "chat_history": []}, {}, route="cohere"),
        Interaction(7, Request("openai", "GET", CHAT), answer),
        Interaction(8, Request("default", "POST", "/things"), answer),
    ]

    found = transcript(calls)

    assert found.messages == ()
    assert found.left_out == (
        LeftOut(3, "its request has 9000000 bytes, too many to be read here"),
        LeftOut(4, "its request is not a readable JSON object"),
        LeftOut(5, "the conversations of bedrock's invoke are not read"),
        LeftOut(9, "its request holds no message that is known"),
    )


def test_another_tools_own_record_of_a_call_is_read() -> None:
    first: dict[str, Json] = {
        "kind": "llm",
        "request": {"endpoint": "chat.completions", "model": "m", "messages": [user("a")]},
        "response": {"created": 1_795_293_314, "choices": [{"message": assistant("A")}]},
    }
    failed: dict[str, Json] = {
        "kind": "llm",
        "request": {"endpoint": "chat.completions", "messages": [user("b")]},
        "error": {"type": "RateLimitError", "message": "Slow down"},
    }
    kinds: list[dict[str, Json]] = [
        {"kind": "tool", "request": {}, "response": 1},
        {"kind": "llm", "request": {"endpoint": "embeddings"}, "response": {}},
        {"kind": "llm", "request": {"endpoint": "speech"}, "response": {}},
    ]
    foreign = [ForeignInteraction(at, each) for at, each in enumerate([first, failed, *kinds])]

    found = transcript(foreign)

    assert [(message.role, message.content, message.at) for message in found.messages[:2]] == [
        ("user", "a", WHEN),
        ("assistant", "A", WHEN),
    ]
    assert found.messages[2].notes == (
        "interaction 1: the call raised an error: RateLimitError: Slow down",
    )
    assert found.left_out == (LeftOut(4, "the conversations of speech are not read"),)
