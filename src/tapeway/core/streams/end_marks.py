"""Whether a streamed response is complete, and how much may be sent before the end is known.

Clients take a protocol's end mark for the end and leave, even if the transport sends more, and
most take a stream without the mark for a whole one. The mark is therefore searched for as the bytes
arrive: everything before the mark may be sent; the mark and the rest must wait.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Protocol

from tapeway.core.http.content_codings import Decoder
from tapeway.core.json_text import Json, json_object, peek_json
from tapeway.core.model.messages import ResponseHead, Verdict
from tapeway.core.streams.aws_frames import FrameEvents
from tapeway.core.streams.events import Event, EventReader, LineEvents, SseEvents

EndMark = Literal["", "end", "error", "cut"]
"""The end of a stream: not seen, an end mark, an error, or half a frame."""

_BODILESS = frozenset({204, 205, 304})


class Ends(Protocol):
    """How the streams of one framing end in one dialect."""

    @property
    def reader(self) -> type[EventReader]:
        """The reader of the framing."""

    @property
    def hints(self) -> Sequence[bytes]:
        """An event without any of these is no mark; without hints any event may be one."""

    @property
    def is_certain(self) -> bool:
        """Whether every stream of the dialect has a mark."""

    def mark_of(self, event: Event) -> EndMark:
        """What a complete event says, or one that the end of the body cuts off."""

    def may_end(self, begun: Event) -> bool:
        """Whether an event that has begun like this can end the stream; it is held back then."""


@dataclass(frozen=True)
class EndMarks:
    """The end marks of server-sent events in one dialect.

    `texts` are beginnings of an event's data, `names` are names or JSON types of events, `errors`
    the names or JSON types of events that report an error.
    """

    texts: frozenset[bytes] = frozenset()
    names: frozenset[str] = frozenset()
    errors: frozenset[str] = frozenset({"error"})
    reader: ClassVar[type[EventReader]] = SseEvents

    @cached_property
    def hints(self) -> Sequence[bytes]:
        return (*self.texts, *[mark.encode() for mark in self.names | self.errors])

    @property
    def is_certain(self) -> bool:
        return bool(self.texts or self.names)

    def mark_of(self, event: Event) -> EndMark:
        data = event.data
        named = self._names(event.name)
        if event.failed:
            return "error"
        if data.startswith(tuple(self.texts)) or (named and event.whole):
            return "error" if event.name in self.errors else "end"
        if not named and not any(hint in data for hint in self.hints):
            return ""
        value = peek_json(data)
        if not isinstance(value, dict):
            return ""
        kinds = {event.name, str(value.get("type"))}
        if reports_failure(value) or kinds & self.errors:
            return "error"
        return "end" if kinds & self.names else ""

    def may_end(self, begun: Event) -> bool:
        # What comes behind the data comes too late: the data may have been sent.
        if not begun.lines or self._names(begun.early):
            return True
        if self.names and not begun.early:
            # Only the data shows the kind of the event.
            return True
        first = begun.lines[0][1]
        return any(first.startswith(text) or text.startswith(first) for text in self.texts)

    def _names(self, name: str) -> bool:
        return name in self.names or name in self.errors


@dataclass(frozen=True, slots=True)
class LastLine:
    """The line that ends a stream of JSON lines has this member with this value.

    Without a member no line is the last.
    """

    member: str = ""
    value: Json = None
    reader: ClassVar[type[EventReader]] = LineEvents
    hints: ClassVar[Sequence[bytes]] = ()
    is_certain: ClassVar[bool] = True

    def mark_of(self, event: Event) -> EndMark:
        is_telling = self.member or b'"error"' in event.data
        document = json_object(event.data) if is_telling else None
        if document is None:
            return ""
        if reports_failure(document):
            return "error"
        return "end" if self.member and document.get(self.member) == self.value else ""

    def may_end(self, begun: Event) -> bool:
        # Half a line is useless, whatever it is.
        return True


@dataclass(frozen=True, slots=True)
class LastFrame:
    """The frame that ends a stream of AWS frames has this event, "" where none is known.

    With None the frames carry a model's stream, and the model's last event ends it.
    """

    event: str | None = ""
    reader: ClassVar[type[EventReader]] = FrameEvents
    hints: ClassVar[Sequence[bytes]] = ()

    @property
    def is_certain(self) -> bool:
        return self.event is not None

    def mark_of(self, event: Event) -> EndMark:
        if event.failed:
            return "error"
        # A client may not notice that half a frame is missing.
        if not event.whole or (not event.lines and self.event != ""):
            return "cut"
        if self.event is not None:
            return "end" if self.event and event.name == self.event else ""
        match peek_json(event.data):
            case {"bytes": {"type": "error"}}:
                return "error"
            case {"bytes": {"type": "message_stop"} | {"amazon-bedrock-invocationMetrics": _}}:
                return "end"
        return ""

    def may_end(self, begun: Event) -> bool:
        return True


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


class EndScanner:
    """Searches for the mark in a decoded body. The result does not depend on how the bytes are split.

    `releasable` is how many bytes from the beginning may be sent before the end is known; it never
    shrinks.
    """

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self._reader = ends.reader(ends.hints)
        self.releasable = 0
        self.mark: EndMark = ""

    def feed(self, data: bytes) -> None:
        """Scan the next piece."""
        if self.mark:
            return
        for event in self._reader.feed(data):
            if mark := self._ends.mark_of(event):
                self.mark = mark
                held = event.start if self._ends.may_end(event) else event.closes
                self.releasable = max(self.releasable, held)
                return
        begun = self._reader.begun
        is_held = begun is not None and self._ends.may_end(begun)
        free = begun.start if begun is not None and is_held else self._reader.size
        self.releasable = max(self.releasable, free)

    def finish(self) -> None:
        """Treat what has arrived as the whole body. Some bodies lack the last line's end."""
        if not self.mark:
            self.mark = next(map(self._ends.mark_of, self._reader.finish()), "")


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
