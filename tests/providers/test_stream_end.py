"""The end of each dialect's streams, however the bytes are divided."""

import gzip
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import Framing, Headers, ResponseHead, Verdict
from tapeway.core.streams.aws_frames import parse_frames
from tapeway.core.streams.end_marks import EndDetector
from tapeway.core.streams.events import MAX_EVENT
from tapeway.providers.api_call import ApiCall
from tapeway.providers.stream_end import end_detector
from tests.support.event_stream_frames import frame, model_frame
from tests.support.memory import measured_memory
from tests.support.streams import CHAT, ERRORS, EVENT, FRAMES, NDJSON, SSE, STREAMS

MIB = 1024 * 1024


def watch(
    endpoint: str,
    media: bytes,
    *more: tuple[bytes, bytes],
    status: int = 200,
    framing: Framing = "chunked",
) -> EndDetector:
    headers: Headers = ((b"Content-Type", media), *more)
    model = "eu.anthropic.claude" if endpoint.startswith("invoke") else "m"
    call = ApiCall("any", endpoint, model, stream=True)
    return end_detector(call, ResponseHead(status, headers=headers, framing=framing))


def fed(made: EndDetector, *pieces: bytes) -> tuple[int, Verdict]:
    """How much may go once all has come, and how it ended."""
    for piece in pieces:
        made.feed(piece)
    free = made.releasable
    return free, made.finish()


def cut(body: bytes, places: list[int]) -> list[bytes]:
    """The body in pieces, some of which may be empty."""
    ends = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[start:end] for start, end in pairwise(ends)]


@pytest.mark.parametrize("name", STREAMS)
def test_everything_before_the_end_mark_is_released_and_the_mark_held_back(name: str) -> None:
    endpoint, media, first, last = STREAMS[name]

    held = (len(first), "marked")
    assert fed(watch(endpoint, media), first + last) == held
    assert fed(watch(endpoint, media), first, last) == held
    assert fed(watch(endpoint, media), first + last, b"\n\n: more\n\n") == held


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_without_its_mark_is_whole_only_if_its_framing_says_so(
    name: str, framing: Framing
) -> None:
    endpoint, media, first, last = STREAMS[name]
    needed = last if media == FRAMES else last.rstrip()
    needed = needed.removesuffix(b"\n\ndata: [DONE]")
    frame_ends = {0, *[frame.end for frame in parse_frames(first + last)]}
    for end in range(len(first) + len(needed)):
        free, verdict = fed(watch(endpoint, media, framing=framing), (first + last)[:end])

        half_a_frame = media == FRAMES and end not in frame_ends
        expected = "truncated" if framing == "close" or half_a_frame else "unmarked"
        assert verdict == expected, (first + last)[:end]
        assert free <= len(first)


@pytest.mark.parametrize("stream", [*STREAMS.values(), *ERRORS.values()])
def test_dividing_a_stream_anywhere_changes_nothing(
    stream: tuple[str, bytes, bytes, bytes],
) -> None:
    endpoint, media, first, last = stream
    body = first + last
    whole = fed(watch(endpoint, media), body)

    for end in range(len(body)):
        assert fed(watch(endpoint, media), body[:end], body[end:]) == whole, body[:end]


@given(st.sampled_from([*STREAMS.values(), *ERRORS.values()]), st.lists(st.integers(0, 9999)))
def test_however_the_bytes_are_divided_the_same_is_held_back_and_found(
    stream: tuple[str, bytes, bytes, bytes], places: list[int]
) -> None:
    endpoint, media, first, last = stream
    whole = fed(watch(endpoint, media), first + last)
    made = watch(endpoint, media)
    before = 0
    for piece in cut(first + last, places):
        made.feed(piece)
        assert before <= made.releasable
        if whole[1] == "marked":
            assert made.releasable <= len(first), "nothing of the mark goes out"
        before = made.releasable

    assert (made.releasable, made.finish()) == whole


@given(st.sampled_from([*STREAMS.values(), *ERRORS.values()]), st.lists(st.binary(max_size=60)))
def test_any_bytes_are_accepted(
    stream: tuple[str, bytes, bytes, bytes], noise: list[bytes]
) -> None:
    endpoint, media, first, last = stream
    made = watch(endpoint, media)
    size = 0
    for piece in (first, *noise, last):
        made.feed(piece)
        size += len(piece)
        assert 0 <= made.releasable <= size


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_inside_a_success_is_no_success(name: str) -> None:
    endpoint, media, first, last = ERRORS[name]

    assert fed(watch(endpoint, media), first, last)[1] == "error"
    assert fed(watch(endpoint, media), first, last, b"data: [DONE]\n\n")[1] == "error"


FAILED = [
    (SSE, b'error: {"code":400,"message":"the request exceeds the context"}\n\n'),
    (SSE, b'data: {"object":"error","message":"too long","code":400}\n\n'),
    (SSE, b'data:{"error":"Request failed during generation"}\n\n'),
    (SSE, b'event: error\ndata: {"message":"x"}\n\n'),
    (SSE, b'data: {"type":"error","errorText":"x"}\n\n'),
    (NDJSON, b'{"status":"pulling"}\n{"error":"no such model"}\n'),
    (NDJSON, b'{"object":"error","message":"x"}'),
    (FRAMES, EVENT + frame("internalServerException", message="exception")),
]


@pytest.mark.parametrize("endpoint", [None, "threads", "audio.speech", "chat.completions"])
@pytest.mark.parametrize(("media", "body"), FAILED)
def test_a_stream_in_which_the_service_fails_is_no_success_on_any_endpoint(
    endpoint: str | None, media: bytes, body: bytes
) -> None:
    def watched() -> EndDetector:
        if endpoint is not None:
            return watch(endpoint, media)
        return end_detector(None, ResponseHead(200, headers=((b"content-type", media),)))

    assert fed(watched(), body)[1] == "error"
    for end in range(len(body)):
        assert fed(watched(), body[:end], body[end:])[1] == "error", body[:end]


@pytest.mark.parametrize(
    ("media", "value"),
    [
        (media, value)
        for media in (SSE, NDJSON)
        for value in (
            b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}',
            b'{"error":null}',
            b'{"error":""}',
            b'{"error":false,"errors":1}',
            b'{"object":"chunk","text":"{\\"error\\":\\"x\\"}"}',
        )
    ],
)
def test_an_answer_of_json_rpc_and_a_member_without_an_error_are_no_failure(
    media: bytes, value: bytes
) -> None:
    body = b"data: %b\n\n" % value if media == SSE else value + b"\n"

    assert fed(watch("threads", media), body) == (len(body), "complete")


def test_bytes_of_another_service_that_are_no_frames_are_whole() -> None:
    assert fed(watch("threads", FRAMES), b"these are no frames") == (19, "complete")
    assert fed(watch("threads", FRAMES), EVENT + EVENT[:9])[1] == "truncated"


@pytest.mark.parametrize(
    ("endpoint", "media", "body"),
    [
        ("streamGenerateContent", SSE, b'data: {"candidates":[{"finishReason":"STOP"}]}\r\n\r\n'),
        ("streamGenerateContent", SSE, b'data: {"candid'),
        ("streamGenerateContent", b"application/json", b"[{},\r\n{}"),
        ("audio.speech", b"audio/mpeg", b"\xff\xfb"),
        ("chat.completions", b"application/json", b'{"choices":[]}'),
        ("threads", SSE, b"data: anything\n\n"),
        ("messages", NDJSON, b"{}\n"),
    ],
)
def test_where_there_is_no_mark_the_transport_s_end_is_the_only_one(
    endpoint: str, media: bytes, body: bytes
) -> None:
    free, verdict = fed(watch(endpoint, media), body)

    assert (free, verdict) == (len(body), "complete")


def test_an_answer_that_is_no_success_has_no_mark() -> None:
    assert fed(watch("chat.completions", SSE, status=429), CHAT) == (len(CHAT), "complete")


def test_an_unknown_stream_needs_no_mark_but_the_one_clients_know_is_held_back() -> None:
    head = ResponseHead(200, headers=((b"content-type", SSE),), framing="chunked")
    body = CHAT + b'data: {"error": null}\n\n'

    assert fed(end_detector(None, head), body) == (len(body), "complete")
    assert fed(end_detector(None, head), body + b"data: [DONE]\n\n") == (len(body), "marked")
    assert fed(watch("threads", SSE), body + b"data: [DONE]\n\n") == (len(body), "marked")


def test_a_mark_with_bytes_after_it_counts() -> None:
    for mark in (b"data: [DONE] \n\n", b"data:[DONE]\t\r\n\r\n", b"data: [DONE] - bye\n\n"):
        assert fed(watch("chat.completions", SSE), CHAT, mark) == (len(CHAT), "marked")


def test_the_last_byte_of_a_content_length_is_held_back() -> None:
    head = ResponseHead(200, length=5)
    call = ApiCall("openai", "chat.completions", "m", stream=False)

    assert fed(end_detector(call, head), b"abc") == (3, "complete")
    assert fed(end_detector(None, head), b"abc", b"de") == (4, "complete")


def test_the_last_frame_of_other_models_is_unknown() -> None:
    call = ApiCall("bedrock", "invoke-with-response-stream", "meta.llama", stream=True)
    head = ResponseHead(200, headers=((b"content-type", FRAMES),), framing="chunked")
    body = model_frame({"generation": "x"})

    assert fed(end_detector(call, head), body) == (len(body), "complete")
    assert fed(end_detector(call, head), body, body[:-1])[1] == "truncated"


def test_bytes_that_are_no_frame_are_passed_on_and_no_complete_stream() -> None:
    body = EVENT + b"no frame at all, but longer than one's first fields"

    assert fed(watch("converse-stream", FRAMES), body, b"more") == (len(body) + 4, "truncated")


@given(st.sampled_from(sorted(STREAMS)), st.lists(st.integers(0, 9999)))
def test_a_coded_stream_is_decoded_and_held_back_from_the_piece_with_the_mark(
    name: str, places: list[int]
) -> None:
    endpoint, media, first, last = STREAMS[name]
    packer = zlib.compressobj(wbits=31)
    before = packer.compress(first) + packer.flush(zlib.Z_SYNC_FLUSH)
    body = before + packer.compress(last) + packer.flush()
    pieces = cut(body, places)
    free, verdict = fed(watch(endpoint, media, (b"Content-Encoding", b"gzip")), *pieces)

    assert verdict == "marked"
    seen = zlib.decompressobj(31).decompress(body[:free])
    assert first.startswith(seen)
    assert fed(watch(endpoint, media, (b"Content-Encoding", b"gzip")), before, body[len(before) :])[
        0
    ] in (len(before), 0)


@pytest.mark.parametrize("coding", [b"gzip", b"made-up"])
def test_a_stream_that_cannot_be_decoded_ends_with_its_transport(coding: bytes) -> None:
    made = watch("chat.completions", SSE, (b"Content-Encoding", coding))

    assert fed(made, b"not in that coding, and no end") == (30, "complete")


@pytest.mark.parametrize(
    ("framing", "verdict"),
    [("chunked", "unmarked"), ("length", "unmarked"), ("close", "truncated")],
)
def test_a_coded_stream_without_its_mark(framing: Framing, verdict: Verdict) -> None:
    body = gzip.compress(CHAT)
    made = watch("chat.completions", SSE, (b"Content-Encoding", b"gzip"), framing=framing)

    assert fed(made, body) == (len(body), verdict)


@pytest.mark.parametrize(
    ("endpoint", "media", "piece", "end", "mark"),
    [
        ("messages", SSE, b"data: " + b"a" * MIB, b"\n\n", b'data: {"type": "message_stop"}\n\n'),
        ("messages", SSE, b"data: " + b"a" * MIB + b"\n", b"\n", b"event: message_stop\n\n"),
        ("api.chat", NDJSON, b'{"message": "' + b"a" * MIB, b'"}\n', b'{"done": true}\n'),
    ],
)
def test_a_line_or_an_event_as_long_as_a_body_is_not_held_in_memory(
    endpoint: str, media: bytes, piece: bytes, end: bytes, mark: bytes
) -> None:
    made, count = watch(endpoint, media), 6 * MAX_EVENT // MIB

    with measured_memory() as memory:
        for _ in range(count):
            made.feed(piece)
        made.feed(end + mark)
    assert memory.peak < 6 * MAX_EVENT
    assert made.releasable == count * len(piece) + len(end)
    assert made.finish() == "marked"
