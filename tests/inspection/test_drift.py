"""The form of two answers: what clients depend on, and not what differs with each answer."""

import json

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.messages import Response, ResponseHead
from tapeway.inspection.drift import drift
from tests.conversations.recorded_calls import sse


def answer(value: Json) -> Response:
    return _response(json.dumps(value).encode(), b"application/json")


def stream(*events: Json) -> Response:
    return _response(sse(events), b"text/event-stream")


def _response(body: bytes, media: bytes) -> Response:
    head = ResponseHead(200, headers=((b"Content-Type", media),))
    return Response(head, body)


def found(recorded: Response, live: Response) -> list[tuple[str, str, str, str]]:
    return [
        (difference.level, difference.path, difference.recorded, difference.live)
        for difference in drift(recorded, live)
    ]


@pytest.mark.parametrize(
    ("recorded", "live"),
    [
        ({"n": 1, "t": "a"}, {"t": "b", "n": 2.5}),
        ({"calls": [{"id": "a"}]}, {"calls": []}),
        ({"calls": []}, {"calls": [{"id": "a"}]}),
        ({"content": None}, {"content": "x"}),
        ({"input": {"city": "Rome"}}, {"input": {"days": 3}}),
        ({"list": [1, "a"]}, {"list": ["b"]}),
    ],
)
def test_what_is_said_is_no_drift(recorded: Json, live: Json) -> None:
    assert found(answer(recorded), answer(live)) == []


@pytest.mark.parametrize(
    ("recorded", "live", "drifted"),
    [
        ({"n": 1}, {"n": "1"}, ("error", "body.n", "number", "string")),
        ({"n": True}, {"n": 1}, ("error", "body.n", "boolean", "number")),
        ({"n": {"a": 1}}, {"n": [1]}, ("error", "body.n", "object", "list")),
        ({"n": {"a": {"b": 1}}}, {"n": {}}, ("warning", "body.n.a", "object", "nothing")),
        ({"l": [{"a": 1}]}, {"l": [{}]}, ("warning", "body.l[].a", "number", "nothing")),
        ({}, {"n": {"a": {"b": 1}}}, ("info", "body.n", "nothing", "object")),
        ({"n": "a"}, {"n": None}, ("info", "body.n", "string", "null")),
        ([1], {"a": 1}, ("error", "body", "list", "object")),
    ],
)
def test_another_form_has_its_level_and_is_named_once(
    recorded: Json, live: Json, drifted: tuple[str, str, str, str]
) -> None:
    assert drifted in found(answer(recorded), answer(live))
    assert [difference[0] for difference in found(answer(recorded), answer(live))].count(
        drifted[0]
    ) == 1


def test_events_of_a_stream_are_compared_by_their_type_however_many_there_are() -> None:
    start: Json = {"type": "start", "id": "a"}
    deltas: list[Json] = [{"type": "text.delta", "text": character} for character in "abc"]
    recorded = stream(start, *deltas)

    assert found(recorded, stream(start, {"type": "text.delta", "text": "abc"})) == []
    assert found(recorded, stream(start, {"type": "text.delta", "text": {"value": "abc"}})) == [
        ("error", "events(text.delta).text", "string", "object"),
    ]
    assert found(recorded, stream(start)) == [
        ("warning", "events(text.delta)", "object", "nothing"),
    ]


def test_another_type_of_content_is_all_that_is_said() -> None:
    assert found(answer({"a": 1}), stream({"b": 1})) == [
        ("error", "content-type", "application/json", "text/event-stream")
    ]
