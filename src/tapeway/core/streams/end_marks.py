"""Whether a streamed response came whole, and how much of it may go on before that is known.

Clients take a protocol's end mark for the end and leave, whatever the transport still has to say,
and most take a stream that lacks it for a whole one. So the mark is looked for as the bytes come:
everything before it may go on, the mark itself and what follows it must wait.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from tapeway.core.http.content_codings import Decoder
from tapeway.core.model.messages import ResponseHead, Verdict

EndMark = Literal["", "end", "error", "cut"]
"""What a stream said about its end: nothing, that this is it, an error, half a frame."""

MAX_EVENT = 4 * 1024 * 1024
"""A longer event or line is not looked into: one may be as long as a body."""

_BODILESS = frozenset({204, 205, 304})


@dataclass(frozen=True, slots=True)
class EndMarks:
    """What ends a stream of server-sent events in one dialect.

    `texts` are what the data of events begin with, `names` the names or JSON types of events,
    `errors` the names of events that report one.
    """

    texts: frozenset[bytes] = frozenset()
    names: frozenset[str] = frozenset()
    errors: frozenset[str] = frozenset()


class EndScanner(Protocol):
    """Looks for the mark in a plain body. The same bytes give the same result however they are cut."""

    @property
    def releasable(self) -> int:
        """How many bytes from the beginning on may go before the end is known; it never shrinks."""

    @property
    def mark(self) -> EndMark: ...

    def feed(self, data: bytes) -> None: ...

    def finish(self) -> None:
        """Take what has come for all there is."""


class EndDetector:
    """Watches one response to its end.

    `length` is the one that was announced: its last byte is an end too. A coded body is looked into
    through `decoder`, and is held back from the piece on that holds the mark. `expected` says that
    a stream without a mark was cut.
    """

    def __init__(
        self,
        scanner: EndScanner | None = None,
        decoder: Decoder | None = None,
        *,
        expected: bool = False,
        length: int | None = None,
    ) -> None:
        self._scanner = scanner
        self._decoder = decoder
        self._expected = expected
        self._length = length
        self._size = self._plain_size = 0
        self._releasable = 0

    @property
    def releasable(self) -> int:
        """How many bytes from the beginning on may go before the recording is durable."""
        if self._length is None:
            return self._releasable
        return min(self._releasable, max(0, self._length - 1))

    def feed(self, data: bytes) -> None:
        """Look at the next piece."""
        self._size += len(data)
        if self._scanner is None:
            self._releasable = self._size
        elif self._decoder is None:
            self._scanner.feed(data)
            self._releasable = self._scanner.releasable
        else:
            self._feed_decoded(self._scanner, self._decoder.feed(data))

    def finish(self) -> Verdict:
        """How a response ended whose transport ended in good order."""
        if self._scanner is None or self._is_unreadable():
            return "complete"
        self._scanner.finish()
        match self._scanner.mark:
            case "end":
                return "marked"
            case "error":
                return "error"
            case "cut":
                return "truncated"
        return "truncated" if self._expected else "complete"

    def _feed_decoded(self, scanner: EndScanner, plain: bytes) -> None:
        scanner.feed(plain)
        self._plain_size += len(plain)
        if not scanner.mark and (scanner.releasable == self._plain_size or self._is_unreadable()):
            self._releasable = self._size

    def _is_unreadable(self) -> bool:
        return self._decoder is not None and self._decoder.finish() in ("bad", "large")


def has_no_body(method: str, head: ResponseHead) -> bool:
    """Whether no body follows, so that a response has ended when its head is out."""
    return method.upper() == "HEAD" or head.status in _BODILESS or head.length == 0
