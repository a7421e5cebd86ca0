"""The values that travel, and pieces that keep their borders where secrets in them change length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import (
    ChunkTimes,
    Request,
    Response,
    ResponseChunk,
    ResponseHead,
    move_chunk_ends,
)
from tapeway.core.redaction.spans import Span, replace_spans

lengths = st.lists(st.integers(1, 12), min_size=1, max_size=15)


@pytest.mark.parametrize("pieces", [(), (b"",), (b"one",), (b"one", b"", b"two")])
def test_a_body_is_all_its_chunks(pieces: tuple[bytes, ...]) -> None:
    response = Response(ResponseHead(200), tuple([ResponseChunk(piece) for piece in pieces]))

    assert response.body == b"".join(pieces)


def test_a_response_has_the_status_and_fields_of_its_head() -> None:
    response = Response(ResponseHead(418, headers=((b"a", b"b"),)))

    assert (response.status, response.headers) == (418, ((b"a", b"b"),))


@pytest.mark.parametrize(
    ("base", "url"), [("https://host/base", "https://host/base/x?y=1"), ("", "/x?y=1")]
)
def test_a_url_is_the_base_and_the_target_as_they_are(base: str, url: str) -> None:
    assert Request("openai", "GET", "/x?y=1", base=base).url == url


@st.composite
def bodies(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int, int]]]:
    pieces = draw(lengths)
    borders = sorted(draw(st.sets(st.integers(0, sum(pieces)), max_size=8)))
    starts = borders[: len(borders) // 2 * 2]
    spans = [
        (start, end, draw(st.integers(0, 10)))
        for start, end in zip(starts[::2], starts[1::2], strict=True)
    ]
    return pieces, spans


@given(bodies())
def test_the_borders_are_those_a_body_in_memory_gets(
    body: tuple[list[int], list[tuple[int, int, int]]],
) -> None:
    pieces, spans = body
    whole = b"." * sum(pieces)
    in_memory = replace_spans(
        whole, pieces, [(Span(start, end, None), b"#" * size) for start, end, size in spans]
    )

    found = move_chunk_ends(
        ChunkTimes((float(at), length) for at, length in enumerate(pieces)), spans
    )

    assert list(found) == [(float(at), len(piece)) for at, piece in enumerate(in_memory) if piece]
