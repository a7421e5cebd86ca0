"""The messages of a WebSocket connection, as both sides see them: joined, plain, without pings."""

from dataclasses import dataclass
from typing import NamedTuple

MISS_CLOSE = 4424
"""The close code after a miss whose protocol goes on no further (RFC 6455 section 7.4.2)."""


class WebSocketMessage(NamedTuple):
    """One whole message; `data` of a text message is UTF-8.

    A tuple, since a connection has thousands of messages, and a frozen dataclass takes longer to make.
    """

    data: bytes
    binary: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """How a connection ended. Code 0 is a connection that was lost without a close frame."""

    code: int
    reason: str = ""
    by_client: bool = False

    @property
    def aborted(self) -> bool:
        """Whether no close frame came."""
        return self.code == 0
