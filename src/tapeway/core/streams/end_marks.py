"""Whether a streamed response is complete, and how much may be sent before the end is known.

Clients take a protocol's end mark for the end and leave, even if the transport sends more, and
most take a stream without the mark for a whole one. The mark is therefore searched for as the bytes
arrive: everything before the mark may be sent; the mark and the rest must wait.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from tapeway.core.http.content_codings import Decoder
from tapeway.core.json_text import Json
from tapeway.core.model.messages import ResponseHead, Verdict

EndMark = Literal["", "end", "error", "cut"]
"""The end of a stream: not seen, an end mark, an error, or half a frame."""

MAX_EVENT = 4 * 1024 * 1024
"""A longer event or line is not scanned: events may be as long as a body."""

_BODILESS = frozenset({204, 205, 304})


@dataclass(frozen=True, slots=True)
class EndMarks:
    """The end marks of server-sent events in one dialect.

    `texts` are beginnings of an event's data, `names` are names or JSON types of events, `errors`
    the names or JSON types of events that report an error.
    """

    texts: frozenset[bytes] = frozenset()
    names: frozenset[str] = frozenset()
    errors: frozenset[str] = frozenset({"error"})


def reports_failure(value: Json) -> bool:
    """Whether the JSON of an event or a line says that the service has failed.

    Servers of models put an error object, or its text, into the member `error`; vLLM's older
    error object stands alone. An answer of JSON-RPC has an `error` too: it is the answer to a call.
    """
    if not isinstance(value, Mapping) or "jsonrpc" in value:
        return False
    error = value.get("error")
    is_error = isinstance(error, Mapping | str) and bool(error)
    return is_error or value.get("object") == "error"


class EndScanner(Protocol):
    """Searches for the mark in a decoded body. The result does not depend on how the bytes are
    split.
    """

    @property
    def releasable(self) -> int:
        """How many bytes from the beginning may be sent before the end is known; it never shrinks."""

    @property
    def mark(self) -> EndMark: ...

    def feed(self, data: bytes) -> None: ...

    def finish(self) -> None:
        """Treat what has arrived as the whole body."""


class EndDetector:
    """Watches one response to its end.

    `length` is the announced one: its last byte is an end too. A coded body is scanned through
    `decoder`, and held back from the piece with the mark. `expected` means that the protocol ends
    every stream with a mark. `closed` means that only the end of the connection ends the body.
    """

    def __init__(
        self,
        scanner: EndScanner | None = None,
        decoder: Decoder | None = None,
        *,
        expected: bool = False,
        length: int | None = None,
        closed: bool = False,
    ) -> None:
        self._scanner = scanner
        self._decoder = decoder
        self._expected = expected
        self._length = length
        self._closed = closed
        self._size = self._plain_size = 0
        self._releasable = 0
        self.reads = scanner is not None
        """Whether the verdict depends on the body."""
        self.stays_open = False
        """Whether the stream may go on after an error: then an error holds nothing back."""

    @property
    def expects_mark(self) -> bool:
        """Whether the protocol ends every stream with a mark."""
        return self._expected

    @property
    def releasable(self) -> int:
        """How many bytes from the beginning may be sent before the recording is durable."""
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
        if self.stays_open and self._scanner is not None and self._scanner.mark == "error":
            self._releasable = self._size

    def finish(self) -> Verdict:
        """The verdict on a response whose transport ended in good order."""
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
        if not self._expected:
            return "complete"
        return "truncated" if self._closed else "unmarked"

    def _feed_decoded(self, scanner: EndScanner, plain: bytes) -> None:
        scanner.feed(plain)
        self._plain_size += len(plain)
        if not scanner.mark and (scanner.releasable == self._plain_size or self._is_unreadable()):
            self._releasable = self._size

    def _is_unreadable(self) -> bool:
        return self._decoder is not None and self._decoder.finish() in ("bad", "large")


def has_no_body(method: str, head: ResponseHead) -> bool:
    """Whether the response ends with its head, without a body."""
    return method.upper() == "HEAD" or head.status in _BODILESS or head.length == 0
