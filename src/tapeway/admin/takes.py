"""The life of the active cassette: put in, rewound, taken out."""

from tapeway.admin.console import Console
from tapeway.admin.payloads import (
    Ejected,
    Ejection,
    Inserted,
    Insertion,
    Nothing,
    Rewinding,
    Takes,
)
from tapeway.admin.reports import reported
from tapeway.admin.route import Call


async def insert(console: Console, call: Call[Nothing, Insertion]) -> Inserted:
    """Make a cassette the active one, in a new take; it is created at its first recording."""
    name = call.body.cassette
    laggards = await console.broker.insert(name, call.body.mode)
    return Inserted(cassette=name, mode=console.broker.mode_of(name), laggards=list(laggards))


async def eject(console: Console, call: Call[Nothing, Ejection]) -> Ejected:
    """Wait for recordings in flight, write the cassette's final file, take it out, and report."""
    name = call.body.cassette or console.broker.active
    await console.instances.quiet(name)
    report = await console.broker.eject(name, prune=call.body.prune)
    return Ejected(
        cassettes=[reported(report)],
        upstream_connections=console.instances.connections,
        laggards=list(report.laggards),
    )


async def rewind(console: Console, call: Call[Nothing, Rewinding]) -> Takes:
    """Start a new take: every recording is to be replayed from the first on, nothing is used."""
    laggards = await console.broker.rewind(call.body.cassette)
    return Takes(takes=console.broker.takes, laggards=list(laggards))
