"""A recorded exchange: the interaction, interactions of unknown kinds, and fingerprints."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tapeway.core.digests import update
from tapeway.core.json_text import Json
from tapeway.core.model.messages import BodyFile, Failure, Request, Response
from tapeway.core.model.values import value_class


@value_class
class Interaction:
    """One recorded exchange. `index` names it in the cassette, and stays while loaded."""

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
    """Set for a recorded failure; its response has status 0 if not even a head arrived."""
    again: int = 0
    """How many more times in a row the service gave this answer to equal requests."""

    @property
    def has_large_bodies(self) -> bool:
        """Whether a body is in a separate file."""
        return self.request.file is not None or self.response.file is not None


@dataclass(frozen=True, slots=True)
class ForeignInteraction:
    """An interaction of a kind other than HTTP, stored unchanged.

    `exchange` expresses the call over HTTP, if possible, for look-up and replay; the document is
    stored.
    """

    index: int
    document: Mapping[str, Json]
    exchange: Interaction | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.exchange is not None and self.exchange.index != self.index:
            object.__setattr__(self, "exchange", replace(self.exchange, index=self.index))


AnyInteraction = Interaction | ForeignInteraction


def exchange_of(item: AnyInteraction) -> Interaction | None:
    """The interaction as an HTTP exchange, None if it has none."""
    return item if isinstance(item, Interaction) else item.exchange


def large_bodies(item: AnyInteraction) -> tuple[BodyFile, ...]:
    """The bodies of an interaction that are in files, or are to be moved into files."""
    if not isinstance(item, Interaction) or not item.has_large_bodies:
        return ()
    return tuple([file for file in (item.request.file, item.response.file) if file is not None])


def replace_large_bodies(
    item: AnyInteraction, change: Callable[[BodyFile], BodyFile]
) -> AnyInteraction:
    """The interaction with each of its large bodies changed; the same object where it has none."""
    if not isinstance(item, Interaction) or not item.has_large_bodies:
        # True for nearly every recording; loading asks each.
        return item
    request, response = item.request, item.response
    if request.file is not None:
        request = replace(request, file=change(request.file))
    if response.file is not None:
        response = replace(response, file=change(response.file))
    return replace(item, request=request, response=response)


def fingerprint(item: Interaction) -> str:
    """Sixteen hex digits that identify an interaction even under a new index.

    The digits depend on request and response, without times, headers, host and index. The cost is
    a hash over both bodies, unless they are in files.
    """
    request, response = item.request, item.response
    parts = (
        request.method.encode("utf-8", "surrogateescape"),
        request.url.partition("://")[2].partition("/")[2].encode("utf-8", "surrogateescape"),
        _body(request),
        b"%d" % response.status,
        _body(response),
        item.failure.kind.encode() if item.failure is not None else b"",
    )
    digest = hashlib.sha256()
    for part in parts:
        # A length keeps two different divisions of the same bytes apart.
        digest.update(b"%d:" % len(part))
        update(digest, part)
    return digest.hexdigest()[:16]


def _body(message: Request | Response) -> bytes:
    return message.body if message.file is None else message.file.digest.encode()
