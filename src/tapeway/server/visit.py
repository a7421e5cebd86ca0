"""One request on its way, filled in as it becomes known."""

from dataclasses import dataclass

from aiohttp import web

from tapeway.core.http.routing import RequestAddress
from tapeway.core.http.sdk_conventions import Attempt
from tapeway.core.model.messages import BodyFile, Request


@dataclass(slots=True)
class Visit:
    """What the journal will say of a request, and where to answer it."""

    raw: web.BaseRequest
    id: str
    at: float
    started: float
    cassette: str
    address: RequestAddress | None = None
    path: str | None = None
    key: bytes | None = None
    note: str | None = None
    """What is to be said of it besides how it ended."""

    @property
    def attempt(self) -> Attempt | None:
        if self.address is None or self.key is None:
            return None
        # Some SDKs begin to count with the second try.
        return Attempt(self.key, self.address.attempt or 1)

    def request(self, address: RequestAddress, body: bytes | BodyFile) -> Request:
        """What goes to the upstream."""
        return Request(
            route=address.route.name,
            method=self.raw.method,
            target=address.target,
            headers=self.raw.raw_headers,
            body=body if isinstance(body, bytes) else b"",
            base=address.route.url or "",
            file=body if isinstance(body, BodyFile) else None,
        )
