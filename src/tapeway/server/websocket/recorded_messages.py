"""Reads the messages of a recorded turn or session."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tapeway.body_files import with_body_in_memory
from tapeway.cooperative import Yielding
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Response
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.request_protocol import AnswerMessage, RequestProtocol
from tapeway.core.websocket.session_lines import read_session
from tapeway.core.websocket.sessions import SessionRecording

_REMEMBERED = 64
_MOST_REMEMBERED = 256 * 1024
"""The largest turn in memory, in bytes; a longer turn is read for each replay."""
_READ_AT_ONCE = 128 * 1024
"""A longer session is read in a thread."""


@dataclass(frozen=True, slots=True)
class RecordedConnection:
    """A recording's facts about the connection. A session names the dialect, a turn has a lane."""

    lane: bytes = b""
    binary: frozenset[int] = frozenset()
    """Which messages of a turn were binary."""
    subprotocol: str | None = None
    session: str | None = None
    is_described: bool = False
    """Whether the recording has these facts: a handwritten recording may have none."""


def about_connection(interaction: Interaction) -> RecordedConnection:
    """The part of `metadata` about the connection, checked: people may edit a recording."""
    websocket = interaction.metadata.get("websocket")
    if not isinstance(websocket, dict):
        return RecordedConnection()
    lane, subprotocol, session = map(websocket.get, ("lane", "subprotocol", "session"))
    binary = websocket.get("binary")
    return RecordedConnection(
        lane.encode() if isinstance(lane, str) else b"",
        frozenset(index for index in binary if isinstance(index, int))
        if isinstance(binary, list)
        else frozenset(),
        subprotocol if isinstance(subprotocol, str) else None,
        session if isinstance(session, str) else None,
        is_described=True,
    )


Mark = AnswerMessage | None
"""The effect of a message on the turns of a connection; None, for most messages, is no effect."""
Said = tuple[WebSocketMessage, Mark]
"""A message for the client, and its mark."""
Came = tuple[int, bool, Mark]
"""The recorded length of a message, whether the message is binary, and the mark."""


def mark_of(protocol: RequestProtocol, message: WebSocketMessage) -> Mark:
    """The mark of a message."""
    answer = protocol.read_answer(message)
    return answer if answer is not None and answer.is_mark else None


def said_of(line: bytes, arrived: Came) -> Said:
    """The message of a recorded line, with the mark."""
    _, binary, mark = arrived
    return WebSocketMessage(line[:-1], binary), mark


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """The messages of a turn with their times, and the lane of the request."""

    lane: bytes
    times: Sequence[float]
    messages: Sequence[Said]

    def asked_in(self, lane: bytes, protocol: RequestProtocol) -> Sequence[Said]:
        """The messages with the lane of the asking request."""
        if lane == self.lane:
            return self.messages
        return [
            (protocol.echoed(message, self.lane, lane), what) for message, what in self.messages
        ]


class RecordedTurns:
    """Reads recorded turns, and remembers the latest."""

    def __init__(self) -> None:
        self._read: OrderedDict[int, tuple[Response, RecordedTurn]] = OrderedDict()

    async def read(self, interaction: Interaction, protocol: RequestProtocol) -> RecordedTurn:
        """The turn of a recording. Raises StoreError if its body cannot be read."""
        response = interaction.response
        known = self._read.get(id(response))
        # While the response is held here, no second response can have the same identity.
        if known is not None:
            return known[1]
        about = about_connection(interaction)
        messages = messages_of(await with_body_in_memory(response))
        for place in about.binary:
            if place in range(len(messages)):
                messages[place] = messages[place]._replace(binary=True)
        messages_with_marks = [(message, mark_of(protocol, message)) for message in messages]
        turn = RecordedTurn(about.lane, response.arrivals().times, messages_with_marks)
        if response.size <= _MOST_REMEMBERED:
            self._read[id(response)] = response, turn
            if len(self._read) > _REMEMBERED:
                self._read.popitem(last=False)
        return turn


async def recorded_session(interaction: Interaction) -> SessionRecording:
    """The session of a recording. Raises StoreError if its body cannot be read."""
    response = await with_body_in_memory(interaction.response)
    if response.size > _READ_AT_ONCE:
        return await asyncio.to_thread(read_session, _lines(response))
    return read_session(_lines(response))


def messages_of(response: Response) -> list[WebSocketMessage]:
    """The messages in a body in memory, as if none were binary."""
    return [WebSocketMessage(line.removesuffix(b"\n")) for line in response.pieces()]


def _lines(response: Response) -> Iterator[tuple[float, bytes]]:
    yielding = Yielding()
    for timed in zip(response.arrivals().times, response.pieces(), strict=True):
        yielding.step()
        yield timed
