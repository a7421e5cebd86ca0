"""Ollama's own chat and generate."""

from collections.abc import Iterable

from tapeway.conversations.dialects import chat_completions
from tapeway.conversations.dialects.loose_json import error_of, fields, items, objects, string
from tapeway.conversations.model import (
    ASSISTANT,
    SYSTEM,
    USER,
    Answered,
    Asked,
    ConversationTurn,
    Piece,
    embedded,
    split,
    text,
    thinking,
)
from tapeway.core.json_text import Json

_WHOLE = frozenset({"", "stop"})


def asked(body: dict[str, Json]) -> Asked:
    """The messages of a chat, or what is to be gone on from."""
    if "messages" in body:
        return Asked(*split([_turn(each) for each in objects(body["messages"])]))
    prompt = (text(string(body.get("prompt"))), *_images(body))
    system = ConversationTurn(SYSTEM, (text(string(body.get("system"))),))
    return Asked(
        *split(
            [system, ConversationTurn(USER, prompt)]
            if body.get("system")
            else [ConversationTurn(USER, prompt)]
        )
    )


def answered(values: Iterable[dict[str, Json]]) -> Answered:
    """The answer, its lines joined."""
    said: list[str] = []
    thought: list[str] = []
    made: list[Piece] = []
    ended = error = ""
    created: Json = None
    for value in values:
        error = error or error_of(value)
        created = value.get("created_at") or created
        ended = string(value.get("done_reason")) or ended
        message = fields(value.get("message"))
        said += [string(message.get("content")), string(value.get("response"))]
        thought += [string(message.get("thinking")), string(value.get("thinking"))]
        made += chat_completions.calls(message)
    pieces = (thinking("".join(thought)), text("".join(said)), *made)
    return Answered(
        ConversationTurn(ASSISTANT, pieces), "" if ended in _WHOLE else ended, error, created
    )


def _turn(message: dict[str, Json]) -> ConversationTurn:
    turn = chat_completions.turn(message)
    return ConversationTurn(turn.role, (*turn.pieces, *_images(message)))


def _images(value: dict[str, Json]) -> list[Piece]:
    return [embedded("image", string(each)) for each in items(value.get("images"))]
