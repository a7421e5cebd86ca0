"""The values that travel, and the chunks that a body came in."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import (
    ChunkTimes,
    Request,
    Response,
    ResponseHead,
)


@pytest.mark.parametrize("pieces", [(), (b"",), (b"one",), (b"one", b"", b"two")])
def test_a_body_is_all_its_chunks(pieces: tuple[bytes, ...]) -> None:
    response = Response.of_chunks(ResponseHead(200), [(piece, 0.0) for piece in pieces])

    assert response.body == b"".join(pieces)


def test_a_response_has_the_status_and_fields_of_its_head() -> None:
    response = Response(ResponseHead(418, headers=((b"a", b"b"),)))

    assert (response.status, response.headers) == (418, ((b"a", b"b"),))


@pytest.mark.parametrize(
    ("base", "url"), [("https://host/base", "https://host/base/x?y=1"), ("", "/x?y=1")]
)
def test_a_url_is_the_base_and_the_target_as_they_are(base: str, url: str) -> None:
    assert Request("openai", "GET", "/x?y=1", base=base).url == url


@given(st.lists(st.tuples(st.binary(max_size=3), st.floats(0, 9)), max_size=6))
def test_chunks_come_back_as_they_came_without_empty_ones(
    chunks: list[tuple[bytes, float]],
) -> None:
    response = Response.of_chunks(ResponseHead(200), chunks)
    whole = [chunk for chunk in chunks if chunk[0]]

    assert [*zip(response.pieces(), response.arrivals().times, strict=True)] == whole
    assert len(response.chunk_times) == (len(whole) if len(whole) > 1 else 0)
    assert response.with_arrivals(response.arrivals()) == response


@given(st.lists(st.lists(st.integers(1, 9), max_size=4), max_size=4))
def test_chunks_that_came_together_have_one_time(segments: list[list[int]]) -> None:
    grown = ChunkTimes()
    for at, lengths in enumerate(segments):
        grown.extend(float(at), lengths)

    assert grown == ChunkTimes(
        [(float(at), n) for at, segment in enumerate(segments) for n in segment]
    )


def test_a_copy_does_not_grow() -> None:
    grown = ChunkTimes([(1.0, 2)])
    copied = grown.copy()
    grown.add(3.0, 4)

    assert (list(copied), len(grown)) == ([(1.0, 2)], 2)


def test_a_head_finds_the_first_value_of_a_field_whatever_its_case() -> None:
    head = ResponseHead(
        200, headers=((b"Set-Cookie", b"a"), (b"DATE", b"d"), (b"set-cookie", b"b"))
    )

    assert head.value(b"set-cookie") == b"a"
    assert head.value(b"date") == b"d"
    assert head.value(b"location") is None
    assert head.names == (b"Set-Cookie", b"DATE", b"set-cookie")


def test_a_head_with_other_fields_does_not_find_the_former_ones() -> None:
    head = ResponseHead(200, headers=((b"Date", b"d"),))
    assert head.value(b"date") == b"d"

    changed = replace(head, headers=((b"Server", b"s"), (b"Date", b"e")))

    assert (changed.value(b"date"), changed.value(b"server")) == (b"e", b"s")
    assert changed.names == (b"Server", b"Date")
    assert head == ResponseHead(200, headers=((b"Date", b"d"),))
