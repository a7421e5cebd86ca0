"""Faults among the messages of a replay: where they stand, and what goes out there."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tapeway.core.model.faults import STATUSES, Fault
from tapeway.core.streams.faults import CALL_EVENT, NEEDS_REST
from tapeway.core.websocket.messages import Close, WebSocketMessage

FAILED = "The server had an error while processing the request"
_INTERNAL_ERROR = 1011
_CLOSES = {"end": Close(1000), "reset": Close(0)}


@dataclass(slots=True)
class MessageFault:
    """Sends a replay's messages with a fault behind the first `at` messages; `error` goes out there.

    `say` returns False once the client has left, `begin` and `send` also once the fault has ended the
    answer. `sent` messages went out before.
    """

    fault: Fault
    at: int
    error: WebSocketMessage | None = None
    say: Callable[[WebSocketMessage], Awaitable[bool]] = field(init=False)
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep
    sent: int = 0

    @property
    def seconds(self) -> float:
        """How long a pause is."""
        return self.fault.seconds or 0.0

    @property
    def close(self) -> Close | None:
        """How the connection ends there; None where it stays."""
        if self.fault.do == "close":
            return Close(self.fault.code or _INTERNAL_ERROR)
        return _CLOSES.get(self.fault.do)

    async def begin(self) -> bool:
        """Before the first message."""
        return self.sent < self.at or await self._happen(None)

    async def send(self, message: WebSocketMessage) -> bool:
        """Send the next message of the recording."""
        do, number = self.fault.do, self.sent
        if do == "slow" and number >= self.at:
            await self.pause(self.seconds)
        half = message._replace(data=message.data[: len(message.data) // 2])
        self.sent += 1
        if not await self.say(half if do == "corrupt" and number == self.at else message):
            return False
        return self.sent != self.at or await self._happen(message)

    async def _happen(self, last: WebSocketMessage | None) -> bool:
        if self.fault.do == "stall":
            await self.pause(self.seconds)
        again = last if self.fault.do == "repeat" else self.error
        if again is not None and not await self.say(again):
            return False
        return self.close is None and self.error is None and self.fault.do != "timeout"


def lay_on_messages(
    fault: Fault, messages: Sequence[WebSocketMessage], error: WebSocketMessage | None
) -> MessageFault | None:
    """The fault at its place among recorded messages, None if they do not come to that place.

    `error` is the protocol's message for an error, None where it has none.
    """
    kind, count = fault.place
    if kind == "tool_call":
        calls = [place for place, each in enumerate(messages, 1) if CALL_EVENT.search(each.data)]
        count = calls[0] if calls else len(messages) + 1
    if fault.do == "corrupt":
        rest = range(count, len(messages))
        count = next((at for at in rest if messages[at].data.startswith(b"{")), len(messages))
    is_bytes, is_end = kind == "bytes" and count > 0, count == len(messages)
    if fault.do in STATUSES or is_bytes or count > len(messages):
        return None
    if (is_end and fault.do in NEEDS_REST) or (fault.do == "error_event" and error is None):
        return None
    return MessageFault(fault, count, error if fault.do == "error_event" else None)
