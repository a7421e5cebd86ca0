"""Answers with a fault, as a socket receives them, and how writes are cut."""

import asyncio

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.testing import StandIn
from tapeway.testing.answer import AnswerFault, StandInAnswer, awkward_writes, cut_short
from tests.clients.programs.raw_socket import Wire
from tests.support.raw_client import RawClient
from tests.testing.wires import chat, post

TARGETS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat")
THREE = StandInAnswer(200, (), (b"one", b"two", b"three"), chunked=True)
PLAIN = [b"data: %d\n\n" % number for number in range(8)]


def post_of(body: bytes) -> bytes:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


async def asked(upstream: StandIn, target: str, model: str, stream: bool) -> Wire:
    return await post(upstream.url, target, chat("hello", model=model, stream=stream))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("target", TARGETS)
async def test_a_model_named_cut_breaks_off_in_the_middle(target: str, stream: bool) -> None:
    async with StandIn() as upstream:
        wire = await asked(upstream, target, "cut", stream)
        whole = upstream.requests[0].answer.body

        assert not wire.complete
        assert whole.startswith(wire.body)
        assert 0 < len(wire.body) < len(whole)


@pytest.mark.parametrize("how", ["cut", "reset", "end"])
@pytest.mark.parametrize("stream", [True, False])
async def test_the_number_in_the_name_says_how_many_bytes_come(how: str, stream: bool) -> None:
    async with StandIn() as upstream:
        body = orjson.dumps(chat("hello", model=f"{how}-after-120-here", stream=stream))
        async with RawClient(upstream.url) as client:
            answer = await client.ask(post_of(body))

        assert answer.body == upstream.requests[0].answer.body[:120]
        assert answer.complete is (how == "end")


async def test_a_reset_is_no_end_of_the_connection() -> None:
    async with StandIn() as upstream, RawClient(upstream.url) as client:
        body = orjson.dumps(chat("hello", model="reset-after-0"))
        await client.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
            % len(body)
            + body
        )
        await client.until(b"\r\n\r\n")

        with pytest.raises(ConnectionResetError):
            await client.until(b"more")


async def test_a_stalled_answer_ends_when_the_stand_in_is_stopped() -> None:
    async with StandIn() as upstream, RawClient(upstream.url) as client:
        body = orjson.dumps(chat("hello", model="stall-after-9"))
        await client.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
            % len(body)
            + body
        )
        await client.until(b"\r\n\r\n")
        await client.until(upstream.requests[0].answer.body[:9])
        async with asyncio.timeout(1):
            await upstream.stop()

        assert await client.rest() == b"\r\n"


@pytest.mark.parametrize(
    ("target", "mark"),
    [
        ("/v1/chat/completions", b"[DONE]"),
        ("/v1/messages", b"event: message_stop"),
        ("/v1/responses", b"event: response.completed"),
        ("/api/chat", b'"done":true'),
    ],
)
async def test_an_unmarked_stream_ends_in_good_order_without_its_mark(
    target: str, mark: bytes
) -> None:
    async with StandIn() as upstream:
        marked = await asked(upstream, target, "gpt-4o", stream=True)
        unmarked = await asked(upstream, target, "unmarked", stream=True)

        assert mark in marked.body
        assert unmarked.complete
        assert unmarked.body
        assert mark not in unmarked.body


@pytest.mark.parametrize("target", TARGETS)
async def test_a_stream_error_comes_under_status_200_and_ends_in_good_order(target: str) -> None:
    async with StandIn() as upstream:
        wire = await asked(upstream, target, "stream-error", stream=True)

        assert (wire.status, wire.complete) == (200, True)
        assert b'"error"' in wire.body.rstrip().splitlines()[-1]


@pytest.mark.parametrize(
    ("after", "writes"),
    [
        (0, ()),
        (2, (b"on",)),
        (3, (b"one",)),
        (4, (b"one", b"t")),
        (99, (b"one", b"two", b"three")),
        (None, (b"one",)),
    ],
)
def test_writes_stay_where_they_were(after: int | None, writes: tuple[bytes, ...]) -> None:
    assert cut_short(THREE, AnswerFault("cut", after)).writes == writes


def test_every_second_of_four_events_shares_a_write_with_its_follower() -> None:
    assert awkward_writes(PLAIN)[1] == PLAIN[1] + PLAIN[2]


def test_every_last_of_four_events_is_cut_in_its_middle() -> None:
    assert awkward_writes(PLAIN)[2:4] == (b"data", b": 3\n\n")


def test_a_character_outside_ascii_is_cut_in_two() -> None:
    event = "data: né\n\n".encode()

    assert awkward_writes([event]) == (b"data: n\xc3", b"\xa9\n\n")


def test_a_last_event_that_waits_for_a_follower_is_sent_all_the_same() -> None:
    assert awkward_writes(PLAIN[:2]) == tuple(PLAIN[:2])


@given(st.lists(st.text(min_size=1).map(str.encode)))
def test_no_byte_is_lost_and_no_write_is_empty(events: list[bytes]) -> None:
    writes = awkward_writes(events)

    assert b"".join(writes) == b"".join(events)
    assert all(writes)
