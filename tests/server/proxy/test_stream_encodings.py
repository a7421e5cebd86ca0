"""Every encoding of a stream comes back byte for byte, in the chunks it came in."""

import zlib

import pytest

from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import running_proxy, written_and_read
from tests.server.streaming import LAST, chunk, head, line, routes, streaming
from tests.support.event_stream_frames import frame
from tests.support.socket_upstream import Peer
from tests.support.streams import ANSWER, CHAT, DELTA, EVENT, FRAMES, LINE, NDJSON, PING, SSE

BUFFER = ProxyOptions(max_body=2**23, body_idle_s=10)
CRLF = CHAT.replace(b"\n", b"\r\n")
PART = b'data: {"candidates":[{"content":{"parts":[{"text":"\xc3\xa9"}]}}]}\r\n\r\n'

# Endpoint, media type, chunks; the last one is what ends the stream, where anything does.
ENCODINGS: dict[str, tuple[str, bytes, list[bytes]]] = {
    "events": ("chat.completions", SSE, [CHAT, CHAT, b"data: [DONE]\n\n"]),
    "events with CRLF and comments": (
        "chat.completions",
        SSE,
        [b": OPENROUTER PROCESSING\r\n\r\n", CRLF, CRLF, b"data: [DONE]\r\n\r\n"],
    ),
    "events cut anywhere": (
        "chat.completions",
        SSE,
        [CHAT[:7], CHAT[7:], CHAT[:30], CHAT[30:], b"data: [DONE]\n\n"],
    ),
    "named events": (
        "responses",
        SSE,
        [ANSWER, b'event: response.completed\ndata: {"type":"response.completed"}\n\n'],
    ),
    "events with pings": (
        "messages",
        SSE,
        [PING, DELTA, DELTA, b'event: message_stop\ndata: {"type":"message_stop"}\n\n'],
    ),
    "events without an end mark": ("streamGenerateContent", SSE, [PART, PART]),
    "one JSON array in parts": (
        "streamGenerateContent",
        b"application/json; charset=UTF-8",
        [b'[{"candidates": [\r\n', b'{"index": 0}]}\r\n', b",\r\n", b'{"x": 1}\r\n', b"]"],
    ),
    "lines of JSON": ("api.chat", NDJSON, [LINE, LINE, b'{"done":true}\n']),
    "frames with their checksums": (
        "converse-stream",
        FRAMES,
        [EVENT, EVENT + frame("messageStop"), frame("metadata", b'{"usage":{}}')],
    ),
    "audio": ("chat.completions", b"audio/mpeg", [bytes(range(256)), b"\xff\xfb\x00" * 99, b"\0"]),
}


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
@pytest.mark.parametrize("name", ENCODINGS)
async def test_a_stream_comes_back_byte_for_byte_in_its_chunks(name: str, delivery: str) -> None:
    endpoint, media, chunks = ENCODINGS[name]
    options = streaming() if delivery == "stream" else BUFFER
    async with (
        Peer(head(media), *map(chunk, chunks), LAST) as peer,
        running_proxy(mode="auto", routes=routes(peer.url), options=options) as proxy,
    ):
        live, replayed = [await proxy.ask(line(endpoint), body=b'{"stream":true}') for _ in "12"]
        store = await written_and_read(proxy.store)

    assert (live.outcome, replayed.outcome) == (b"recorded", b"replayed")
    assert live.body == b"".join(chunks)
    if name != "events cut anywhere":
        assert live.chunks == chunks
    async with running_proxy(mode="replay", routes=routes("http://never"), store=store) as proxy:
        again = await proxy.ask(line(endpoint), body=b'{"stream":true}')
    for answer in (replayed, again):
        assert (answer.chunks, answer.complete) == (chunks, True)
        assert answer.value(b"content-type") == media


def test_the_frames_hold_what_a_client_checks() -> None:
    checked = EVENT[:-4]

    assert int.from_bytes(EVENT[:4]) == len(EVENT)
    assert zlib.crc32(EVENT[:8]).to_bytes(4) == EVENT[8:12]
    assert zlib.crc32(checked).to_bytes(4) == EVENT[-4:]
