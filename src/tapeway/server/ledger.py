"""What is written down of every request that was served."""

from collections.abc import Callable

from tapeway.core.cassette.plan import NOTHING, Explanation
from tapeway.core.model.control import Outcome
from tapeway.core.model.messages import Request
from tapeway.engine.broker import Broker
from tapeway.engine.journal import Entries, ServedRequest
from tapeway.server.visit import Visit


class Ledger:
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
        visit: Visit,
        outcome: Outcome,
        status: int,
        index: int | None,
        message: str | None = None,
        explanation: Explanation = NOTHING,
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

    def path(self, visit: Visit) -> str:
        """The target as people may see it, with every credential taken out."""
        if visit.path is None:
            target = visit.address.target if visit.address else visit.raw.raw_path
            if not target.startswith("/"):
                # An address, where a password may stand before the host.
                target = target.rpartition("@")[2]
            request = Request("", visit.raw.method, target, visit.raw.raw_headers)
            redactor = self._broker.recogniser.redactor(self._salt, request)
            visit.path = redactor.target(target)
        return visit.path
