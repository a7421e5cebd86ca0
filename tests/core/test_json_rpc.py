"""JSON-RPC: which names of a call its client draws, and answers under other names."""

import json

import pytest

from tapeway.core.json_rpc import AskedNames, asked_names, names_of, renamed, without_names
from tapeway.core.json_text import Json


def names(recorded: bytes, asked: bytes) -> AskedNames:
    return asked_names(names_of(recorded), names_of(asked))


def call(id: Json, **more: Json) -> dict[str, Json]:
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", **more}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (call(1), call("8f14e45f")),
        ([call(1), call(2)], [call(8), call(9)]),
        (
            call(1, params={"_meta": {"progressToken": 1}}),
            call(2, params={"_meta": {"progressToken": "t"}}),
        ),
        (
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4}},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}},
        ),
    ],
)
def test_names_that_a_client_draws_tell_no_requests_apart(one: Json, other: Json) -> None:
    assert without_names(one) == without_names(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # A notification gets no answer.
        (call(1), {"jsonrpc": "2.0", "method": "tools/call"}),
        ([call(1)], [call(1), call(2)]),
        (call(1, params={"id": 1}), call(1, params={"id": 2})),
        (call(1, params={"requestId": 1}), call(1, params={"requestId": 2})),
        # The service has drawn the id of what a client answers.
        (
            {"jsonrpc": "2.0", "id": 1, "result": {}},
            {"jsonrpc": "2.0", "id": 2, "result": {}},
        ),
        ({"id": 1, "method": "GET"}, {"id": 2, "method": "GET"}),
        ({"jsonrpc": "2.0", "id": 1}, {"jsonrpc": "2.0", "id": 2}),
        ([call(1), {"id": 3, "method": "x"}], [call(2), {"id": 3, "method": "x"}]),
    ],
)
def test_everything_else_tells_requests_apart(one: Json, other: Json) -> None:
    assert without_names(one) != without_names(other)


@pytest.mark.parametrize(
    ("recorded", "asked", "answer", "expected"),
    [
        (
            call(1),
            call("1"),
            b'{"jsonrpc": "2.0", "id" : 1 ,"result": {"id": 1}}',
            b'{"jsonrpc": "2.0", "id" : "1" ,"result": {"id": 1}}',
        ),
        (
            call("a"),
            call(2**70),
            b'{"id":"\\u0061","error":{"code":-32601}}',
            b'{"id":1180591620717411303424,"error":{"code":-32601}}',
        ),
        (call(1), call(2), b'{"id":null,"error":{}}', b'{"id":null,"error":{}}'),
        (call(1), call(2), b'{"id":1,"method":"sampling"}', b'{"id":1,"method":"sampling"}'),
        (
            [call(1), call(2)],
            [call(2), call(1)],
            b'[{"id":2,"result":"two"}, {"id":1,"result":"one"}]',
            b'[{"id":1,"result":"two"}, {"id":2,"result":"one"}]',
        ),
        (
            call(1, params={"_meta": {"progressToken": 1}}),
            call(2, params={"_meta": {"progressToken": 2}}),
            b'{"method":"notifications/progress","params":{"progressToken":1,"progress":1}}',
            b'{"method":"notifications/progress","params":{"progressToken":2,"progress":1}}',
        ),
        (call(1), call(2), b"no JSON", b"no JSON"),
    ],
)
def test_an_answer_names_the_call_as_its_client_does(
    recorded: Json, asked: Json, answer: bytes, expected: bytes
) -> None:
    given = names(json.dumps(recorded).encode(), json.dumps(asked).encode())

    assert renamed(answer, given) == expected


def test_equal_names_leave_answers_as_they_are() -> None:
    body = json.dumps(call(1)).encode()

    assert not names(body, body).differ
    assert names(body, json.dumps(call(2)).encode()).differ
