"""Where each target begins: something well-formed of every kind, and what was once a fault."""

import gzip
import random
import zlib
from collections.abc import Iterator
from pathlib import Path

from tapeway.core.streams.aws_frames import AwsFrame
from tapeway.formats.cassette_file import JSON, YAML
from tests.formats.native.test_large_files import cassette

FOUND = Path(__file__).parent / "found"
"""In a folder for each target, the inputs that once broke a promise."""

_POST = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
_CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
_EVENTS = b'event: x\r\ndata: {"type": "x"}\r\n\r\n: c\n\ndata: a\ndata: b\n\ndata: [DONE]\n\n'
_STOP = b'event: message_stop\rdata: {"type": "message_stop"}\r\r'
_PARTS = (
    b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\none\r\n--b \r\n\r\ntwo\r\n--b--\r\n'
)
_HEADERS = b"\x0d:message-type\x07\x00\x05event\x0b:event-type\x07\x00\x05chunk"
_FRAME = AwsFrame(0, 0, b"", _HEADERS).with_text(b'{"bytes":"eyJhIjoxfQ=="}')

_SEEDS: dict[str, tuple[bytes, ...]] = {
    "http_requests": (
        _POST,
        _POST + _CHUNKED + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"G\0T / x\r\n\r\n",
    ),
    "json_cassette": (JSON.save(cassette(2)), JSON.save(cassette(0))),
    "yaml_cassette": (YAML.save(cassette(2)), YAML.save(cassette(0)), JSON.save(cassette(1))),
    "multipart": (
        b"multipart/form-data; boundary=b\n" + _PARTS,
        b'multipart/mixed; boundary="b"\n' + _PARTS,
    ),
    "content_coding": (
        b"\0" + gzip.compress(_EVENTS),
        b"\x01" + zlib.compress(_EVENTS),
        b"\x02\x0b\x02\x80hello\x03",
    ),
    "sse": (_EVENTS, _STOP, b"\xef\xbb\xbf" + _EVENTS + _STOP),
    "aws_frames": (
        _FRAME,
        _FRAME + _FRAME + b"rest",
        AwsFrame(0, 0, b"", _HEADERS).with_text(b"{}"),
    ),
}


_RESPONSES = (
    b'{"type":"response.create","stream_id":"a","input":"hi","stream":true}\0'
    b'{"type":"response.steer","previous_response_id":"r","input":"no"}\0'
    b' {"type":"response.created","response":{"id":"r"},"stream_id":"a"}\0'
    b' {"type":"response.steer.accepted","steer":{"id":"s","previous_response_id":"r"}}\0'
    b' {"type":"response.incomplete","response":{"incomplete_details":{"reason":"steered"}}}\0'
    b' {"type":"error","error":{"code":"x"}}'
)
_CALLS = (
    b'{"jsonrpc":"2.0","id":1,"method":"a"}\0[{"id":1,"method":"a"},{"id":"b","method":"c"}]\0'
    b' {"id":1,"result":{"id":2}}\0 [{"id":"b","error":{}},{"id":1,"result":0}]\0 {"method":"n"}'
)
_OPERATIONS = (
    b'{"type":"connection_init"}\0{"id":"1","type":"subscribe","payload":{}}\0'
    b' {"type":"connection_ack"}\0{"id":"1","type":"complete"}\0 {"id":"1","type":"next"}\0'
    b'{"type":"ping"}\0 {"id":"1","type":"error","payload":[]}'
)
_SPOKEN = (
    b'{"type":"conversation.item.create","item":{"id":"item_a1b2c3"},"event_id":"ev_1a2b3c"}\0'
    b'{"type":"input_audio_buffer.append","audio":"YWJjZGVmZ2hpamtsbW5v"}\0'
    b' {"type":"conversation.item.added","item":{"id":"item_a1b2c3"}}\0'
    b'{"type":"input_audio_buffer.commit"}\0\x01\xff\xfe\0 {"type":"response.done"}'
)
_LIVE = (
    b'{"setup":{"model":"m","sessionResumption":{"handle":"h"}}}\0'
    b'{"realtimeInput":{"audio":{"data":"YWJj","mimeType":"audio/pcm"}}}\0'
    b' {"serverContent":{}}\0{"realtime_input":{"audio_stream_end":true}}\0 {"goAway":{}}'
)
_SEEDS |= {
    "websocket_turns": (_RESPONSES, _CALLS, _OPERATIONS),
    "websocket_sessions": (_SPOKEN, _LIVE, _OPERATIONS, b"hello\0 hello\0ping"),
}


def seeds(name: str) -> list[bytes]:
    """The well-formed ones and those that were once a fault."""
    found = sorted((FOUND / name).glob("*")) if (FOUND / name).is_dir() else []
    return [*_SEEDS[name], *(path.read_bytes() for path in found)]


def mutated(start: list[bytes], chance: random.Random) -> Iterator[bytes]:
    """Endless variations: bytes changed, cut out, repeated, and taken from one another."""
    while True:
        data = bytearray(chance.choice(start))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data) + 1)
            length = chance.choice((1, 1, 2, 4, 16, 64))
            match chance.randrange(5):
                case 0:
                    data[at : at + 1] = bytes([chance.randrange(256)])
                case 1:
                    del data[at : at + length]
                case 2:
                    data[at:at] = data[at : at + length] * chance.choice((1, 2, 30))
                case 3:
                    other = chance.choice(start)
                    begin = chance.randrange(len(other) + 1)
                    data[at:at] = other[begin : begin + length]
                case _:
                    data[at:at] = chance.choice(
                        (b"\r", b"\n", b"\0", b"\xff", b'"', b"{", b"[", b"-1", b"\\u")
                    )
        yield bytes(data)
