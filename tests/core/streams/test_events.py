"""Events of a stream and their places, however the network cuts the bytes."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import Response, ResponseHead
from tapeway.core.streams.documents import documents
from tapeway.core.streams.end_marks import EndMarks, Ends, EndScanner, LastFrame, LastLine
from tapeway.core.streams.events import MAX_EVENT
from tapeway.core.streams.framings import FRAMINGS, framing_of
from tapeway.core.streams.json_rpc import MessageScanner
from tests.support.event_stream_frames import frame, model_frame
from tests.support.streams import EVENT, FRAMES, NDJSON

SSE = b"text/event-stream"
BOM = b"\xef\xbb\xbf"
NAMES = EndMarks(names=frozenset({"message_stop"}))
BOTH = EndMarks(frozenset({b"[DONE]"}), frozenset({"message_stop"}))

LINES = [
    b"data: [DONE]",
    b"data:[DONE]",
    b'data: {"type":"message_stop"}',
    b'data: {"error":{"a":1}}',
    b"data: \xc3\xbc",
    b"data",
    b"dat",
    b"event: message_stop",
    b"event: ping",
    b"event: error",
    b"error: x",
    b"id: 7",
    b": comment",
    b"x",
    b"",
]
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
JSON_LINES = [b'{"done":true}', b'{"done":false}', b'\x1e{"error":"x"}', b" ", b"", b"{", b"\r"]
FRAME_LIST = [
    EVENT,
    frame("metadata"),
    frame("throttlingException", message="exception"),
    model_frame({"type": "message_stop"}),
    b"data that is no frame",
]


def cut(body: bytes, places: Sequence[int]) -> list[bytes]:
    ends = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[start:end] for start, end in pairwise(ends)]


def scanned(ends: Ends, pieces: Sequence[bytes]) -> tuple[int, str]:
    """How many bytes are free before the end is known, and the end."""
    scanner = EndScanner(ends)
    for piece in pieces:
        scanner.feed(piece)
    free = scanner.releasable
    scanner.finish()
    return free, scanner.mark


@given(
    st.sampled_from([BOM, b""]),
    st.lists(st.tuples(st.sampled_from(LINES), ENDS), max_size=8),
    st.sampled_from([b"", b"data: [D", b"event: message_stop", b"eve"]),
    st.lists(st.integers(0, 999), max_size=4),
)
def test_what_a_client_may_have_of_events_does_not_depend_on_the_network(
    mark: bytes, lines: list[tuple[bytes, bytes]], rest: bytes, places: list[int]
) -> None:
    body = mark + b"".join([line + end for line, end in lines]) + rest

    for ends in (NAMES, BOTH, EndMarks(frozenset({b"[DONE]"})), EndMarks()):
        whole = scanned(ends, [body])
        assert scanned(ends, cut(body, places)) == whole
        assert scanned(ends, [body[at : at + 1] for at in range(len(body))]) == whole


@given(st.lists(st.sampled_from(JSON_LINES)), st.lists(st.integers(0, 999), max_size=4))
def test_what_a_client_may_have_of_lines_does_not_depend_on_the_network(
    lines: list[bytes], places: list[int]
) -> None:
    body = b"\n".join(lines)

    for ends in (LastLine("done", True), LastLine()):
        assert scanned(ends, cut(body, places)) == scanned(ends, [body])


@given(st.lists(st.sampled_from(FRAME_LIST)), st.lists(st.integers(0, 999), max_size=4))
def test_what_a_client_may_have_of_frames_does_not_depend_on_the_network(
    frames: list[bytes], places: list[int]
) -> None:
    body = b"".join(frames)

    for ends in (LastFrame("metadata"), LastFrame(), LastFrame(None)):
        assert scanned(ends, cut(body, places)) == scanned(ends, [body])


def test_a_byte_order_mark_that_is_cut_in_three_stands_before_the_event() -> None:
    event = b"event: error\ndata: {}\n\n"

    cut_in_three = [BOM[:1], BOM[1:2], BOM[2:], event]
    assert scanned(NAMES, cut_in_three) == scanned(NAMES, [BOM + event]) == (len(BOM), "error")


def test_the_last_of_two_names_is_the_name_of_an_event() -> None:
    ping = b"event: message_stop\nevent: ping\ndata: 1\n\n"
    stop = b"event: ping\nevent: message_stop\ndata: 1\n\n"

    assert scanned(NAMES, [ping, stop]) == (len(ping), "end")


@pytest.mark.parametrize("end", [b"\r\n\r", b"\n\r", b"\r\n\n", b"\r\r"])
def test_a_question_is_seen_at_the_octet_that_completes_its_event(end: bytes) -> None:
    question = b'data: {"jsonrpc":"2.0","id":1,"method":"ping"}' + end
    scanner = MessageScanner()

    scanner.feed(question[:-1])
    assert (scanner.releasable, scanner.asks_client) == (0, False)
    scanner.feed(question[-1:])
    assert (scanner.releasable, scanner.asks_client) == (len(question), True)


def test_the_lf_behind_the_cr_that_ends_a_question_is_released_too() -> None:
    question = b'data: {"jsonrpc":"2.0","id":1,"method":"ping"}\r\n\r\n'
    result = b'data: {"jsonrpc":"2.0","id":3,"result":{}}\r\n\r\n'
    scanner = MessageScanner()

    for piece in (question[:-1], question[-1:], b": alive\r\n", result):
        scanner.feed(piece)
    assert scanner.releasable == len(question) + len(b": alive\r\n")


@pytest.mark.parametrize(
    ("media", "before", "after"),
    [(SSE, b"data: ", b"\n\n"), (NDJSON, b"", b"\n"), (NDJSON, b"", b"")],
)
def test_an_event_of_a_whole_body_may_have_any_length(
    media: bytes, before: bytes, after: bytes
) -> None:
    text = b'{"image":"%b"}' % (b"a" * (MAX_EVENT + 1))
    head = ResponseHead(200, headers=((b"content-type", media),))

    assert [*documents(Response(head, before + text + after))] == [text]


def test_a_cr_inside_a_line_of_json_ends_no_line() -> None:
    head = ResponseHead(200, headers=((b"content-type", NDJSON),))

    assert [*documents(Response(head, b'{"a":\r1}\r\n\r\n{}\n'))] == [b'{"a":\r1}', b"{}"]


def test_frames_with_other_data_behind_are_cut_off_on_any_endpoint() -> None:
    broken = bytearray(EVENT)
    broken[8] ^= 1

    for ends in (LastFrame("metadata"), LastFrame(), LastFrame(None)):
        assert scanned(ends, [EVENT + broken]) == (len(EVENT + broken), "cut")


@pytest.mark.parametrize(
    ("media", "body", "known"),
    [
        (b"text/plain", BOM + b"event: a\ndata: 1\n\n", SSE),
        (b"application/json", b'{"a":1}\r\n {"b":2}', NDJSON),
        (b"application/json", b'{"a":1}', None),
        (FRAMES, b'{"a":1}\n{"b":2}', FRAMES),
        (b"application/grpc-web", b"\0\0\0\0\2{}", None),
    ],
)
def test_a_body_is_framed_as_its_type_says_or_as_it_looks(
    media: bytes, body: bytes, known: bytes | None
) -> None:
    assert framing_of(media, body) is (None if known is None else FRAMINGS[known])
