"""The interface by which a session replay reads a protocol without requests.

`plain_session.PLAIN` serves unknown protocols. `providers/websocket` has the dialects of providers.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from tapeway.core.websocket.messages import WebSocketMessage


@dataclass(frozen=True, slots=True)
class AudioPiece:
    """A piece of a client's audio or video; a replay ignores where the client cuts the stream."""

    data: bytes
    format: str = ""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message of the client, no keep-alive.

    A replay compares a control message by content, and audio by length and format.
    """

    kind: Literal["control", "audio"] = "control"
    audio: tuple[AudioPiece, ...] = ()
    ends_audio: bool = False
    """Whether the service treats the audio before this message as complete."""


CONTROL = SentMessage()


class SessionDialect(Protocol):
    """One protocol of sessions, without state of a connection."""

    @property
    def name(self) -> str:
        """The name in recordings and logs."""

    @property
    def ignored(self) -> frozenset[str]:
        """Members of client messages that a comparison skips, such as the position of a player."""

    def read_sent(self, message: WebSocketMessage) -> SentMessage:
        """Classify a message of the client."""

    def is_identifier(self, steps: tuple[str | int, ...], container: object) -> bool:
        """Whether clients draw the text at `steps`, a member of `container`, at random."""

    def error_message(self, code: str, text: str) -> WebSocketMessage | None:
        """The protocol's message for an error of the proxy; None if the protocol has none."""
