"""Requests are the same however their bytes are cut."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.front_without_socket import read


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request's bytes and what they mean."""

    wire: bytes
    meaning: tuple[str, str, bytes]


def request(method: str, path: str, body: bytes, chunk: int, before: bytes) -> SentRequest:
    """A request with a body in chunks of this size, or under a length for 0."""
    lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: a", b"X-Words: GET / FOO bar"]
    if chunk:
        lines.append(b"Transfer-Encoding: chunked")
        pieces = [body[at : at + chunk] for at in range(0, len(body), chunk)]
        framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    else:
        lines += [b"Content-Length: %d" % len(body)] if body else []
        framed = body
    wire = before + b"\r\n".join([*lines, b"", framed])
    return SentRequest(wire, (method, path, body))


METHODS = ("GET", "POST", "get", "FOO", "G", "SETUP", "M" * 64)
BODIES = (b"", b"hello", b"GET / HTTP/1.1\r\n\r\n", b"0\r\n\r\n", b"\r\n\r\n", b"a b" * 100)
REQUESTS = st.lists(
    st.builds(
        request,
        st.sampled_from(METHODS),
        st.sampled_from(["/", "/a?b=%20", "/" + "x" * 200]),
        st.sampled_from(BODIES),
        st.sampled_from([0, 0, 1, 7, 100]),
        st.sampled_from([b"", b"\r\n", b"\r\n\r\n"]),
    ),
    min_size=1,
    max_size=8,
)
CUTS = st.lists(st.integers(0, 2000), max_size=12)


def segments(wire: bytes, cuts: list[int]) -> Iterator[bytes]:
    """The wire cut at these places."""
    places = sorted({0, len(wire), *(cut % len(wire) for cut in cuts)})
    for start, end in pairwise(places):
        yield wire[start:end]


@given(REQUESTS, CUTS, st.booleans())
def test_cutting_changes_nothing(sent: list[SentRequest], cuts: list[int], at_once: bool) -> None:
    wire = b"".join(message.wire for message in sent)

    assert read(*segments(wire, cuts), at_once=at_once) == (
        [message.meaning for message in sent],
        False,
    )


@pytest.mark.parametrize("junk", [b"\x16\x03\x01\x02\x00\x01", b"M" * 65, b"\r", b"GE", b"\n"])
def test_what_is_no_request_yet_gives_none(junk: bytes) -> None:
    assert read(junk) == ([], junk not in (b"\r", b"GE", b"\n"))
