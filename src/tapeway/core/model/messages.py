"""Requests and responses between client, cassette and upstream.

Header names and values are bytes, so that order, case, repeats and unusual octets are preserved. A
response remembers where its chunks ended and when they arrived. A body of more than 1 MiB is in a
file that the message refers to.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from io import BytesIO
from typing import Literal

from tapeway.core.model.client_login import ClientLogin
from tapeway.core.model.request_fields import Headers as Headers
from tapeway.core.model.request_fields import RequestFields
from tapeway.core.model.values import value_class

WEBSOCKET = "WEBSOCKET"
"""The method of a request that was a message of a WebSocket connection, or that opened a session."""

MESSAGES_TYPE = b"application/x-ndjson"
"""The media type of the answering messages: one on each line, each a chunk."""

CredentialHeaders = tuple[tuple[str, str], ...]
"""Header fields that carried a credential, with placeholders for the credentials."""

Framing = Literal["length", "chunked", "close"]
"""How the upstream marked the end of its body (RFC 9112 section 6.3); `close` cannot show a cut."""

Verdict = Literal["", "complete", "marked", "unmarked", "error", "truncated", "open"]
"""How a response ended: complete by framing; complete with the protocol's end mark; complete without
the end mark; complete with an error inside a success; cut; or not at all, as a stream that stays
open. Empty if unknown (a recording by a different tool)."""

CUT: frozenset[Verdict] = frozenset({"truncated", "open"})
"""Verdicts of responses whose body may end anywhere, also inside a content coding."""

FailureKind = Literal["cut", "reset", "timeout"]
"""Ended in the middle, broken off without any response, or silent for too long."""

CONDITIONAL_STATUSES = frozenset({206, 304, 416})
"""Statuses of answers to requests for a part, or with a condition."""

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
    """A body too large for memory: the file with it, the size in bytes, the SHA-256 in hex.

    `path` is empty if only size and digest are known, or if `handle` opens the body. A multipart
    request has `parts`. `placeholders` are those of the values that were replaced in a recorded
    request's body.
    """

    path: str
    size: int
    digest: str
    parts: tuple[PartDigest, ...] | None = None
    placeholders: tuple[str, ...] = ()
    handle: object = field(default=None, compare=False, repr=False)
    """Opens the body, and keeps a temporary file from being deleted while it is referred to."""

    def copied_to(self, copy: "BodyFile") -> "BodyFile":
        """A copy of the body, with what is known of this one."""
        return replace(copy, parts=self.parts, placeholders=self.placeholders)


@value_class
class Request:
    """A request for the upstream, without the proxy's addressing.

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
    coding: bytes = b""
    """The content coding in which the body of a stored request was sent, where it is stored plain."""
    varied: tuple[str, ...] = ()
    """In a stored request: the fields, in lower case, that decide the answer (`Vary`)."""
    edition: int = field(default=1, compare=False)
    """The edition of the list of deciding fields: the recorder's, or for a received request the current one."""
    login: ClientLogin | None = field(default=None, compare=False, repr=False)
    """The login of the client's connection; None for a request of no connection."""
    read: RequestFields | None = field(default=None, compare=False, repr=False)
    """The header, if it was read before; copies of a request take it over."""

    @property
    def fields(self) -> RequestFields:
        """The header, read once."""
        read = self.read
        if read is None or read.headers is not self.headers:
            read = RequestFields(self.headers)
            object.__setattr__(self, "read", read)
        return read

    @property
    def url(self) -> str:
        return self.base + self.target

    @property
    def kind(self) -> Literal["http", "websocket"]:
        """Of which kind its recording is."""
        return "websocket" if self.method == WEBSOCKET else "http"


class ChunkTimes:
    """When each chunk of a body arrived, in milliseconds, and its length in bytes; none is empty.

    Packed, since there may be a million. It grows while a body is collected.
    """

    __slots__ = ("lengths", "times")

    def __init__(self, pairs: Iterable[tuple[float, int]] = ()) -> None:
        self.times = array("d")
        self.lengths = array("Q")
        for at_ms, length in pairs:
            self.add(at_ms, length)

    def add(self, at_ms: float, length: int) -> None:
        """Add a chunk. An empty chunk is left out, because it would end the body on the wire."""
        if length:
            self.times.append(at_ms)
            self.lengths.append(length)

    def extend(self, at_ms: float, lengths: list[int]) -> None:
        """Add chunks that arrived together; none may be empty."""
        if len(lengths) == 1:
            self.add(at_ms, lengths[0])
            return
        # A list would be converted number by number.
        self.times += array("d", (at_ms,)) * len(lengths)
        self.lengths.fromlist(lengths)

    def divide(self, body: bytes) -> list[bytes]:
        """The chunks of the body."""
        # A third of what slices cost.
        return list(map(BytesIO(body).read, self.lengths))

    def copy(self) -> "ChunkTimes":
        """A copy of the present state; the original goes on growing."""
        made = ChunkTimes()
        made.times, made.lengths = self.times[:], self.lengths[:]
        return made

    def of_response(self) -> "tuple[float, ChunkTimes]":
        """The `at_ms` and the `chunk_times` of a response with these arrivals."""
        if len(self.times) > 1:
            return 0.0, self
        return self.times[0] if self.times else 0.0, NO_CHUNK_TIMES

    def __len__(self) -> int:
        return len(self.times)

    def __getitem__(self, index: int) -> tuple[float, int]:
        return self.times[index], self.lengths[index]

    def __iter__(self) -> Iterator[tuple[float, int]]:
        return zip(self.times, self.lengths, strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChunkTimes):
            return NotImplemented
        return self.times == other.times and self.lengths == other.lengths

    def __hash__(self) -> int:
        return hash((self.times.tobytes(), self.lengths.tobytes()))

    def __repr__(self) -> str:
        return f"<{len(self)} chunks of {self.total} bytes>"

    @property
    def total(self) -> int:
        """How many bytes they are together."""
        return sum(self.lengths)


NO_CHUNK_TIMES = ChunkTimes()
"""The times of a body in one piece. Never grows."""


@value_class
class ResponseHead:
    """Status line and headers of a response; `length` is the announced length or None."""

    status: int
    reason: str = ""
    headers: Headers = ()
    framing: Framing = "length"
    version: str = "HTTP/1.1"
    length: int | None = None
    _names: tuple[bytes, ...] | None = field(default=None, init=False, repr=False, compare=False)
    """None until somebody asks."""
    _places: Mapping[bytes, int] | None = field(default=None, init=False, repr=False, compare=False)
    """The place of the first field of each name in lower case. None until the first look-up."""

    @property
    def names(self) -> tuple[bytes, ...]:
        """The names of the fields: equal for most answers of a service."""
        names = self._names
        if names is None:
            names = tuple([name for name, _ in self.headers])
            object.__setattr__(self, "_names", names)
        return names

    def value(self, name: bytes) -> bytes | None:
        """The first value of a field, `name` in lower case."""
        places = self._places
        if places is None:
            places = _places_of(self.names)
            object.__setattr__(self, "_places", places)
        at = places.get(name)
        return None if at is None else self.headers[at][1]


@lru_cache(maxsize=1024)
def _places_of(names: tuple[bytes, ...]) -> Mapping[bytes, int]:
    return {names[at].lower(): at for at in range(len(names) - 1, -1, -1)}


@value_class
class Response:
    """A whole response, with the body in `body`, or in `file` if large.

    `chunk_times` has the chunks of a body that came in several. Otherwise `chunk_times` is empty, and
    `at_ms` has the body's arrival, in milliseconds since the request was sent: most answers are
    small, and do not pay for two arrays.
    """

    head: ResponseHead
    body: bytes = b""
    at_ms: float = 0.0
    chunk_times: ChunkTimes = NO_CHUNK_TIMES
    latency_ms: float = 0.0
    file: BodyFile | None = None
    verdict: Verdict = ""
    after_requests: tuple[int, ...] = ()
    """How many requests of its route a stream's take had had when the stream began, then when each of
    its events came, and last when it ended; empty where nothing waits for requests.
    """
    template: bool = False
    """Whether the body, which is JSON, has places that each replay fills."""

    @classmethod
    def of_chunks(
        cls,
        head: ResponseHead,
        chunks: Iterable[tuple[bytes, float]],
        *,
        latency_ms: float = 0.0,
        verdict: Verdict = "",
    ) -> "Response":
        """A response with a body of timed pieces."""
        timed = list(chunks)
        at_ms, chunk_times = ChunkTimes([(at_ms, len(data)) for data, at_ms in timed]).of_response()
        body = b"".join([data for data, _ in timed])
        return cls(head, body, at_ms, chunk_times, latency_ms, verdict=verdict)

    @property
    def status(self) -> int:
        return self.head.status

    @property
    def headers(self) -> Headers:
        return self.head.headers

    @property
    def size(self) -> int:
        """The number of bytes of the body, in memory or in a file."""
        return self.file.size if self.file else len(self.body)

    def pieces(self) -> list[bytes]:
        """The recorded chunks of a body in memory."""
        if self.chunk_times:
            return self.chunk_times.divide(self.body)
        return [self.body] if self.body else []

    def arrivals(self) -> ChunkTimes:
        """The time and the length of each chunk, also for a single chunk."""
        if self.chunk_times or not self.size:
            return self.chunk_times
        return ChunkTimes([(self.at_ms, self.size)])

    def with_arrivals(self, arrivals: ChunkTimes) -> "Response":
        """The response with other chunks."""
        at_ms, chunk_times = arrivals.of_response()
        return replace(self, at_ms=at_ms, chunk_times=chunk_times)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an upstream's response is incomplete; the response has what arrived."""

    kind: FailureKind
    message: str


def failure_of_error(code: str, *, begun: bool) -> Failure | None:
    """The failure to record for an error's code, None for an error without a failure.

    `begun` means that a head had arrived: a reset after that is a truncated response.
    """
    kind = _FAILURE_OF_ERROR.get(code)
    if kind is None:
        return None
    if begun and kind == "reset":
        kind = "cut"
    return Failure(kind, FAILURE_MESSAGES[kind])
