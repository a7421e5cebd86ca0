"""How things stand, on one page."""

from tapeway.admin.console import Console
from tapeway.admin.payloads import Counts, LoadedCassette, Status, StoreStatus
from tapeway.admin.route import Plain


async def status(console: Console, call: Plain) -> Status:
    """Version, mode, store, counters, and the cassettes that are in."""
    broker = console.broker
    loaded = [
        LoadedCassette(
            name=each.name,
            mode=broker.mode_of(each.name),
            interactions=each.interactions,
            unused=each.unused,
        )
        for each in await broker.loaded()
    ]
    return Status(
        version=console.version,
        mode=broker.mode,
        cassette=broker.active,
        store=StoreStatus(url=broker.store.url, durability=broker.store.durability),
        takes=broker.takes,
        upstream_connections=console.instances.connections,
        counts=Counts.model_validate(dict(broker.counts)),
        cassettes=loaded,
    )
