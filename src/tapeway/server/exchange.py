"""One request on its way, filled in as it becomes known.

What is written down of every request that was served.
"""

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from tapeway.core.http.routing import RequestAddress
from tapeway.core.http.sdk_conventions import Attempt
from tapeway.core.misses.miss import NO_EXPLANATION, MissExplanation
from tapeway.core.model.control import Outcome
from tapeway.core.model.messages import BodyFile, Request
from tapeway.engine.broker import Broker
from tapeway.engine.journal import Entries, ServedRequest


@dataclass(slots=True)
class Exchange:
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


class ExchangeLog:
    """Enters visits in the journal, with nothing in them that is a secret."""

    def __init__(
        self, broker: Broker, journal: Entries, clock: Callable[[], float], *, salt: str
    ) -> None:
        self._broker = broker
        self._journal = journal
        self._clock = clock
        self._salt = salt

    def enter(
        self,
        visit: Exchange,
        outcome: Outcome,
        status: int,
        index: int | None,
        message: str | None = None,
        explanation: MissExplanation = NO_EXPLANATION,
    ) -> None:
        address = visit.address
        slip = address.slip if address else None
        said = message or (slip and slip.fault) or None
        if visit.note:
            said = f"{said}; {visit.note}" if said else visit.note
        self._journal.add(
            ServedRequest(
                id=visit.id,
                at=visit.at,
                cassette=visit.cassette,
                route=address.route.name if address else "",
                method=visit.raw.method,
                path=self.path(visit),
                outcome=outcome,
                status=status,
                interaction=index,
                duration_ms=(self._clock() - visit.started) * 1000,
                key=visit.key,
                message=said,
                nearest=explanation.nearest,
                suggestion=explanation.suggestion,
                attempt=(address.attempt or None) if address else None,
            )
        )

    def path(self, visit: Exchange) -> str:
        """The target as people may see it, with every credential taken out."""
        if visit.path is None:
            target = visit.address.target if visit.address else visit.raw.raw_path
            if not target.startswith("/"):
                # An address, where a password may stand before the host.
                target = target.rpartition("@")[2]
            request = Request("", visit.raw.method, target, visit.raw.raw_headers)
            redactor = self._broker.redaction.redactor(self._salt, request)
            visit.path = redactor.target(target)
        return visit.path
