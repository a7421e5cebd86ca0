"""Routes, paths and HTTP frames for the tests that stream."""

from tapeway.core.streams.pacing import AT_ONCE, Pace
from tapeway.server.proxy import ProxyOptions

PATHS = {
    "chat.completions": "/openai/v1/chat/completions",
    "completions": "/openai/v1/completions",
    "responses": "/openai/v1/responses",
    "messages": "/anthropic/v1/messages",
    "chat": "/cohere/v2/chat",
    "api.chat": "/ollama/api/chat",
    "api.generate": "/ollama/api/generate",
    "converse-stream": "/bedrock/model/m/converse-stream",
    "invoke-with-response-stream": "/bedrock/model/anthropic.m/invoke-with-response-stream",
    "streamGenerateContent": "/gemini/v1beta/models/m:streamGenerateContent",
}
"""Where each endpoint is asked for."""


def routes(url: str) -> dict[str, str]:
    """A route for every provider there, all to one upstream."""
    return dict.fromkeys({path.split("/")[1] for path in PATHS.values()}, url)


def line(endpoint: str) -> bytes:
    """The request line's beginning for a call."""
    return f"POST {PATHS[endpoint]}".encode()


def streaming(pace: Pace = AT_ONCE) -> ProxyOptions:
    """A proxy that passes answers on as they come."""
    return ProxyOptions(max_body=2**23, body_idle_s=10, delivery="stream", pace=pace)


def head(media: bytes, *fields: bytes) -> bytes:
    """The head of a chunked stream."""
    lines = (b"HTTP/1.1 200 OK", b"Content-Type: " + media, b"Transfer-Encoding: chunked", *fields)
    return b"\r\n".join([*lines, b"", b""])


def sized_head(media: bytes, size: int) -> bytes:
    """The head of a stream with a length."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (media, size)


def closed_head(media: bytes) -> bytes:
    """The head of a stream that the end of its connection ends."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n\r\n" % media


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"
