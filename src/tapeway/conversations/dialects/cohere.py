"""Cohere's Chat, version 2; its requests are like those of OpenAI."""

from collections.abc import Iterable

from tapeway.conversations.dialects import chat_completions
from tapeway.conversations.dialects.loose_json import error_of, fields, position, string
from tapeway.conversations.model import (
    ASSISTANT,
    Answered,
    Asked,
    ConversationTurn,
    Piece,
    call,
    text,
    thinking,
)
from tapeway.core.json_text import Json

_WHOLE = frozenset({"", "COMPLETE", "STOP_SEQUENCE", "TOOL_CALL"})


def asked(body: dict[str, Json]) -> Asked:
    """The messages of a request."""
    return chat_completions.asked(body)


def answered(values: Iterable[dict[str, Json]]) -> Answered:
    """The answer, its deltas joined."""
    pieces: list[Piece] = []
    said: list[str] = []
    thought: list[str] = []
    calls: dict[int, list[str]] = {}
    ended = error = ""
    for value in values:
        delta = fields(value.get("delta"))
        message = fields(delta.get("message"))
        ended = string(value.get("finish_reason")) or string(delta.get("finish_reason")) or ended
        error = error or error_of(value) or string(delta.get("error"))
        if whole := fields(value.get("message")):
            pieces += chat_completions.turn({**whole, "role": ASSISTANT}).pieces
        elif "type" not in value:
            error = error or string(value.get("message"))
        content = fields(message.get("content"))
        said.append(string(content.get("text")))
        thought += [string(content.get("thinking")), string(message.get("tool_plan"))]
        if made := fields(message.get("tool_calls")):
            _extend(calls.setdefault(position(value.get("index")), ["", "", ""]), made)
    made_calls = [call(name, arguments, at) for at, name, arguments in calls.values()]
    turn = (*pieces, thinking("".join(thought)), text("".join(said)), *made_calls)
    return Answered(ConversationTurn(ASSISTANT, turn), "" if ended in _WHOLE else ended, error)


def _extend(known: list[str], made: dict[str, Json]) -> None:
    function = fields(made.get("function"))
    known[0] = string(made.get("id")) or known[0]
    known[1] = string(function.get("name")) or known[1]
    known[2] += string(function.get("arguments"))
