"""What is said about a base URL that was forgiven: once, with the right one."""

import logging

from tapeway.core.http.routing import Slip, SlipKind

log = logging.getLogger(__name__)


class Slips:
    """Tells of each kind of slip on each route once."""

    def __init__(self) -> None:
        self._told: set[tuple[str, SlipKind]] = set()

    def tell(self, route: str, slip: Slip, root: str) -> None:
        """Warn of a slip below `root`, unless that was done. Nothing of the request is shown."""
        if (route, slip.kind) in self._told:
            return
        self._told.add((route, slip.kind))
        log.warning(
            "%s: %s, which is forgiven: give it %s, or %s if it adds the rest itself",
            *(route, slip.fault, root + slip.prefix, root),
        )
