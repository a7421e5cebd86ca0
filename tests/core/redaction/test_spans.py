"""Places in a text, exchanged without moving any border."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.spans import Span, merge_spans, replace_spans

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
    pieces = replace_spans(whole, lengths, [(span, b"<>") for span in spans])
    expected = whole
    for span in reversed(spans):
        expected = expected[: span.start] + b"<>" + expected[span.end :]

    assert b"".join(pieces) == expected
    assert len(pieces) == len(lengths)
