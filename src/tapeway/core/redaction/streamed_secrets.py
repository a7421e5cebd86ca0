"""Finds secrets that a response spreads over many events, lines or frames.

A model writes a key like any other text: a few letters in each event. None of the pieces is a key,
so the texts that they make are searched, and what is found is mapped back to the body.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from tapeway.core.redaction.spans import Span, merge_spans
from tapeway.core.streams.aws_frames import AwsFrame
from tapeway.core.streams.streamed_texts import Piece, StreamedTexts


def find(texts: StreamedTexts, search: Callable[[bytes], Sequence[Span]]) -> Iterator[Span]:
    """The spans of the body that together make up what `search` finds in its texts.

    The first span of each has its secret, the further ones none.
    """
    for pieces in texts:
        whole = "".join([text for text, _, _ in pieces])
        if spans := merge_spans(search(whole.encode("utf-8", "surrogateescape"))):
            yield from _spans_in_body(texts, pieces, spans)


def _spans_in_body(
    texts: StreamedTexts, pieces: Sequence[Piece], spans: Sequence[Span]
) -> Iterator[Span]:
    encoded = [text.encode("utf-8", "surrogateescape") for text, _, _ in pieces]
    ends = list(accumulate(map(len, encoded)))
    for span in spans:
        secret = span.secret
        for at in range(bisect_right(ends, span.start), bisect_left(ends, span.end) + 1):
            text, holder, name = pieces[at]
            if holder is None:
                continue
            before = ends[at] - len(encoded[at])
            start, characters = texts.written(text, holder, name)
            first = start + _length(characters, encoded[at][: max(span.start - before, 0)])
            end = start + _length(characters, encoded[at][: span.end - before])
            yield Span(first, end, secret)
            secret = None


def frames_with_texts(
    frames: Iterable[AwsFrame], texts: Iterable[bytes]
) -> list[tuple[Span, bytes]]:
    """The frames to replace, and what they are with these texts."""
    return [
        (Span(frame.start, frame.end, None), frame.with_text(text))
        for frame, text in zip(frames, texts, strict=True)
        if text != frame.text
    ]


def _length(characters: list[str], text: bytes) -> int:
    """How many bytes of the body this beginning of a piece takes."""
    count = len(text.decode("utf-8", "surrogateescape"))
    return len("".join(characters[:count]).encode("utf-8", "surrogateescape"))
