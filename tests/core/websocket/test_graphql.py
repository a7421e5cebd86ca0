"""Both GraphQL subprotocols: operations, signs of life, and whose answer is whose."""

import json

import pytest

from tapeway.core.websocket.graphql import GRAPHQL_TRANSPORT_WS, GRAPHQL_WS
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.request_protocol import (
    AnswerMessage,
    Cancelled,
    LocalReply,
    Sent,
    TurnRequest,
)

NEW, OLD = GRAPHQL_TRANSPORT_WS, GRAPHQL_WS


@pytest.mark.parametrize(
    ("query", "name", "subscribes"),
    [
        ("subscription { a }", None, True),
        ("# a comment {\n subscription News($a: In = {b: 1}) { a }", None, True),
        ("query A { a } subscription B { b }", "B", True),
        ("query A { a } subscription B { b }", "A", False),
        ("{ viewer { id } subscription { state } }", None, False),
        ('{ a(text: "} subscription {") }', None, False),
        ('query { a(text: """} subscription {""") }', None, False),
        ("mutation { subscription }", None, False),
        ("query Q($subscription: ID) { a }", None, False),
        (None, None, False),
    ],
)
def test_a_subscription_is_known_by_its_operation(
    query: str | None, name: str | None, subscribes: bool
) -> None:
    payload = {"query": query, "operationName": name}
    asked = {"id": "1", "type": "subscribe", "payload": payload}
    sent = GRAPHQL_TRANSPORT_WS.read_sent(WebSocketMessage(json.dumps(asked).encode()))
    assert isinstance(sent, TurnRequest)
    assert sent.subscribes is subscribes


@pytest.mark.parametrize(
    ("message", "sent"),
    [
        (
            b'{"id":"1","type":"subscribe","payload":{"query":"{a}"}}',
            TurnRequest(b'{"type":"subscribe","payload":{"query":"{a}"}}', b'"1"'),
        ),
        (b'{"id":"1","type":"complete"}', Cancelled(b'"1"')),
        (b'{"type":"ping"}', LocalReply(WebSocketMessage(b'{"type":"pong"}'))),
        (b'{"type":"pong"}', None),
        (b"words", None),
    ],
)
def test_an_operation_asks(message: bytes, sent: Sent) -> None:
    assert NEW.read_sent(WebSocketMessage(message)) == sent


def test_the_beginning_asks_the_same_whoever_begins() -> None:
    first = NEW.read_sent(
        WebSocketMessage(b'{"type":"connection_init","payload":{"token":"s3cr3t"}}')
    )
    assert first == NEW.read_sent(WebSocketMessage(b'{"type":"connection_init"}'))
    assert isinstance(first, TurnRequest)
    assert b"s3cr3t" not in first.content


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (b'{"type":"connection_ack"}', AnswerMessage(b"", "end")),
        (b'{"id":"1","type":"next","payload":{}}', AnswerMessage(b'"1"')),
        (b'{"id":"1","type":"complete"}', AnswerMessage(b'"1"', "end")),
        (b'{"id":"1","type":"error","payload":[]}', AnswerMessage(b'"1"', "error")),
        (b'{"type":"ping"}', None),
        (b'{"type":"pong"}', None),
        (b"words", AnswerMessage()),
        (b'{"type":["ping"]}', AnswerMessage()),
        (b'{"id":"\xff"}', AnswerMessage()),
    ],
)
def test_complete_and_error_end_a_turn(message: bytes, answer: AnswerMessage | None) -> None:
    assert NEW.read_answer(WebSocketMessage(message)) == answer


def test_the_older_subprotocol_has_other_names() -> None:
    start = OLD.read_sent(WebSocketMessage(b'{"id":"1","type":"start","payload":{}}'))
    assert start == TurnRequest(b'{"type":"start","payload":{}}', b'"1"')
    assert OLD.read_sent(WebSocketMessage(b'{"id":"1","type":"stop"}')) == Cancelled(b'"1"')
    assert OLD.read_answer(WebSocketMessage(b'{"type":"ka"}')) is None
    assert OLD.read_answer(WebSocketMessage(b'{"type":"connection_error"}')) == AnswerMessage(
        b"", "error"
    )
    assert OLD.read_answer(WebSocketMessage(b'{"id":"1","type":"data"}')) == AnswerMessage(b'"1"')


def test_an_answer_gets_the_id_that_asks() -> None:
    told = WebSocketMessage(b'{"id":"1", "type":"next","payload":{"id":"1"}}')
    assert NEW.echoed(told, b'"1"', b'"zz"') == WebSocketMessage(
        b'{"id":"zz", "type":"next","payload":{"id":"1"}}'
    )
    ack = WebSocketMessage(b'{"type":"connection_ack"}')
    assert NEW.echoed(ack, b"", b'"zz"') == ack


def test_a_miss_is_an_error_of_the_operation() -> None:
    told = NEW.error_message(b'"1"', "replay_miss", "replay miss: …")
    assert told is not None
    assert json.loads(told.data) == {
        "id": "1",
        "type": "error",
        "payload": [
            {
                "message": "replay miss: …",
                "extensions": {"code": "replay_miss", "type": "replay_miss", "status": 400},
            }
        ],
    }
    older = OLD.error_message(b'"1"', "replay_miss", "x")
    assert older is not None
    assert json.loads(older.data)["payload"]["message"] == "x"


def test_the_beginning_of_a_connection_has_no_form_for_an_error() -> None:
    assert NEW.error_message(b"", "replay_miss", "x") is None
