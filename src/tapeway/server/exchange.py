"""The state of one request while the proxy serves it."""

from dataclasses import dataclass

from aiohttp import web

from tapeway.core.http.routing import RequestAddress
from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.model.messages import Request
from tapeway.loop_guard import Passage


@dataclass(slots=True)
class Exchange:
    """A request in progress: its connection, and what its journal entry will contain."""

    raw: web.BaseRequest
    id: str
    at: float
    """Seconds since the epoch; `started` is on the monotonic clock."""
    started: float
    cassette: str = ""
    take: int | None = None
    """The take of the slot it came through."""
    address: RequestAddress | None = None
    path: str | None = None
    """The redacted target, None until it is computed."""
    key: bytes | None = None
    passage: Passage | None = None
    """Its way through to an upstream."""
    note: str | None = None
    """An addition to the message of the journal entry."""


def redacted_path(exchange: Exchange, redaction: RequestRedaction, salt: str) -> str:
    """The redacted target of a request on which the broker did not decide, for the journal."""
    target = exchange.address.target if exchange.address else exchange.raw.raw_path
    if not target.startswith("/"):
        # An absolute URL or an authority, which may have a password before the host.
        target = target.rpartition("@")[2]
    request = Request("", exchange.raw.method, target, exchange.raw.raw_headers)
    return redaction.redactor(salt, request).target(target)
