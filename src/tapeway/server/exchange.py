"""One request on its way, filled in as it becomes known."""

from dataclasses import dataclass

from aiohttp import web

from tapeway.core.http.routing import RequestAddress
from tapeway.core.matching.key import RequestRedaction
from tapeway.core.model.messages import Request


@dataclass(slots=True)
class Exchange:
    """What the journal will say of a request, and where to answer it."""

    raw: web.BaseRequest
    id: str
    at: float
    """Seconds since the epoch; `started` is on the monotonic clock."""
    started: float
    cassette: str = ""
    address: RequestAddress | None = None
    path: str | None = None
    """The target with every credential taken out; None until somebody has done that."""
    key: bytes | None = None
    note: str | None = None
    """What is to be said of it besides how it ended."""


def redacted_path(exchange: Exchange, redaction: RequestRedaction, salt: str) -> str:
    """The target of a request that was not decided on, as people may see it."""
    target = exchange.address.target if exchange.address else exchange.raw.raw_path
    if not target.startswith("/"):
        # An address, where a password may stand before the host.
        target = target.rpartition("@")[2]
    request = Request("", exchange.raw.method, target, exchange.raw.raw_headers)
    return redaction.redactor(salt, request).target(target)
