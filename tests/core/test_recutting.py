"""Pieces keep their borders where secrets in them became longer or shorter."""

from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import Cuts, recut
from tapeway.core.redaction.spans import Span, exchanged

lengths = st.lists(st.integers(1, 12), min_size=1, max_size=15)


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
    in_memory = exchanged(
        whole, pieces, [(Span(start, end, None), b"#" * size) for start, end, size in spans]
    )

    found = recut(Cuts((float(at), length) for at, length in enumerate(pieces)), spans)

    assert list(found) == [(float(at), len(piece)) for at, piece in enumerate(in_memory) if piece]
