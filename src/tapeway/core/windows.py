"""A stream of any length with its secrets exchanged, looked at through a window of bounded size."""

from collections.abc import Callable, Sequence

from tapeway.core.spans import Span, apart, exchanged

_BEHIND = 64
"""What has already gone out and still tells whether a secret may begin behind it."""


class Windowed:
    """Takes pieces of a text and gives pieces back, at most `bound` bytes and one piece later.

    The result is that of the whole text at once, as long as no secret is longer than the bound.
    """

    def __init__(
        self,
        find: Callable[[bytes, int], Sequence[Span]],
        stand_in: Callable[[Span], bytes],
        bound: int,
    ) -> None:
        self._find, self._stand_in, self._bound = find, stand_in, bound + _BEHIND
        self._held = b""
        self._gone = 0
        self._base = 0
        self.exchanged: list[tuple[int, int, int]] = []
        """Of each secret exchanged: where it began and ended, and how much stands for it."""

    def feed(self, piece: bytes) -> bytes:
        """What is certain after this piece; often nothing."""
        self._held += piece
        limit = len(self._held) - self._bound
        # Only from twice the bound on, so that small pieces are not searched again and again.
        return self._let_out(limit) if limit - self._gone >= self._bound else b""

    def finish(self) -> bytes:
        """The rest."""
        return self._let_out(len(self._held))

    def _let_out(self, cut: int) -> bytes:
        spans = apart(self._find(self._held, self._gone))
        for span in spans:
            if span.start < cut < span.end:
                cut = span.start
        settled = [(span, self._stand_in(span)) for span in spans if span.end <= cut]
        for span, instead in settled:
            self.exchanged.append((self._base + span.start, self._base + span.end, len(instead)))
        [mended] = exchanged(self._held[:cut], [cut], settled)
        out = mended[self._gone :]
        behind = max(0, cut - _BEHIND)
        self._held, self._gone = self._held[behind:], cut - behind
        self._base += behind
        return out
