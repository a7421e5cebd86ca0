"""What is done with the requests to come."""

from tapeway.admin.console import Console
from tapeway.admin.payloads import ModeChange, ModeInForce, ModeQuery, Nothing
from tapeway.admin.route import Call


async def get_mode(console: Console, call: Call[ModeQuery, Nothing]) -> ModeInForce:
    """The mode in force, or with `cassette` the one of that cassette."""
    name = call.query.cassette
    mode = console.broker.mode if name is None else console.broker.mode_of(name)
    return ModeInForce(mode=mode, cassette=name)


async def put_mode(console: Console, call: Call[Nothing, ModeChange]) -> ModeInForce:
    """Put a mode in force, for all cassettes or for one alone; a change starts a new take."""
    change = call.body
    laggards = await console.broker.set_mode(change.mode, change.cassette)
    return ModeInForce(mode=change.mode, cassette=change.cassette, laggards=list(laggards))
