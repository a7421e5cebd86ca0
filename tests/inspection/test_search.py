"""Texts in requests and recordings, however these write them."""

import gzip
from dataclasses import replace

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.inspection.search import RecordedTexts, TextFilter
from tests.conversations.recorded_calls import CHAT, call, sse

JSON = (b"content-type", b"application/json")


def deltas(*parts: str) -> bytes:
    values: list[Json] = [{"choices": [{"index": 0, "delta": {"content": part}}]} for part in parts]
    return sse(values)


def chat(answer: object, media: bytes = b"application/json") -> Interaction:
    return call(0, CHAT, {"model": "m", "messages": []}, answer, media=media)


def test_a_word_that_is_split_over_two_events_is_found() -> None:
    item = chat(deltas("the ele", "phant in the room"), b"text/event-stream")

    assert TextFilter("elephant").is_in_item(item)
    assert not TextFilter("giraffe").is_in_item(item)


def test_a_word_of_a_tool_call_is_found_though_its_arguments_come_in_pieces() -> None:
    calls: list[Json] = [
        {"index": 0, "id": "c", "function": {"name": "find", "arguments": '{"what":"a gir'}},
        {"index": 0, "function": {"arguments": 'affe"}'}},
    ]
    values: list[Json] = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [recorded]}}]} for recorded in calls
    ]

    assert TextFilter("giraffe").is_in_item(chat(sse(values), b"text/event-stream"))


def test_events_of_no_llm_are_joined_too() -> None:
    head = ResponseHead(200, headers=((b"content-type", b"text/event-stream"),))
    item = Interaction(0, Request("r", "GET", "/x"), Response(head, b"data: gir\n\ndata: affe\n\n"))

    assert TextFilter("giraffe").is_in_item(item)


@pytest.mark.parametrize("text", ["Grüße", 'say "hi"', "line\nbreak", "GRÜSSE".lower()])
def test_a_text_is_found_though_json_escapes_it(text: str) -> None:
    said = 'Grüße, say "hi", line\nbreak'
    item = chat({"choices": [{"index": 0, "message": {"role": "assistant", "content": said}}]})

    assert TextFilter(text).is_in_item(item)


def test_a_coded_body_is_searched_decoded() -> None:
    request = Request(
        "r", "POST", "/", (JSON, (b"content-encoding", b"gzip")), gzip.compress(b'"giraffe"')
    )

    assert TextFilter("GIRAFFE").is_in_request(request)


def test_the_target_and_the_request_are_searched() -> None:
    item = call(0, "/v1/giraffes", {"input": "lion"}, {})

    assert TextFilter("giraffes").is_in_item(item)
    assert TextFilter("lion").is_in_item(item)
    assert not TextFilter("tiger").is_in_item(item)


def test_an_interaction_of_another_kind_is_searched_in_its_document() -> None:
    item = ForeignInteraction(0, {"kind": "tool", "request": {"args": ["a giraffe"]}})

    assert TextFilter("giraffe").is_in_item(item)


def test_texts_of_recordings_are_kept_up_to_a_bound() -> None:
    first, second = chat({"a": "LION"}), chat({"a": "giraffe " * 99})
    known = RecordedTexts(most_bytes=600)

    assert "lion" in known.add(first)
    assert known.get(0) is not None
    assert 0 < known.size <= 600
    assert "giraffe" in known.add(replace(second, index=1))
    assert known.get(1) is None
