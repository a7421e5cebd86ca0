"""The endpoint of an MCP server leads back, wherever the pieces of its stream end."""

import pytest

from tapeway.core.http.routing import Route, RouteTable, resolve
from tapeway.core.model.request_fields import RequestFields
from tapeway.core.way_back.addresses import WaysBack
from tapeway.core.way_back.events import MOST_HELD, EndpointEvents
from tapeway.providers.paths import owner

TABLE = RouteTable({"tools": Route("tools", "https://mcp.example")})


def events() -> EndpointEvents:
    address = resolve(TABLE, owner, "/@c/tools/sse", RequestFields(()))
    way = WaysBack(TABLE, owner).of(address, "https://mcp.example", "http://127.0.0.1:8080", {})
    return EndpointEvents(way)


def led(stream: bytes, size: int) -> bytes:
    found = events()
    pieces = [found.feed(stream[at : at + size]) for at in range(0, len(stream), size)]
    return b"".join([*pieces, found.finish()])


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"/messages/?session_id=a", b"/@c/tools/messages/?session_id=a"),
        (b"https://mcp.example/m?s=a", b"http://127.0.0.1:8080/@c/tools/m?s=a"),
        (b"https://other.example/m", b"https://other.example/m"),
        (b"?sessionId=a", b"?sessionId=a"),
    ],
)
def test_the_endpoint_leads_back_and_nothing_else_changes(
    end: bytes, size: int, data: bytes, expected: bytes
) -> None:
    lines = [
        b": ping",
        b"",
        b"event: endpoint",
        b"data: %s",
        b"",
        b"event: message",
        b"data: /x",
        b"",
    ]
    stream = end.join([*lines, b"data: /y", b"", b""])

    assert led(stream.replace(b"%s", data), size) == stream.replace(b"%s", expected)


@pytest.mark.parametrize(
    "stream",
    [
        b"event:endpoint\ndata:/m\n\n",
        b"\n: hi\nretry: 10\nevent: endpoint\ndata: /m\n\n",
        b"\xef\xbb\xbfevent: endpoint\nid: 1\ndata: /m\n\n",
        b"event: message\nevent: endpoint\ndata: /m\n\n",
    ],
)
def test_other_fields_may_stand_before_the_name_of_the_event(stream: bytes) -> None:
    assert b"/@c/tools/m\n" in led(stream, 3)


@pytest.mark.parametrize(
    "stream",
    [
        b"event: endpoints\ndata: /m\n\n",
        b"event: message\ndata: endpoint /m\n\n",
        b"event: endpoint\ndata: /m\ndata: /n\n\n",
        b"event: endpoint\ndata: /m",
        b"event: endpoint\n\ndata: /m\n\n",
        b"event: endpoint\nevent: message\ndata: /m\n\n",
        b"\xef\xbb\xbfdata: /m\nevent: endpoint\ndata: /n\n\n",
    ],
)
def test_every_other_event_and_an_unfinished_one_stay(stream: bytes) -> None:
    assert led(stream, 4) == stream


def test_a_whole_event_is_sent_at_once_and_a_long_one_is_not_held() -> None:
    found = events()

    assert (
        found.feed(b"event: endpoint\ndata: /m\n\neve") == b"event: endpoint\ndata: /@c/tools/m\n\n"
    )
    assert found.feed(b"nt: endpoint\n") == b""
    assert found.feed(b"b" * MOST_HELD) == b"event: endpoint\n" + b"b" * MOST_HELD


def test_an_event_that_is_no_endpoint_leaves_in_the_pieces_in_which_it_came() -> None:
    found = events()
    pieces = [b"data: on", b"e\n", b"\nda", b"ta: two\r\n\r", b"\nevent: message\nda", b"ta: x\n\n"]

    assert [found.feed(piece) for piece in pieces[:2]] == pieces[:2]
    assert b"".join(found.feed(piece) for piece in pieces[2:]) == b"".join(pieces[2:])
