"""Whether tapeway is alive, and whether it can do its work."""

from tapeway.admin.console import Console
from tapeway.admin.payloads import Health, Readiness
from tapeway.admin.route import Plain
from tapeway.errors import Draining


async def healthz(console: Console, call: Plain) -> Health:
    """Alive: the process answers."""
    return Health()


async def readyz(console: Console, call: Plain) -> Readiness:
    """Ready: it is not stopping, all its processes serve, and recordings can be made durable."""
    if console.broker.draining:
        raise Draining("tapeway is stopping")
    if (trouble := console.instances.trouble()) is not None:
        raise trouble
    return Readiness()
