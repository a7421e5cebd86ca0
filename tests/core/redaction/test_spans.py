"""Places in a text, exchanged without moving any border."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import ChunkTimes
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.spans import (
    PLACEHOLDER,
    Span,
    merge_spans,
    move_chunk_ends,
    moved_ends,
    replace_spans,
    replacement,
)

A, B = Secret("a", b"a"), Secret("b", b"b")


def test_spans_apart_come_in_order() -> None:
    spans = [Span(5, 6, A), Span(0, 2, B), Span(2, 5, A)]

    assert merge_spans(spans) == [spans[1], spans[2], spans[0]]


def test_overlapping_spans_are_one_named_after_the_first_and_longest() -> None:
    assert merge_spans([Span(2, 9, A), Span(1, 4, B), Span(1, 6, A)]) == [Span(1, 9, A)]
    assert merge_spans([Span(1, 4, B, b'"'), Span(1, 4, A)]) == [Span(1, 4, B, b'"')]


def test_a_further_piece_that_overlaps_a_secret_is_one_with_it() -> None:
    assert merge_spans([Span(0, 4, None), Span(2, 6, A)]) == [Span(0, 6, A)]


@given(st.binary(max_size=40), st.lists(st.integers(0, 40), max_size=6), st.data())
def test_pieces_keep_their_number_and_all_that_is_outside_the_spans(
    whole: bytes, cuts: list[int], data: st.DataObject
) -> None:
    ends = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=6)))
    spans = [Span(start, end, A) for start, end in zip(ends[::2], ends[1::2], strict=False)]
    borders = [0, *sorted(min(at, len(whole)) for at in cuts), len(whole)]
    lengths = [end - start for start, end in pairwise(borders)]
    ends = [*moved_ends(lengths, [(span.start, span.end, 2) for span in spans])]
    expected = whole
    for span in reversed(spans):
        expected = expected[: span.start] + b"<>" + expected[span.end :]

    assert replace_spans(whole, [(span, b"<>") for span in spans]) == expected
    assert (len(ends), ends[-1]) == (len(lengths), len(expected))
    assert ends == sorted(ends)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int, int]]]:
    pieces = draw(st.lists(st.integers(1, 12), min_size=1, max_size=15))
    borders = sorted(draw(st.sets(st.integers(0, sum(pieces)), max_size=8)))
    starts = borders[: len(borders) // 2 * 2]
    spans = [
        (start, end, draw(st.integers(0, 10)))
        for start, end in zip(starts[::2], starts[1::2], strict=True)
    ]
    return pieces, spans


@given(bodies())
def test_a_secret_goes_to_the_chunk_it_began_in(
    body: tuple[list[int], list[tuple[int, int, int]]],
) -> None:
    pieces, spans = body
    # Byte by byte: the placeholder takes the place of the first one, the others are empty.
    octets = [1] * sum(pieces)
    for start, end, size in spans:
        octets[start:end] = [size, *[0] * (end - start - 1)]
    borders = pairwise([0, *accumulate(pieces)])
    sizes = [sum(octets[start:end]) for start, end in borders]

    found = move_chunk_ends(ChunkTimes((float(at), n) for at, n in enumerate(pieces)), spans)

    assert list(found) == [(float(at), size) for at, size in enumerate(sizes) if size]


SALT = b"run"


@pytest.mark.parametrize("size", range(6, 60))
def test_a_placeholder_of_any_length_is_known_by_its_form_and_shows_where_it_ends(
    size: int,
) -> None:
    value = b"x" * size
    hidden = replacement(Span(0, size, Secret("api_key", value)), SALT, keeps_length=True)

    assert len(hidden) == size
    for behind in (b"", b"a", b"-", b".", b"_"):
        match = PLACEHOLDER.match(hidden + behind)
        assert match is not None
        assert match[0] == hidden


@pytest.mark.parametrize("size", [12, 18, 19, 30, 200])
def test_a_placeholder_of_a_kept_length_has_the_letters_of_the_secret_s_other_placeholders(
    size: int,
) -> None:
    span = Span(0, size, Secret("api_key", b"x" * size))
    letters = replacement(span, SALT)[-8:]

    assert replacement(span, SALT, keeps_length=True).endswith(letters)


@pytest.mark.parametrize("size", [8, 9, 12, 18, 19, 40])
def test_placeholders_of_one_length_tell_secrets_apart(size: int) -> None:
    spans = [Span(0, size, Secret("x", b"%0*d" % (size, number))) for number in range(40)]

    assert len({replacement(span, SALT, keeps_length=True) for span in spans}) == 40


def test_few_octets_leave_no_room_for_letters() -> None:
    spans = [Span(0, size, Secret("x", b"x" * size)) for size in range(1, 6)]

    hidden = [replacement(span, SALT, keeps_length=True) for span in spans]
    assert hidden == [b"*" * size for size in range(1, 6)]
