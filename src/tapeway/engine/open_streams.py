"""Live streams that stay open, and the requests beside.

A stream ends when the client leaves or the take ends. Before a wait for the end of live calls, the
streams are closed.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Protocol

from tapeway.core.json_rpc import AskedNames
from tapeway.core.model.control import Control
from tapeway.core.streams.json_rpc import answers_a_question
from tapeway.core.streams.open_streams import EventWatch, LineWatch

PAUSE_S = 1.0
"""After a pause of this length a stream is handed out as it comes, in `buffer` too."""

_MOST_COUNTS = 1024
"""Routes and takes of a cassette; beyond that, the oldest are forgotten."""


class Listeners:
    """Calls those who listen."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[], object]] = {}

    def notify(self) -> None:
        """Call all of them."""
        for listener in [*self._listeners.values()]:
            listener()

    def listening(self, listener: Callable[[], object]) -> AbstractContextManager[None]:
        """Have this called inside the block."""
        return self._listening(listener)

    @contextmanager
    def _listening(self, listener: Callable[[], object]) -> Iterator[None]:
        own = object()
        self._listeners[own] = listener
        try:
            yield
        finally:
            del self._listeners[own]


class RouteRequests(Listeners):
    """Counts the requests of one route in one take, and tells of each."""

    __slots__ = ("answers", "count", "names")

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0
        """How many of them answered what the service had asked."""
        self.count = 0
        self.names = AskedNames()
        """What clients call the calls of JSON-RPC that recordings answered."""

    def add(self, method: str, body: bytes) -> None:
        """Count a request that has come."""
        self.count += 1
        if answers_a_question(method, body):
            self.answers += 1
        if self._listeners:
            self.notify()


class Signal(Listeners):
    """Tells once that something has happened, and at once who listens later."""

    __slots__ = ("is_set",)

    def __init__(self) -> None:
        super().__init__()
        self.is_set = False

    def set(self) -> None:
        """Note that it has happened."""
        if not self.is_set:
            self.is_set = True
            self.notify()

    def listening(self, listener: Callable[[], object]) -> AbstractContextManager[None]:
        """Have this called inside the block, or now where it has happened already."""
        if self.is_set:
            listener()
        return super().listening(listener)


class RequestsBeside:
    """The requests that come while a live answer comes."""

    def __init__(
        self, requests: RouteRequests, began_with: int, clock_ms: Callable[[], float]
    ) -> None:
        """`began_with` is how many requests there were when the answer's own had come."""
        self.counted: list[tuple[float, int]] = [(0.0, began_with)]
        """The number of requests from each moment on, in milliseconds since its own was sent."""
        if requests.count != began_with:
            self.counted.append((clock_ms(), requests.count))
        self._requests = requests
        self._clock_ms = clock_ms

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count those that come inside the block."""
        with self._requests.listening(self._count):
            yield

    def _count(self) -> None:
        self.counted.append((self._clock_ms(), self._requests.count))


class PausingLines:
    """An answer of JSON lines, until it pauses: then it is a stream that stays open."""

    def __init__(self, clock_ms: Callable[[], float]) -> None:
        self._clock_ms = clock_ms
        self._watch = LineWatch()
        self._line_ms = clock_ms()

    @property
    def may_pause(self) -> bool:
        """Whether no line yet is anything but a JSON object."""
        return self._watch.may_stay_open

    @property
    def has_paused(self) -> bool:
        """Whether nothing has come for a while after whole lines."""
        is_quiet = self._clock_ms() - self._line_ms >= PAUSE_S * 1000
        return is_quiet and self._watch.has_whole_lines

    def add(self, pieces: Sequence[bytes]) -> None:
        """Note the next pieces."""
        if self._watch.add(b"".join(pieces)):
            self._line_ms = self._clock_ms()

    @asynccontextmanager
    async def until_pause(self) -> AsyncIterator[None]:
        """Leave the block once it has paused."""
        loop, timer = asyncio.get_running_loop(), None

        def look() -> None:
            nonlocal timer
            if self.has_paused:
                until.reschedule(loop.time())
            elif self.may_pause:
                left_s = PAUSE_S - (self._clock_ms() - self._line_ms) / 1000
                # A line that has begun is waited for.
                timer = loop.call_later(left_s if left_s > 0 else PAUSE_S, look)

        timer = loop.call_later(PAUSE_S, look)
        try:
            async with asyncio.timeout(None) as until:
                yield
        except TimeoutError:
            if not self.has_paused:
                raise
        finally:
            timer.cancel()


class OpenStream:
    """One live stream that stays open."""

    def __init__(
        self, cassette: str, take: int, beside: RequestsBeside, clock_ms: Callable[[], float]
    ) -> None:
        self.cassette = cassette
        self.take = take
        self.closed = False
        """Whether it was closed from here."""
        self._beside = beside
        self._clock_ms = clock_ms
        self._watch = EventWatch()
        self._event_ms = clock_ms()
        self._until: asyncio.Timeout | None = None

    def close(self) -> None:
        """Read no more of it."""
        closed, self.closed = self.closed, True
        if self._until is not None and not closed:
            self._until.reschedule(asyncio.get_running_loop().time())

    def add(self, data: bytes) -> None:
        """Note the next piece."""
        if self._watch.has_event(data):
            self._event_ms = self._clock_ms()

    @asynccontextmanager
    async def while_open(self, hand_out: Callable[[], object]) -> AsyncIterator[None]:
        """Read the stream inside the block; closing the stream leaves the block.

        `hand_out` is called once the stream has paused for a second.
        """
        loop, timer = asyncio.get_running_loop(), None

        def look() -> None:
            nonlocal timer
            left_s = PAUSE_S - (self._clock_ms() - self._event_ms) / 1000
            if left_s <= 0:
                hand_out()
            else:
                timer = loop.call_later(left_s, look)

        timer = loop.call_later(PAUSE_S, look)
        try:
            with self._beside.counting():
                async with asyncio.timeout(0 if self.closed else None) as self._until:
                    yield
        except TimeoutError:
            if not self.closed:
                raise
        finally:
            self._until = None
            timer.cancel()


class ClosedWithItsTake(Protocol):
    """Something open until closed, such as a stream."""

    @property
    def cassette(self) -> str: ...

    @property
    def take(self) -> int: ...

    def close(self) -> None:
        """End it soon."""


class OpenStreams:
    """The open streams of this process, and the requests of each route by take."""

    def __init__(self) -> None:
        self._streams: set[ClosedWithItsTake] = set()
        self._requests: dict[str, dict[tuple[int, str], RouteRequests]] = {}
        self._awaited: Counter[str] = Counter()
        self._draining = False

    def requests(self, cassette: str, take: int, route: str) -> RouteRequests:
        """Those of a route in a take."""
        of_cassette = self._requests.get(cassette)
        if of_cassette is None:
            of_cassette = self._requests[cassette] = {}
        if (requests := of_cassette.get((take, route))) is None:
            if len(of_cassette) >= _MOST_COUNTS:
                # The oldest are those of takes that ended long ago.
                del of_cassette[next(iter(of_cassette))]
            requests = of_cassette[take, route] = RouteRequests()
        return requests

    def forget(self, cassette: str) -> None:
        """Forget the requests of a cassette, whose next one begins a take."""
        self._requests.pop(cassette, None)

    @contextmanager
    def registered(self, stream: ClosedWithItsTake) -> Iterator[None]:
        """Inside the block, the end of the take or a wait for the end closes the stream."""
        self._streams.add(stream)
        if self._draining or self._awaited[stream.cassette]:
            stream.close()
        try:
            yield
        finally:
            self._streams.discard(stream)

    @contextmanager
    def closing(self, cassette: str) -> Iterator[None]:
        """Close the streams of a cassette, and new streams inside the block."""
        self._awaited[cassette] += 1
        self._close(lambda stream: stream.cassette == cassette)
        try:
            yield
        finally:
            self._awaited[cassette] -= 1
            if not self._awaited[cassette]:
                del self._awaited[cassette]

    def drain(self) -> None:
        """Close all streams, and every new stream from now on."""
        self._draining = True
        self._close(lambda stream: True)

    def end_takes(self, control: Control) -> None:
        """Close those whose take is not in force any more."""
        self._close(lambda stream: stream.take not in control.takes_of(stream.cassette))

    def _close(self, is_meant: Callable[[ClosedWithItsTake], bool]) -> None:
        for open_stream in [stream for stream in self._streams if is_meant(stream)]:
            open_stream.close()
