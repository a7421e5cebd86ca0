"""The messages of a recorded turn or session, as they are read back."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tapeway.body_files import with_body_in_memory
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Response
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.session_lines import read_session
from tapeway.core.websocket.sessions import SessionRecording

TimedMessage = tuple[float, WebSocketMessage]
"""A message, and when it came, in milliseconds since the request."""


@dataclass(frozen=True, slots=True)
class RecordedConnection:
    """What a recording says of its connection. A session names its dialect, a turn has a lane."""

    lane: bytes = b""
    binary: frozenset[int] = frozenset()
    """Which messages of a turn were binary."""
    subprotocol: str | None = None
    session: str | None = None


def about_connection(interaction: Interaction) -> RecordedConnection:
    """What is in `metadata`, where people may have changed it."""
    found = interaction.metadata.get("websocket")
    if not isinstance(found, dict):
        return RecordedConnection()
    lane, subprotocol, session = map(found.get, ("lane", "subprotocol", "session"))
    binary = found.get("binary")
    return RecordedConnection(
        lane.encode() if isinstance(lane, str) else b"",
        frozenset(each for each in binary if isinstance(each, int))
        if isinstance(binary, list)
        else frozenset(),
        subprotocol if isinstance(subprotocol, str) else None,
        session if isinstance(session, str) else None,
    )


async def recorded_turn(interaction: Interaction) -> Sequence[TimedMessage]:
    """The messages of a turn. Raises StoreError if its body cannot be read."""
    binary = about_connection(interaction).binary
    response = await with_body_in_memory(interaction.response)
    return [
        (at_ms, replace(message, binary=number in binary))
        for number, (at_ms, message) in enumerate(messages_of(response))
    ]


async def recorded_session(interaction: Interaction) -> SessionRecording:
    """The session of a recording. Raises StoreError if its body cannot be read."""
    return read_session(_lines(await with_body_in_memory(interaction.response)))


def messages_of(response: Response) -> list[TimedMessage]:
    """The messages in a body in memory."""
    return [(at_ms, WebSocketMessage(line.removesuffix(b"\n"))) for at_ms, line in _lines(response)]


def _lines(response: Response) -> list[tuple[float, bytes]]:
    return [*zip(response.arrivals().times, response.pieces(), strict=True)]
