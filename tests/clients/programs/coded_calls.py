"""Every encoding of an answer on the wire, plain and in every content coding."""

import sys
import zlib
from collections.abc import Callable
from urllib.parse import quote

import brotli  # type: ignore[import-untyped]
import orjson

from tests.clients.programs.raw_calls import CONTENTS, GEMINI, chat, comparable, posting
from tests.clients.programs.raw_socket import Fields, Wire, exchange
from tests.clients.programs.target import Run, Target

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BEDROCK = f"/model/{quote('anthropic.claude-sonnet-5-v1:0', safe='')}"
BEARER = "Authorization: Bearer KEY"
SAID = orjson.dumps({"messages": [{"role": "user", "content": [{"text": "Grüß dich"}]}]})
UPLOAD = (
    b'--rand0m\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n'
    b'--rand0m\r\nContent-Disposition: form-data; name="file"; filename="a.mp3"\r\n'
    b"Content-Type: audio/mpeg\r\n\r\n" + bytes(range(256)) + b"\r\n--rand0m--\r\n"
)

ENCODINGS: dict[str, Run] = {
    "json": posting("/v1/chat/completions", BEARER, chat()),
    "sse": posting("/v1/chat/completions", BEARER, chat(stream=True)),
    "sse_comments": posting("/api/v1/chat/completions", BEARER, chat(stream=True)),
    "sse_crlf_comments": posting(
        "/api/v1/chat/completions", BEARER, chat(stream=True, model="crlf")
    ),
    "sse_crlf": posting(
        f"{GEMINI}:streamGenerateContent?alt=sse", "x-goog-api-key: KEY", orjson.dumps(CONTENTS)
    ),
    "sse_names": posting("/v1/messages", "x-api-key: KEY", chat(stream=True)),
    "json_array": posting(
        f"{GEMINI}:streamGenerateContent", "x-goog-api-key: KEY", orjson.dumps(CONTENTS)
    ),
    "ndjson": posting("/api/chat", BEARER, chat()),
    "event_stream": posting(f"{BEDROCK}/converse-stream", BEARER, SAID),
    "event_stream_of_bytes": posting(
        f"{BEDROCK}/invoke-with-response-stream", BEARER, chat(model=None)
    ),
    "audio": posting("/v1/audio/speech", BEARER, orjson.dumps({"input": "Sag es laut"})),
    "upload": posting(
        "/v1/audio/transcriptions",
        BEARER,
        UPLOAD,
        content_type="multipart/form-data; boundary=rand0m",
    ),
}

DECODERS: dict[str, Callable[[], Callable[[bytes], bytes]]] = {
    "gzip": lambda: zlib.decompressobj(31).decompress,
    "deflate": lambda: zlib.decompressobj(15).decompress,
    "br": lambda: brotli.Decompressor().process,
    "zstd": lambda: zstd.ZstdDecompressor().decompress,
}


async def coded_exchange(to: Target, coding: str, target: str, body: bytes) -> Wire:
    """The answer to a JSON body, for a client that accepts that one coding."""
    fields: Fields = (
        ("Content-Type", "application/json"),
        ("Accept-Encoding", coding),
        ("Authorization", f"Bearer {to.key}"),
        ("Cookie", f"session={to.cookie}"),
    )
    return await exchange(to.url, "POST", to.path + target, fields, body)


def decoded(wire: Wire) -> list[bytes]:
    """The chunks of an answer with its coding taken off each as it came."""
    coding = "".join(wire.values("content-encoding"))
    if not coding:
        return list(wire.chunks)
    decode = DECODERS[coding]()
    return [decode(chunk) for chunk in wire.chunks]


def _coded(coding: str, target: str, body: bytes) -> Run:
    async def run(to: Target) -> list[object]:
        wire = await coded_exchange(to, coding, target, body)
        coded = ("content-encoding", "vary")
        fields = [field for field in comparable(wire.fields) if field[0].lower() not in coded]
        return [wire.status, fields, wire.chunked, decoded(wire), wire.complete]

    return run


CODED: dict[str, Run] = {
    f"{coding}_{name}": _coded(coding, target, body)
    for coding in DECODERS
    for name, target, body in (
        ("json", "/v1/chat/completions", chat()),
        ("sse", "/v1/chat/completions", chat(stream=True)),
        ("ndjson", "/api/chat", chat()),
        ("event_stream", f"{BEDROCK}/converse-stream", SAID),
    )
}
RUNS = ENCODINGS | CODED
