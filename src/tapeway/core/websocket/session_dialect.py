"""What a session replay has to know of a protocol that has no requests.

`plain_session.PLAIN` serves protocols that nobody has described; the dialects of providers are in
`providers/websocket`.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from tapeway.core.websocket.messages import WebSocketMessage


@dataclass(frozen=True, slots=True)
class AudioPiece:
    """A piece of audio or video that a client streams; how the stream is cut does not matter."""

    data: bytes
    format: str = ""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message of the client.

    A control message is compared. Audio is compared by its length and format. A sign of life (the
    answer to a ping inside JSON) is not compared, and nothing waits for one.
    """

    kind: Literal["control", "audio", "sign of life"] = "control"
    audio: tuple[AudioPiece, ...] = ()
    ends_audio: bool = False
    """Whether the service takes the audio before this message for a whole."""


CONTROL = SentMessage()


class SessionDialect(Protocol):
    """One protocol of sessions; it keeps nothing of a connection."""

    @property
    def name(self) -> str:
        """Its name in recordings and logs."""

    @property
    def ignored(self) -> frozenset[str]:
        """Members of client messages that do not count, such as how far a player has come."""

    def read_sent(self, message: WebSocketMessage) -> SentMessage:
        """What a message of the client is."""

    def is_identifier(self, steps: tuple[str | int, ...], container: object) -> bool:
        """Whether clients draw the text at this place, which is a member of `container`."""

    def error_message(self, code: str, text: str) -> WebSocketMessage | None:
        """An error of the proxy in the protocol's own form, None where it has none."""
