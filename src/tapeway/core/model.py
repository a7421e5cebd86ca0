"""The values that travel between client, cassette and upstream.

Header names and values are bytes, so that order, case, repeats and odd octets are kept as they
came. Bodies are whole; a response remembers where its chunks ended and when they came.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from tapeway.core.cuts import Cuts
from tapeway.core.json_text import Json

Headers = tuple[tuple[bytes, bytes], ...]
"""Fields in wire order, names in wire case."""

Framing = Literal["length", "chunked", "close"]
"""How the upstream marked the end of its body (RFC 9112 section 6.3); `close` cannot show a cut."""

LARGE_BODY = 1024 * 1024
"""A body with more bytes than this lies in a file."""

Verdict = Literal["", "complete", "marked", "error", "truncated"]
"""How an answer ended: whole by its framing, by its protocol's end mark too, whole but reporting an
error inside a success, or cut; empty where nobody looked (another tool's recording)."""

FailureKind = Literal["cut", "reset", "timeout"]
"""Ended in the middle, broken off without any answer, or silent for too long."""


@dataclass(frozen=True, slots=True)
class PartDigest:
    """One part of a large multipart body; `digest` is the SHA-256 of its content in hex."""

    name: str | None
    filename: str | None
    content_type: str | None
    digest: str


@dataclass(frozen=True, slots=True)
class BodyFile:
    """A body too large for memory: where its bytes lie, how many they are, their SHA-256 in hex.

    `path` is empty where only that is known; `parts` is set for a multipart request.
    """

    path: str
    size: int
    digest: str
    parts: tuple[PartDigest, ...] | None = None
    hold: object = field(default=None, compare=False, repr=False)
    """Keeps a temporary file in being as long as somebody refers to it."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it goes to the upstream, with the proxy's own addressing taken off.

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
    """Holds the body instead of `body` when it is large."""
    credentials: tuple[tuple[str, str], ...] = ()
    """Of a request a cassette holds: the headers that carried a credential, each with placeholders."""

    @property
    def url(self) -> str:
        return self.base + self.target


@dataclass(frozen=True, slots=True)
class ResponseChunk:
    """One piece of a body and when it came, in milliseconds since the request was sent."""

    data: bytes
    at_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What an upstream says before its body; `length` is the one it announced, if it did."""

    status: int
    reason: str = ""
    headers: Headers = ()
    framing: Framing = "length"
    version: str = "HTTP/1.1"
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer. Under `length` framing the chunks are one piece.

    A large body lies in `file`; then there are no chunks, and `cuts` holds the time and the length
    of each.
    """

    head: ResponseHead
    chunks: tuple[ResponseChunk, ...] = ()
    latency_ms: float = 0.0
    file: BodyFile | None = None
    cuts: Cuts = field(default_factory=Cuts)
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
        return b"".join([chunk.data for chunk in self.chunks])


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an upstream's answer did not come whole; the response holds what did come."""

    kind: FailureKind
    message: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens an LLM call was charged for, in OpenAI's terms."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class Interaction:
    """One recorded exchange. `index` names it within its cassette and never changes while loaded."""

    index: int
    request: Request
    response: Response
    match_key: str = ""
    latency_ms: float = 0.0
    usage: Mapping[str, Json] | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Json] = field(default_factory=dict)
    stored_keys: tuple[str, ...] = ()
    failure: Failure | None = None
    """Set for a recorded failure; its response has status 0 where not even a head came."""


@dataclass(frozen=True, slots=True)
class ForeignInteraction:
    """An interaction of a kind that HTTP does not carry, kept as it was written.

    `exchange` is the one that says the same over HTTP, where there is one: it is what is found and
    replayed, and the document what is kept.
    """

    index: int
    document: Mapping[str, Json]
    exchange: Interaction | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.exchange is not None and self.exchange.index != self.index:
            object.__setattr__(self, "exchange", replace(self.exchange, index=self.index))


def exchange_of(item: Interaction | ForeignInteraction) -> Interaction | None:
    """What answers over HTTP, None for an interaction that nothing there asks for."""
    return item if isinstance(item, Interaction) else item.exchange


@dataclass(frozen=True, slots=True)
class CassetteHead:
    """What a cassette says about itself, apart from its interactions."""

    created_at: str
    run_id: str
    meta: Mapping[str, Json] = field(default_factory=dict)


Check = Callable[[Interaction | ForeignInteraction, Json, bytes], None]
"""Raises `core.guard.Sighted` when an interaction, its document, or the text that is written shows
a credential."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to ask the upstream for all who ask the same; a later owner has a higher fence."""

    name: str
    key: bytes
    fence: int


@dataclass(frozen=True, slots=True)
class Step:
    """How a recording moves on where its key stands: `moved` makes the new state of the old one."""

    take: int
    key: bytes
    moved: Callable[[bytes | None], bytes]


@dataclass(frozen=True, slots=True)
class Recording:
    """One durable step: an interaction, and the indexes of the earlier ones it takes the place of."""

    interaction: Interaction | ForeignInteraction
    supersedes: tuple[int, ...] = ()
    check: Check | None = field(default=None, compare=False, repr=False)
    """Asked before the interaction is written; a store that does not is no store."""
    lease: Lease | None = None
    """In a shared store: it is written only while this still holds."""
    step: Step | None = field(default=None, compare=False, repr=False)
    """In a shared store: taken together with it."""

    @property
    def exchange(self) -> Interaction:
        """The interaction, where it can be no other than one that HTTP carries."""
        if isinstance(self.interaction, ForeignInteraction):
            raise TypeError("an interaction of another kind has no request of HTTP")
        return self.interaction


@dataclass(frozen=True, slots=True)
class StoredCassette:
    """A cassette as a store holds it."""

    head: CassetteHead
    interactions: tuple[Interaction | ForeignInteraction, ...] = ()


@dataclass(frozen=True, slots=True)
class CassetteStat:
    """What a list of cassettes shows; `modified_at` is ISO 8601 in UTC.

    `mark` is another one after every change, also of a cassette that was removed and came back; it
    says nothing else.
    """

    size_bytes: int
    modified_at: str
    mark: str = ""
