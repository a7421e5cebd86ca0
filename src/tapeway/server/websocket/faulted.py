"""Sends the messages of a replay with a fault at its place."""

from collections.abc import Awaitable, Callable

from tapeway.core.websocket.faults import MessageFault
from tapeway.core.websocket.messages import WebSocketMessage


class FaultySender:
    """Counts the messages that go out; each method returns False once the fault has ended the answer."""

    def __init__(
        self,
        laid: MessageFault,
        send: Callable[[WebSocketMessage], Awaitable[bool]],
        pause: Callable[[float], Awaitable[object]],
        *,
        sent: int = 0,
    ) -> None:
        """`send` returns False once the client has left; so many messages were `sent` before."""
        self._laid = laid
        self._send = send
        self._pause = pause
        self._number = sent

    async def begin(self) -> bool:
        """Before the first message."""
        return self._number < self._laid.at or await self._happen(None)

    async def send(self, message: WebSocketMessage) -> bool:
        """Send the next message of the recording."""
        laid, number = self._laid, self._number
        if laid.fault.do == "slow" and number >= laid.at:
            await self._pause(laid.seconds)
        self._number += 1
        if not await self._send(laid.written(number, message)):
            return False
        return self._number != laid.at or await self._happen(message)

    async def _happen(self, last: WebSocketMessage | None) -> bool:
        laid = self._laid
        if laid.fault.do == "stall":
            await self._pause(laid.seconds)
        again = laid.error or (last if laid.fault.do == "repeat" else None)
        if again is not None and not await self._send(again):
            return False
        return laid.goes_on
