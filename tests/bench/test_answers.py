"""The requests that the benchmarks send, against what they are to measure."""

import json

import pytest

from bench.answers import (
    CLIENTS,
    JSON_PATH,
    call_answer,
    chat,
    follow_up,
    request,
    request_of,
    respelled,
)
from bench.replay import ORDINARY, asked, call_id, calls
from tapeway.server.plain_heads import read_plain_head


def _body(sent: bytes) -> bytes:
    head, _, body = sent.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    return body


def test_a_respelled_body_says_the_same_in_other_bytes() -> None:
    bodies = [_body(sent) for sent in asked("most", 3, body=respelled)]

    assert [json.loads(body) for body in bodies] == [chat(number) for number in range(3)]
    assert all(_body(request(JSON_PATH, number)) != body for number, body in enumerate(bodies))
    assert list(json.loads(bodies[0])) == list(reversed(chat(0)))


def test_a_follow_up_with_another_identifier_differs_in_nothing_else() -> None:
    recorded, other = call_id("recorded", 7), call_id("other", 7)

    assert recorded != other
    assert follow_up(7, recorded).replace(recorded, other) == follow_up(7, other)
    assert other in follow_up(7, other)


def test_the_identifier_of_each_follow_up_was_issued_by_the_answer_before_it() -> None:
    held = calls()

    for number, (asking, following) in enumerate(zip(held[::2], held[1::2], strict=True)):
        call = call_id("recorded", number)
        assert asking.response.body == call_answer(call)
        assert following.request.body == follow_up(number, call).encode()


@pytest.mark.parametrize("client", CLIENTS)
def test_the_head_of_each_client_is_plain(client: str) -> None:
    sent = request_of(client, 1, "Tapeway-Cassette: many")
    head = read_plain_head(sent)

    assert head is not None
    assert json.loads(_body(sent)) == chat(1)
    left = read_plain_head(request(JSON_PATH, 1, ORDINARY))
    assert left is not None
    assert not left.fields.may_be_hit
