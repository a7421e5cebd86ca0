"""What a program appended to a history of its own, as the conversation it is."""

from collections.abc import Iterator

from tapeway.core.json_text import Json
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.providers.message import Message
from tapeway.providers.turns import Piece


def kept(item: ForeignInteraction, conversation: int) -> Iterator[Message]:
    """The messages of one append; none of any other interaction."""
    match item.document:
        case {
            "kind": "memory_write",
            "request": {"name": "append_messages", "args": {"messages": list(messages)}},
        }:
            for each in messages:
                match each:
                    case {"role": str(role), "content": content, "timestamp": (str() | None) as at}:
                        yield Message(conversation, item.index, role, (_piece(content),), at)


def _piece(content: Json) -> Piece:
    if isinstance(content, str):
        return Piece("text", content)
    return Piece("attachment", value=content)
