"""Requests and responses as they pass between client, cassette and upstream.

Header names and values are bytes, so that order, case, repeats and unusual octets are preserved. A
response remembers where its chunks ended and when they arrived. A body of more than 1 MiB is in a
file that the message refers to.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Literal, NamedTuple, cast

Headers = tuple[tuple[bytes, bytes], ...]
"""Fields in wire order, names in wire case."""

CredentialHeaders = tuple[tuple[str, str], ...]
"""Header fields that carried a credential, with placeholders for the credentials."""

Framing = Literal["length", "chunked", "close"]
"""How the upstream marked the end of its body (RFC 9112 section 6.3); `close` cannot show a cut."""

Verdict = Literal["", "complete", "marked", "unmarked", "error", "truncated"]
"""How a response ended: whole by its framing, by its protocol's end mark too, by its framing but
without the mark that its protocol has, whole but reporting an error inside a success, or cut; empty
where that is not known (another tool's recording)."""

FailureKind = Literal["cut", "reset", "timeout"]
"""Ended in the middle, broken off without any response, or silent for too long."""

LARGE_BODY = 1024 * 1024
"""A body with more bytes than this is stored in a file."""

FAILURE_MESSAGES: Mapping[FailureKind, str] = {
    "cut": "the upstream broke off in the middle of its answer",
    "reset": "the upstream broke the connection off before it answered",
    "timeout": "the upstream did not answer in time",
}
"""The message in a recording; the error of the live call also names the upstream and what to do."""

_FAILURE_OF_ERROR: Mapping[str, FailureKind] = {
    "upstream_truncated": "cut",
    "upstream_reset": "reset",
    "upstream_timeout": "timeout",
}


@dataclass(frozen=True, slots=True)
class PartDigest:
    """One part of a large multipart body; `digest` is the SHA-256 of its content in hex."""

    name: str | None
    filename: str | None
    content_type: str | None
    digest: str


@dataclass(frozen=True, slots=True)
class BodyFile:
    """A body too large for memory: its file, its size, and its SHA-256 in hex.

    `path` is empty if only size and digest are known, or if `handle` opens the body; `parts` is set
    for a multipart request.
    """

    path: str
    size: int
    digest: str
    parts: tuple[PartDigest, ...] | None = None
    handle: object = field(default=None, compare=False, repr=False)
    """Opens the body, and keeps a temporary file from being deleted while it is referred to."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it is sent to the upstream, without the proxy's own addressing.

    `target` is the raw path and query below `base`, the route's URL; `base` is empty while no
    upstream is configured.
    """

    route: str
    method: str
    target: str
    headers: Headers = ()
    body: bytes = b""
    base: str = ""
    file: BodyFile | None = None
    """Set instead of `body` for a large body."""
    credentials: CredentialHeaders = ()
    """Set for a stored request."""

    @property
    def url(self) -> str:
        return self.base + self.target


class ResponseChunk(NamedTuple):
    """One piece of a body and when it arrived, in milliseconds since the request was sent.

    A stream has thousands: a frozen dataclass takes twice as long to make.
    """

    data: bytes
    at_ms: float = 0.0


def chunks_of(pieces: Iterable[bytes], at_ms: float) -> list[ResponseChunk]:
    """Pieces that arrived together; to call `ResponseChunk` for each takes three times as long."""
    return list(map(_new_chunk, zip(pieces, repeat(at_ms))))


_new_chunk = cast(
    "Callable[[tuple[bytes, float]], ResponseChunk]", partial(tuple.__new__, ResponseChunk)
)
data_of: "Callable[[ResponseChunk], bytes]" = itemgetter(0)
"""The data of a chunk: for many, `map` takes it in a fifth of the time that an attribute takes."""
time_of: "Callable[[ResponseChunk], float]" = itemgetter(1)


class ChunkTimes:
    """When each chunk of a body arrived, in milliseconds, and its length in bytes.

    Packed, since there may be a million. It grows while a body is collected.
    """

    __slots__ = ("_lengths", "_times")

    def __init__(self, pairs: Iterable[tuple[float, int]] = ()) -> None:
        self._times = array("d")
        self._lengths = array("Q")
        for at_ms, length in pairs:
            self.add(at_ms, length)

    def add(self, at_ms: float, length: int) -> None:
        self._times.append(at_ms)
        self._lengths.append(length)

    def __len__(self) -> int:
        return len(self._times)

    def __getitem__(self, index: int) -> tuple[float, int]:
        return self._times[index], self._lengths[index]

    def __iter__(self) -> Iterator[tuple[float, int]]:
        return zip(self._times, self._lengths, strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChunkTimes):
            return NotImplemented
        return self._times == other._times and self._lengths == other._lengths

    def __hash__(self) -> int:
        return hash((self._times.tobytes(), self._lengths.tobytes()))

    def __repr__(self) -> str:
        return f"<{len(self)} chunks of {self.total} bytes>"

    @property
    def total(self) -> int:
        """How many bytes they are together."""
        return sum(self._lengths)


NO_CHUNK_TIMES = ChunkTimes()
"""Those of a response whose body is no file: nothing is ever added to them."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status line and headers of a response; `length` is the announced one, None without one."""

    status: int
    reason: str = ""
    headers: Headers = ()
    framing: Framing = "length"
    version: str = "HTTP/1.1"
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response. With `length` framing the chunks are one piece.

    A large body is in `file`; then `chunks` is empty, and `chunk_times` has the time and the length
    of each.
    """

    head: ResponseHead
    chunks: tuple[ResponseChunk, ...] = ()
    latency_ms: float = 0.0
    file: BodyFile | None = None
    chunk_times: ChunkTimes = NO_CHUNK_TIMES
    verdict: Verdict = ""

    @property
    def status(self) -> int:
        return self.head.status

    @property
    def headers(self) -> Headers:
        return self.head.headers

    @property
    def body(self) -> bytes:
        if len(self.chunks) == 1:
            return self.chunks[0].data
        return b"".join(map(data_of, self.chunks))

    @property
    def size(self) -> int:
        """The bytes of the body, wherever it is."""
        return self.file.size if self.file else sum(map(len, map(data_of, self.chunks)))


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an upstream's response is incomplete; the response has what arrived."""

    kind: FailureKind
    message: str


def failure_of_error(code: str, *, begun: bool) -> Failure | None:
    """The failure to record for an error's code, None for an error of another kind.

    `begun` means that a head had arrived: a reset after that is a truncated response.
    """
    kind = _FAILURE_OF_ERROR.get(code)
    if kind is None:
        return None
    if begun and kind == "reset":
        kind = "cut"
    return Failure(kind, FAILURE_MESSAGES[kind])


def move_chunk_ends(
    chunk_times: ChunkTimes, replaced: Iterable[tuple[int, int, int]]
) -> ChunkTimes:
    """The chunks of a body in which secrets were replaced, with their boundaries preserved.

    `replaced` has in order where each secret began and ended, and the length of its placeholder. A
    boundary inside a secret moves to the end of its placeholder; an empty chunk is joined to the
    next.
    """
    found = ChunkTimes()
    waiting = iter(replaced)
    span = next(waiting, None)
    border = shift = before = 0
    for at_ms, length in chunk_times:
        border += length
        moved = border + shift
        while span is not None and span[0] < border:
            start, end, placeholder_size = span
            moved = start + shift + placeholder_size + max(0, border - end)
            if border < end:
                break
            shift += placeholder_size - (end - start)
            span = next(waiting, None)
        if moved > before:
            found.add(at_ms, moved - before)
            before = moved
    return found
