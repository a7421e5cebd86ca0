"""What an exchange keeps and what it leaves out."""

from dataclasses import replace
from typing import Any

import pytest

from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request, ResponseHead
from tapeway.formats.errors import FormatFault
from tapeway.formats.native import http_exchange
from tests.formats.exchanges import interaction

FRAMING: Headers = (
    (b"Content-Length", b"5"),
    (b"Transfer-Encoding", b"chunked"),
    (b"Connection", b"x-hop"),
    (b"X-Hop", b"1"),
)


def test_framing_is_neither_written_nor_read() -> None:
    framed = _with_head(interaction(), headers=((b"A", b"1"), *FRAMING))
    document: Any = http_exchange.encode(framed)

    assert document["response"]["headers"] == {"A": "1"}

    document["response"]["headers"] |= {"content-length": "99", "transfer-encoding": "chunked"}
    assert http_exchange.decode(document, 0, ()).response.headers == ((b"A", b"1"),)


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 304)])
def test_the_length_of_a_body_that_is_not_sent_is_kept(method: str, status: int) -> None:
    bodyless = _with_head(interaction(chunks=()), headers=FRAMING, status=status)
    bodyless = replace(bodyless, request=replace(bodyless.request, method=method))

    found = http_exchange.decode(http_exchange.encode(bodyless), 0, ())

    assert found.response.headers == ((b"Content-Length", b"5"),)


@pytest.mark.parametrize(
    ("base", "target", "url", "boundary"),
    [
        ("https://h", "/v1?a=1", "https://h/v1?a=1", "https://h"),
        ("https://H:443/base", "/v1", "https://H:443/base/v1", "https://h"),
        ("http://h:443", "/v1", "http://h:443/v1", "http://h:443"),
        ("http://u:p@[::1]:8080/a/b", "/", "http://u:p@[::1]:8080/a/b/", "http://[::1]:8080"),
        ("", "/v1#x", "/v1#x", None),
    ],
)
def test_a_url_is_told_apart_again(base: str, target: str, url: str, boundary: str | None) -> None:
    document: Any = http_exchange.encode(interaction(base=base, target=target))

    assert document["request"]["url"] == url
    assert document.get("boundary") == boundary
    found = http_exchange.decode(document, 0, ()).request
    assert (found.base, found.target) == (base, target)


@pytest.mark.parametrize(
    ("url", "target"),
    [("https://h", "/"), ("https://h?a=1", "/?a=1"), ("https://h/x#part", "/x")],
)
def test_a_url_of_another_tool_becomes_the_target_that_was_sent(url: str, target: str) -> None:
    document: Any = http_exchange.encode(interaction())
    document["request"] = {"method": "GET", "url": url}

    assert http_exchange.decode(document, 0, ()).request == Request(
        "", "GET", target, base="https://h"
    )


def test_a_reason_as_the_requests_library_stores_it_is_read() -> None:
    document: Any = http_exchange.encode(interaction())
    document["response"]["reason"] = "Fine"
    del document["response"]["reason_phrase"]

    assert http_exchange.decode(document, 0, ()).response.head.reason == "Fine"


@pytest.mark.parametrize(
    "broken",
    [
        {"status": 101},
        {"status": 600},
        {"reason": "a\r\nb"},
        {"version": "HTP"},
        {"headers": ((b"A B", b"1"),)},
    ],
)
def test_what_could_not_be_read_again_is_not_written(broken: dict[str, Any]) -> None:
    with pytest.raises(FormatFault):
        http_exchange.encode(_with_head(interaction(), **broken))


def test_durations_are_written_to_the_microsecond() -> None:
    document = http_exchange.encode(replace(interaction(), latency_ms=1.23456))

    assert document["latency_ms"] == 1.235


def _with_head(recorded: Interaction, **changes: Any) -> Interaction:
    head: ResponseHead = replace(recorded.response.head, **changes)
    return replace(recorded, response=replace(recorded.response, head=head))
