"""OpenAI's Responses over WebSocket: what asks, which lane, what ends."""

import json

import pytest

from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.request_protocol import AnswerMessage, TurnRequest
from tapeway.providers.websocket.choice import OPENAI_RESPONSES as RESPONSES


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        (
            b'{"type":"response.create","model":"m","input":"hi"}',
            TurnRequest(b'{"type":"response.create","model":"m","input":"hi"}'),
        ),
        (
            b'{"type":"response.create","stream_id":"a","input":"hi","stream":true}',
            TurnRequest(b'{"type":"response.create","input":"hi"}', b'"a"'),
        ),
        (
            b'{"type":"response.create","client_metadata":{"x":"1"},"prompt_cache_key":"k",'
            b'"previous_response_id":"resp_1","input":"hi"}',
            TurnRequest(
                b'{"type":"response.create","previous_response_id":"resp_1","input":"hi"}',
                b"",
                "resp_1",
            ),
        ),
        (
            b'{"type":"response.create","generate":false,"stream_id":null}',
            TurnRequest(b'{"type":"response.create","generate":false}'),
        ),
        (
            b'{"type":"response.steer","previous_response_id":"resp_1","input":"no"}',
            TurnRequest(
                b'{"type":"response.steer","previous_response_id":"resp_1","input":"no"}',
                None,
                "resp_1",
                joins=True,
            ),
        ),
        (b'{"type":"response.dance"}', TurnRequest(b'{"type":"response.dance"}')),
        (b"words", TurnRequest(b"words")),
    ],
)
def test_what_asks(message: bytes, asked: TurnRequest) -> None:
    assert RESPONSES.read_sent(WebSocketMessage(message)) == asked


def test_a_lane_inside_of_the_input_is_text() -> None:
    said = b'{"type":"response.create","input":[{"stream_id":"a"}],"stream_id":"b"}'
    asked = RESPONSES.read_sent(WebSocketMessage(said))
    assert asked == TurnRequest(b'{"type":"response.create","input":[{"stream_id":"a"}]}', b'"b"')


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (
            {"type": "response.created", "response": {"id": "resp_1"}},
            AnswerMessage(b"", "", "resp_1"),
        ),
        (
            {
                "type": "response.created",
                "response": {"id": "resp_2", "previous_response_id": "resp_1"},
                "stream_id": "a",
            },
            AnswerMessage(b'"a"', "", "resp_2"),
        ),
        ({"type": "response.output_text.delta", "delta": "x"}, AnswerMessage(b"")),
        ({"delta": "x", "type": "response.output_text.delta"}, AnswerMessage(b"")),
        (
            {"type": "response.output_text.delta", "delta": "x", "stream_id": "a"},
            AnswerMessage(b'"a"'),
        ),
        ({"type": "response.completed", "response": {"id": "resp_1"}}, AnswerMessage(b"", "end")),
        ({"type": "response.failed", "response": {}}, AnswerMessage(b"", "error")),
        (
            {
                "type": "response.incomplete",
                "response": {"incomplete_details": {"reason": "max_output_tokens"}},
            },
            AnswerMessage(b"", "end"),
        ),
        ({"type": "error", "error": {}}, AnswerMessage(None, "error")),
        ({"type": "error", "error": {}, "stream_id": "a"}, AnswerMessage(b'"a"', "error")),
        ({"type": "response.steer.accepted", "steer": {"id": "s1"}}, None),
        ({"type": "response.steer.failed", "steer": {}, "stream_id": "a"}, None),
    ],
)
def test_what_answers(message: dict[str, object], answer: AnswerMessage | None) -> None:
    assert RESPONSES.read_answer(WebSocketMessage(json.dumps(message).encode())) == answer
    compact = json.dumps(message, separators=(",", ":")).replace("stream_id", "stream\\u005fid")
    assert RESPONSES.read_answer(WebSocketMessage(compact.encode())) == answer


@pytest.mark.parametrize(
    ("recorded", "asked", "written"),
    [
        (b'"a"', b'"b"', b'{"type": "x", "stream_id": "b", "delta": "a"}'),
        (b'"a"', b"", b'{"type": "x", "delta": "a"}'),
        (b'"a"', b'"a"', b'{"type": "x", "stream_id": "a", "delta": "a"}'),
    ],
)
def test_an_answer_gets_the_lane_that_asks(recorded: bytes, asked: bytes, written: bytes) -> None:
    told = WebSocketMessage(b'{"type": "x", "stream_id": "a", "delta": "a"}')
    assert RESPONSES.echoed(told, recorded, asked) == WebSocketMessage(written)


def test_an_answer_of_the_default_lane_gets_a_lane() -> None:
    told = WebSocketMessage(b'{"type":"x"}')
    assert RESPONSES.echoed(told, b"", b'"b"') == WebSocketMessage(b'{"stream_id":"b","type":"x"}')


def test_a_miss_is_an_error_event_of_status_400() -> None:
    told = RESPONSES.error_message(b'"a"', "replay_miss", "replay miss: …")
    assert told is not None
    assert json.loads(told.data) == {
        "type": "error",
        "status": 400,
        "error": {
            "type": "replay_miss",
            "code": "replay_miss",
            "message": "replay miss: …",
            "param": None,
        },
        "stream_id": "a",
    }
    default = RESPONSES.error_message(b"", "replay_miss", "x")
    assert default is not None
    assert "stream_id" not in json.loads(default.data)
