"""What of a stream of JSON-RPC messages a client must see before it ends."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import Headers, Request, ResponseHead
from tapeway.core.streams.json_rpc import (
    MessageScanner,
    answers_a_question,
    may_be_json_rpc,
    message_scanner,
)
from tests.core.keys import JSON
from tests.support.memory import measured_memory

PROGRESS = b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n'
QUESTION = b'event: message\r\ndata: {"jsonrpc":"2.0","id":0,"method":"elicitation/create"}\r\n\r\n'
RESULT = b'event: message\ndata: {"jsonrpc":"2.0","id":3,"result":{"method":"GET"}}\n\n'
BATCH = b'data: [{"id":1,"method":"roots/list"},{"method":"x"}]\n\n'
LINES = b'data: {"id":1,\ndata: "method":"ping"}\n\n'
SSE: Headers = ((b"Content-Type", b"text/event-stream; charset=utf-8"),)
CALL = Request("default", "POST", "/mcp", JSON, b'{"jsonrpc": "2.0", "id": 3}')


def scanned(*pieces: bytes) -> MessageScanner:
    scanner = MessageScanner()
    for piece in pieces:
        scanner.feed(piece)
    return scanner


@pytest.mark.parametrize(
    ("stream", "releasable", "asks"),
    [
        (RESULT, 0, False),
        (PROGRESS + RESULT, len(PROGRESS), False),
        (QUESTION + RESULT, len(QUESTION), True),
        (PROGRESS + QUESTION, len(PROGRESS + QUESTION), True),
        (b"id: 1\ndata:\n\n" + QUESTION[:-2], 0, False),
        (b'data: no JSON with "method"\n\n', 0, False),
        (BATCH, len(BATCH), True),
        (b'data: [{"id":1,"method":"roots/list"},{"id":3,"result":1}]\n\n', 0, False),
        (LINES, len(LINES), True),
    ],
)
def test_questions_and_notifications_are_released_and_results_are_not(
    stream: bytes, releasable: int, asks: bool
) -> None:
    scanner = scanned(stream)

    assert (scanner.releasable, scanner.asks_client) == (releasable, asks)


@given(st.lists(st.sampled_from([PROGRESS, QUESTION, RESULT]), max_size=4), st.data())
def test_the_same_bytes_give_the_same_result_however_they_are_split(
    events: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:end] for start, end in pairwise([0, *cuts, len(stream)])]

    assert scanned(*pieces).releasable == scanned(stream).releasable
    assert scanned(*pieces).asks_client == scanned(stream).asks_client


def test_a_question_behind_an_event_without_end_is_not_searched_for_in_ever_more_memory() -> None:
    with measured_memory() as memory:
        scanner = scanned(b"data: ", *[b"x" * 2**20] * 9)

    assert memory.held < 6 * 2**20
    assert not scanner.asks_client


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (CALL, True),
        (Request("default", "GET", "/mcp", ((b"Mcp-Session-Id", b"1"),)), True),
        (Request("default", "GET", "/mcp", ((b"mcp-protocol-version", b"2025-06-18"),)), True),
        (Request("openai", "POST", "/v1/chat/completions", JSON, b'{"messages":[]}'), False),
    ],
)
def test_a_request_shows_whether_its_response_may_be_json_rpc(
    request_: Request, expected: bool
) -> None:
    assert may_be_json_rpc(request_) is expected
    assert (message_scanner(request_, ResponseHead(200, headers=SSE)) is not None) is expected


def test_only_a_readable_event_stream_is_searched() -> None:
    coded = (*SSE, (b"Content-Encoding", b"gzip"))

    assert message_scanner(CALL, ResponseHead(200, headers=JSON)) is None
    assert message_scanner(CALL, ResponseHead(200, headers=coded)) is None


@pytest.mark.parametrize(
    ("body", "answers"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', True),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1}}', True),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"result":1}}', False),
        (b'{"id":1,"result":{}}', False),
        (b'{"jsonrpc":"2.0","result":', False),
        (b"", False),
    ],
)
def test_a_clients_answer_to_a_question_is_known(body: bytes, answers: bool) -> None:
    assert answers_a_question("POST", body) is answers
