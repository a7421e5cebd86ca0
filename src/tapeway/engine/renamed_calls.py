"""Replays of JSON-RPC under the names that the asking client gave to its calls."""

import asyncio
from dataclasses import replace

from tapeway.body_files import KIB, with_body_in_memory
from tapeway.core.cassette.plan import Replay
from tapeway.core.json_rpc import AskedNames, asked_names
from tapeway.core.model.messages import Request
from tapeway.core.streams.renamed_calls import for_asker, names_in

_AT_ONCE = 256 * KIB
"""Larger bodies are changed in a thread."""


async def for_this_client(replay: Replay, asked: Request) -> tuple[Replay, AskedNames]:
    """The replay with the names in the request, and these names. Raises StoreError."""
    recorded = replay.interaction
    calls = names_in(asked)
    names = asked_names(names_in(recorded.request), calls) if calls else AskedNames()
    if not names.differ:
        return replay, names
    whole = await with_body_in_memory(recorded.response)
    if whole.size <= _AT_ONCE:
        response = for_asker(whole, names)
    else:
        response = await asyncio.to_thread(for_asker, whole, names)
    if response is not whole:
        replay = replay._replace(interaction=replace(recorded, response=response))
    return replay, names
