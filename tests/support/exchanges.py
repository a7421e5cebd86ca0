"""Exchanges to write and read: what hypothesis may make up, and one plain example."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from tapeway.core.agenttape import key
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    Framing,
    Headers,
    Request,
    Response,
    ResponseHead,
)

TOKEN = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
JSON_TYPE = (b"Content-Type", b"application/json")

names = st.text(TOKEN, min_size=1, max_size=8).map(str.encode) | st.sampled_from(
    [b"Set-Cookie", b"set-cookie", b"Vary", b"X-A", b"x-a"]
)
values = st.binary(max_size=20).map(
    lambda octets: octets.translate(None, delete=b"\r\n\0")
) | st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=10).map(str.encode)
headers = st.lists(st.tuples(names, values), max_size=8).map(tuple)
media = st.sampled_from(
    [
        b"application/json",
        b"application/problem+json; charset=utf-8",
        b"application/x-www-form-urlencoded",
        b"text/event-stream",
        b"application/x-ndjson",
        b"multipart/form-data; boundary=x",
        b"text/plain",
    ]
)
json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
times = st.integers(0, 10**7).map(lambda micros: round(micros / 1000, 3))


def typed(fields: Headers, content_type: bytes) -> Headers:
    """The headers with one content type and nothing that speaks of the connection."""
    return (
        (b"Content-Type", content_type),
        *(pair for pair in fields if pair[0].lower() not in _CONNECTION),
    )


_CONNECTION = (b"content-type", b"connection", b"te")


def interaction(
    *,
    index: int = 0,
    request_body: bytes = b'{"model":"m"}',
    response_headers: Headers = (JSON_TYPE,),
    body: bytes = b'{"ok": true}',
    at_ms: float = 5.25,
    chunks: Sequence[tuple[bytes, float]] = (),
    framing: Framing = "length",
    target: str = "/v1/chat/completions",
    route: str = "openai",
    base: str = "https://api.openai.com",
) -> Interaction:
    """A recording as tapeway makes it, its key filled in as a cassette shows it.

    `chunks` are given instead of `body` for an answer that came in several.
    """
    request = Request(route, "POST", target, (JSON_TYPE,), request_body, base)
    head = ResponseHead(200, "OK", response_headers, framing)
    return Interaction(
        index=index,
        request=request,
        response=Response.of_chunks(head, chunks or [(body, at_ms)]),
        match_key=key.http_key(request),
        latency_ms=12.345,
        usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
        tags=("smoke",),
        metadata={"provider": "openai", "model": "m"},
    )


@st.composite
def made_up_interactions(draw: st.DrawFn) -> Interaction:
    """Recordings with any bodies, headers and chunks, as a cassette may hold them."""
    framing: Framing = draw(st.sampled_from(["length", "chunked", "close"]))
    pieces = draw(st.lists(st.tuples(st.binary(min_size=1, max_size=30), times), max_size=5))
    if framing == "length" and pieces:
        pieces = [(b"".join([data for data, _ in pieces]), 1.5)]
    request_body = draw(st.binary(max_size=60) | st.text().map(str.encode))
    request_headers = typed(draw(headers), draw(media))
    head = ResponseHead(200, "", typed(draw(headers), draw(media)), framing)
    request = Request("r", "PUT", "/x?y=1", request_headers, request_body, "http://h:1")
    return replace(interaction(), request=request, response=Response.of_chunks(head, pieces))
