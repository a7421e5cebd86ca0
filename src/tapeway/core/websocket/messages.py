"""Messages of a WebSocket connection: fragments joined, compression undone, no pings."""

from dataclasses import dataclass
from typing import NamedTuple

MISS_CLOSE = 4424
"""The close code after a miss that ends the connection (RFC 6455 section 7.4.2)."""


class WebSocketMessage(NamedTuple):
    """One whole message; `data` of a text message is UTF-8.

    A tuple, since a connection has thousands of messages: a frozen dataclass takes longer to make.
    """

    data: bytes
    binary: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """How a connection ended. Code 0 means that no close frame came."""

    code: int
    reason: str = ""
    by_client: bool = False

    @property
    def aborted(self) -> bool:
        """Whether no close frame came."""
        return self.code == 0
