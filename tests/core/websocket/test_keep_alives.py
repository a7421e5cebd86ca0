"""What is a keep-alive, and how a service answers one."""

import pytest

from tapeway.core.websocket.keep_alives import KeepAlives, is_plain_keep_alive
from tapeway.core.websocket.messages import WebSocketMessage


def message(data: bytes) -> WebSocketMessage:
    return WebSocketMessage(data, binary=data[:1] in (b"\x02", b"\x10", b"\xc0", b"\xd0"))


@pytest.mark.parametrize(
    "data",
    [
        b"ping",
        b" PONG\n",
        b'{"type":"pong","event_id":3}',
        b'{"type":"KeepAlive"}',
        b'{"type":"keep_alive"}',
        b'{"event":"ping"}',
        b'{"op": "heartbeat", "at": 3}',
        b'{"ping":18212558000}',
        b'[null,"3","phoenix","heartbeat",{}]',
        b'{"topic":"phoenix","event":"heartbeat","payload":{},"ref":"7"}',
    ],
)
def test_some_keep_alives_are_known_in_every_session(data: bytes) -> None:
    assert is_plain_keep_alive(message(data))


@pytest.mark.parametrize(
    ("opening", "ping", "answer"),
    [
        (b'{"protocol":"messagepack","version":1}\x1e', b"\x02\x91\x06", None),
        (b'{"protocol":"json","version":1}\x1e', b'{"type":6}\x1e', None),
        (b"CONNECT\naccept-version:1.2\n\n\0", b"\n", b"\n"),
        (b"40", b"2", b"3"),
        (b'42["m",1]', b"2", b"3"),
        (b'451-/chat,12["m",{"_placeholder":true,"num":0}]', b"2", b"3"),
        (b"40/admin,", b"3", None),
        (b'{"msg":"connect","version":"1"}', b'{"msg":"ping"}', b'{"msg":"pong"}'),
        (b'{"op":2,"d":{"intents":1}}', b'{"d":7,"op":1}', b'{"op":11}'),
        (b"\x10\x0c\x00\x04MQTT\x04\x02\x00<\x00\x00", b"\xc0\x00", b"\xd0\x00"),
        (b"\x10\x0e\x00\x06MQIsdp\x03\x02\x00<\x00\x00", b"\xc0\x00", b"\xd0\x00"),
    ],
)
def test_others_are_known_in_sessions_of_their_protocol_alone(
    opening: bytes, ping: bytes, answer: bytes | None
) -> None:
    assert not is_plain_keep_alive(message(ping))
    keep_alives = KeepAlives([(message(opening), True)])
    assert keep_alives.has(message(ping))
    found = keep_alives.answer(message(ping))
    assert (found and found.data) == answer


@pytest.mark.parametrize(
    "data",
    [
        b"pinging",
        b'{"type":"chat","event":"ping"}',
        b'{"msg":"ping","user":"ann"}',
        b'{"type":"shout","text":"ping"}',
        b'["1","3","room","heartbeat",{}]',
        b'{"type":6}\x1e{"type":1}\x1e',
        b'{"op":1,"d":{"rpcVersion":1}}',
        b'{"type":"ping","of":"%b"}' % (b"x" * 2000),
    ],
)
def test_a_message_that_says_more_is_none(data: bytes) -> None:
    everything = [b"40", b'{"protocol":"json"}\x1e', b'{"op":2,"d":{"intents":1}}']
    keep_alives = KeepAlives([(message(opening), True) for opening in everything])
    assert not keep_alives.has(message(data))


@pytest.mark.parametrize(
    ("ping", "answer"),
    [
        (b'{"type":"ping","id":3}', b'{"type":"pong","id":3}'),
        (b'{"type":"PING"}', b'{"type":"PONG"}'),
        (b'{"ping":5}', b'{"pong":5}'),
        (
            b'[null,"3","phoenix","heartbeat",{}]',
            b'[null,"3","phoenix","phx_reply",{"status":"ok","response":{}}]',
        ),
        (b'{"type":"KeepAlive"}', None),
        (b'{"type":"pong"}', None),
        (b"pong", None),
    ],
)
def test_the_usual_answer_has_the_numbers_of_the_ping(ping: bytes, answer: bytes | None) -> None:
    found = KeepAlives().answer(message(ping))
    assert (found and found.data) == answer


def test_a_number_is_no_packet_of_engine_io() -> None:
    assert not KeepAlives([(message(b"42"), True), (message(b"2"), True)]).has(message(b"2"))


def test_a_recorded_answer_is_the_form_of_all_answers() -> None:
    recorded = [
        (message(b'{"type":"keepalive","n":1}'), True),
        (message(b'{"type":"news"}'), False),
        (message(b'{"type":"keepalive","ok":true,"of":1}'), False),
        (message(b"ping"), True),
        (message(b'{"type":"news"}'), False),
        (message(b'{"type":"ping"}'), True),
    ]
    keep_alives = KeepAlives(recorded)
    assert keep_alives.places == {0, 2, 3, 5}
    found = keep_alives.answer(message(b'{"type":"keepalive","n":2}'))
    assert found is not None
    assert found.data == b'{"type":"keepalive","ok":true,"of":2}'
    # The recorded service has left this one without an answer.
    assert keep_alives.answer(message(b"ping")) is None
    # A ping at the end of a recording tells nothing.
    found = keep_alives.answer(message(b'{"type":"ping"}'))
    assert found == message(b'{"type":"pong"}')
