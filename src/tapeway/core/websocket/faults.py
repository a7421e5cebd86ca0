"""Where a fault stands among the messages of a replay, and what goes out there."""

from collections.abc import Sequence
from dataclasses import dataclass

from tapeway.core.model.faults import STATUSES, Fault
from tapeway.core.streams.faults import CALL_EVENT
from tapeway.core.websocket.messages import Close, WebSocketMessage

_NORMAL, _INTERNAL_ERROR = 1000, 1011
_CLOSES = {"end": Close(_NORMAL), "reset": Close(0)}
_NEEDS_REST = frozenset({"end", "slow", "corrupt"})


@dataclass(frozen=True, slots=True)
class MessageFault:
    """A fault behind so many messages of the service; `error` goes out there, and ends the answer."""

    fault: Fault
    at: int
    error: WebSocketMessage | None = None

    @property
    def close(self) -> Close | None:
        """How the connection ends there; None where it stays."""
        if self.fault.do == "close":
            return Close(self.fault.code or _INTERNAL_ERROR)
        return _CLOSES.get(self.fault.do)

    @property
    def goes_on(self) -> bool:
        """Whether further messages follow."""
        return self.close is None and self.error is None and self.fault.do != "timeout"

    @property
    def seconds(self) -> float:
        """How long a pause is."""
        return self.fault.seconds or 0.0

    def written(self, number: int, message: WebSocketMessage) -> WebSocketMessage:
        """The message of this number as it goes out."""
        if self.fault.do != "corrupt" or number != self.at:
            return message
        return message._replace(data=message.data[: len(message.data) // 2])


def lay_on_messages(
    fault: Fault, messages: Sequence[WebSocketMessage], error: WebSocketMessage | None
) -> MessageFault | None:
    """The fault at its place among recorded messages, None if they do not come to that place.

    `error` is the protocol's message for an error, None where it has none.
    """
    kind, count = fault.place
    if kind == "tool_call":
        calls = [place for place, each in enumerate(messages) if CALL_EVENT.search(each.data)]
        count = calls[0] + 1 if calls else len(messages) + 1
    if fault.do == "corrupt":
        rest = range(count, len(messages))
        count = next((at for at in rest if messages[at].data.startswith(b"{")), len(messages))
    is_bytes = kind == "bytes" and count > 0
    is_end = count == len(messages) and fault.do in _NEEDS_REST
    if fault.do in STATUSES or is_bytes or is_end or count > len(messages):
        return None
    if fault.do != "error_event":
        return MessageFault(fault, count)
    return None if error is None else MessageFault(fault, count, error)
