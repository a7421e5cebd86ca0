"""JSON-RPC 2.0: calls, batches, notifications, and whose answer is whose."""

import json

import pytest

from tapeway.core.websocket.json_rpc import JsonRpc, is_json_rpc
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.request_protocol import AnswerMessage, TurnRequest

RPC = JsonRpc()


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (b'{"jsonrpc":"2.0","method":"x","id":1}', True),
        (b'[{"jsonrpc":"2.0","method":"x","id":1}]', True),
        (b'{"jsonrpc":"1.0","method":"x","id":1}', False),
        (b'[{"jsonrpc":"2.0"},{"type":"x"}]', False),
        (b"[]", False),
        (b'"jsonrpc"', False),
        (b'{"text":"jsonrpc"}', False),
    ],
)
def test_the_protocol_is_known_by_its_version(message: bytes, found: bool) -> None:
    assert is_json_rpc(message) is found


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        (
            b'{"jsonrpc":"2.0","id":7,"method":"add","params":[1,2]}',
            TurnRequest(b'{"jsonrpc":"2.0","method":"add","params":[1,2]}', b"7"),
        ),
        (
            b'{"id": "a", "method": "add"}',
            TurnRequest(b'{"method": "add"}', b'"a"'),
        ),
        (b'{"jsonrpc":"2.0","method":"note"}', None),
        (b'{"jsonrpc":"2.0","id":3,"result":true}', None),
        (b'{"jsonrpc":"2.0","id":3,"error":{"code":1}}', None),
        (b"hello", None),
        (
            b'[{"id":5,"method":"a"}, {"method":"n"}, {"id":"x","method":"b"}]',
            TurnRequest(
                b'[{"id":0,"method":"a"},{"method":"n"},{"id":1,"method":"b"}]', b'[5,"x"]'
            ),
        ),
        (b'[{"method":"n"}]', None),
    ],
)
def test_a_call_asks(message: bytes, asked: TurnRequest | None) -> None:
    assert RPC.read_sent(WebSocketMessage(message)) == asked


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (b'{"id":7,"result":3}', AnswerMessage(b"7", "end")),
        (b'{"id":"7","error":{"code":1}}', AnswerMessage(b'"7"', "error")),
        (b'{"id":null,"error":{"code":-32700}}', AnswerMessage(None, "error")),
        (b'{"method":"changed","params":{}}', AnswerMessage()),
        (b'{"method":"ask","id":1}', AnswerMessage()),
        (b'[{"id":2,"result":1},{"id":1,"error":{}}]', AnswerMessage(b"[2,1]", "end")),
        (b'[{"id":2,"error":{}}]', AnswerMessage(b"[2]", "error")),
        (b"words", AnswerMessage()),
    ],
)
def test_a_result_ends_the_turn_of_its_id(message: bytes, answer: AnswerMessage) -> None:
    assert RPC.read_answer(WebSocketMessage(message)) == answer


@pytest.mark.parametrize(
    ("message", "recorded", "asked", "written"),
    [
        (b'{"id": 7, "result": {"id": 7}}', b"7", b'"q"', b'{"id": "q", "result": {"id": 7}}'),
        (b'{"method":"ask","id":7}', b"7", b"8", b'{"method":"ask","id":7}'),
        (b'{"method":"note"}', b"7", b"8", b'{"method":"note"}'),
        (b'{"id":null,"error":{}}', b"7", b"8", b'{"id":null,"error":{}}'),
        (
            b'[{"id":2,"r":0}, {"id":1,"r":0}]',
            b"[1,2]",
            b"[8,9]",
            b'[{"id":9,"r":0}, {"id":8,"r":0}]',
        ),
        # The ids of both requests are the same numbers in another order.
        (b'[{"id":1},{"id":2}]', b"[1,2]", b"[2,1]", b'[{"id":2},{"id":1}]'),
    ],
)
def test_an_answer_gets_the_id_that_asks(
    message: bytes, recorded: bytes, asked: bytes, written: bytes
) -> None:
    assert RPC.echoed(WebSocketMessage(message), recorded, asked) == WebSocketMessage(written)


def test_a_miss_is_an_error_object_for_each_call() -> None:
    single = RPC.error_message(b'"a"', "replay_miss", "replay miss: …")
    batch = RPC.error_message(b"[1,2]", "replay_miss", "replay miss: …")
    assert single is not None
    assert batch is not None
    told = json.loads(single.data)
    assert told["id"] == "a"
    assert told["error"]["message"] == "replay miss: …"
    assert told["error"]["data"]["code"] == "replay_miss"
    assert [item["id"] for item in json.loads(batch.data)] == [1, 2]
