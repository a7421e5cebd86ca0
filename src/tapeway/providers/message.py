"""A message of a conversation, as it is told."""

from dataclasses import dataclass

from tapeway.core.json_text import Json
from tapeway.providers.turns import Piece


@dataclass(frozen=True, slots=True)
class Message:
    """One message and the interaction that said it first.

    `at` is when the service answered that call, in ISO 8601 and UTC, None where nobody knows.
    """

    conversation: int
    interaction: int
    role: str
    pieces: tuple[Piece, ...]
    at: str | None
    model: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def content(self) -> str:
        """All its text."""
        texts = [each.text for each in self.pieces if each.kind in ("text", "result")]
        return "\n".join(texts)


def document(message: Message) -> dict[str, Json]:
    """A message in JSON; what it does not have is left out, but for its timestamp."""
    found: dict[str, Json] = {
        "conversation": message.conversation,
        "role": message.role,
        "content": message.content,
        "timestamp": message.at,
        "interaction": message.interaction,
    }
    thoughts = "\n".join([each.text for each in message.pieces if each.kind == "thinking"])
    calls: list[Json] = [_call(each) for each in message.pieces if each.kind == "call"]
    attached: list[Json] = [each.value for each in message.pieces if each.kind == "attachment"]
    result = next((each for each in message.pieces if each.kind == "result"), Piece("result"))
    more: dict[str, Json] = {
        "model": message.model,
        "thinking": thoughts,
        "tool_calls": calls,
        "tool_call_id": result.id,
        "name": result.name,
        "attachments": attached,
        "notes": list(message.notes),
    }
    return found | {name: value for name, value in more.items() if value}


def _call(piece: Piece) -> Json:
    found: dict[str, Json] = {"id": piece.id} if piece.id else {}
    return found | {"name": piece.name, "arguments": piece.value}
