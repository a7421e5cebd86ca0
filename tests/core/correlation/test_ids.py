"""What counts as an identifier in an answer, and what does not."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapeway.core.correlation.ids import (
    issued_ids,
    looks_random,
    may_hold,
    request_tokens,
    sent_ids,
)
from tapeway.core.json_text import Json, dump
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead


def answer(body: bytes, headers: Headers = ()) -> Response:
    return Response(ResponseHead(200, headers=headers), body)


@pytest.mark.parametrize(
    "text",
    [
        "call_h5Xw0Vb1jZ",
        "toolu_01AbC3dEf",
        "resp_68a1f0c2d",
        "D681PevKs",
        "3f2b1c9e-8a57-4d3c-9e21-0b6f4c5d7e88",
        "9e107d9d372bb6826bd81d3542a419d6",
        "chatcmpl-AbC123xyz",
        "EqQBCkYIBRgCKkC0a1b2c3==",
        "17953128351795",
    ],
)
def test_random_texts_look_random(text: str) -> None:
    assert looks_random(text)


@pytest.mark.parametrize(
    "text",
    [
        "gpt-4o-2024-08-06",
        "claude-sonnet-4-20250514",
        "text-embedding-3-small",
        "llama3.1:8b",
        "Qwen2.5-72B",
        "v1.2.3",
        "2026-11-22",
        "2026-11-22T10:00:00.123Z",
        "getWeatherForecast",
        "end_turn",
        "Berlin",
        "https://example.test/path",
        "",
    ],
)
def test_versions_dates_and_words_do_not_look_random(text: str) -> None:
    assert not looks_random(text)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"id": "a"}, {"a"}),
        ({"call_id": "my-call"}, {"my-call"}),
        ({"toolUseId": "x1", "a": {"b": [{"file_id": "f"}]}}, {"x1", "f"}),
        ({"vector_store_ids": ["vs_a1b2c3"]}, {"vs_a1b2c3"}),
        ({"signature": "EqQBCkYIBRgCKkC0a1b2c3=="}, {"EqQBCkYIBRgCKkC0a1b2c3=="}),
        ({"name": "files/a1b2c3d4"}, {"a1b2c3d4"}),
        ({"model": "a1b2c3d4", "text": "a1b2c3d4", "content": "a1b2c3d4"}, set()),
        ({"model_id": "mine", "role": "assistant", "type": "a1b2c3d4"}, set()),
        ({"text": 'say "id": "no"', "idea": "word"}, set()),
        ({"a1b2c3d4": 1, "id": 7, "x": "two words a1b2c3"}, set()),
        ({"pad": "a,b", "more": "c d", "id": "e"}, {"e"}),
    ],
)
def test_identifiers_are_found_in_an_answer(body: Json, found: set[str]) -> None:
    assert issued_ids(answer(dump(body))) == found
    assert issued_ids(answer(dump(body, indent=True))) == found


def test_identifiers_are_found_in_streams() -> None:
    events = (
        b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_01"}}\n\n'
        b'data: {"delta":{"partial_json":"{\\"id\\": \\"no\\"}"}}\r\n\r\n'
        b'{"content_block": {"id" : "toolu_9"}}\n\xff\x00\x00{"toolUseId":"tooluse_1"}\x00'
    )

    assert issued_ids(answer(events)) == {"msg_01", "toolu_9", "tooluse_1"}


def test_identifiers_are_found_in_links() -> None:
    headers = ((b"Location", b"https://host/v1/operations/a1b2c3d4?api-version=2026-01-01"),)

    assert issued_ids(answer(b"", headers)) == {"a1b2c3d4"}


def test_a_string_that_never_ends_is_searched_once() -> None:
    assert issued_ids(answer(b'"' + b"a" * 2_000_000)) == set()
    assert issued_ids(answer(b'"' * 500_000 + b'{"id":"x"}')) <= {"x"}


def test_the_tokens_of_a_request_are_all_that_its_app_may_have_chosen() -> None:
    request = Request(
        "x", "POST", "/v1/threads/thread_1?after=msg_2", body=b'{"id":"a","text":"two words"}'
    )

    assert {"thread_1", "msg_2", "a"} <= request_tokens(request)
    assert "two words" not in request_tokens(request)


@given(
    body=st.text('a1_-."\\\\: \n{é').map(str.encode),
    target=st.text("a1_-/?&=#%é"),
)
@example(body=b'{"id": "own_1a2b3c"}', target="/v1")
@example(body=b"", target="/v1/threads/thread_1?after=msg_2")
def test_a_request_may_hold_each_of_its_tokens(body: bytes, target: str) -> None:
    request = Request("x", "POST", target, body=body)

    assert [token for token in request_tokens(request) if not may_hold(request, token)] == []
    assert not may_hold(request, "call_h5Xw0Vb1jZ")


def test_content_of_a_request_is_no_identifier() -> None:
    body = dump({"model": "m", "previous_response_id": "r", "input": [{"call_id": "c"}]})

    found = sent_ids(Request("x", "POST", "/v1/files/a1b2c3d4/words", body=body))

    assert found == {"r", "c", "a1b2c3d4"}
