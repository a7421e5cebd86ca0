"""Ollama's own chat and generate."""

from collections.abc import Iterable

from tapeway.conversations.dialects import chat_completions
from tapeway.conversations.model import (
    ASSISTANT,
    SYSTEM,
    USER,
    ContentPart,
    ConversationTurn,
    ParsedAnswer,
    ParsedRequest,
    embedded,
    split_instructions,
    text,
    thinking,
)
from tapeway.core.json_text import Json
from tapeway.core.loose_json import error_of, fields, items, objects, string

_COMPLETE = frozenset({"", "stop"})


def parse_request(body: dict[str, Json]) -> ParsedRequest:
    """The messages of a chat, or the prompt of a generation."""
    if "messages" in body:
        return split_instructions(map(_turn, objects(body["messages"])))
    prompt = (text(string(body.get("prompt"))), *_images(body))
    system = ConversationTurn(SYSTEM, (text(string(body.get("system"))),))
    return split_instructions([system, ConversationTurn(USER, prompt)])


def parse_answer(values: Iterable[dict[str, Json]]) -> ParsedAnswer:
    """The answer, its lines joined."""
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[ContentPart] = []
    stop_reason = error = ""
    created: Json = None
    for value in values:
        error = error or error_of(value)
        created = value.get("created_at") or created
        stop_reason = string(value.get("done_reason")) or stop_reason
        message = fields(value.get("message"))
        texts += [string(message.get("content")), string(value.get("response"))]
        reasoning += [string(message.get("thinking")), string(value.get("thinking"))]
        calls += chat_completions.tool_calls(message)
    parts = (thinking("".join(reasoning)), text("".join(texts)), *calls)
    return ParsedAnswer(
        ConversationTurn(ASSISTANT, parts),
        "" if stop_reason in _COMPLETE else stop_reason,
        error,
        created,
    )


def _turn(message: dict[str, Json]) -> ConversationTurn:
    turn = chat_completions.parse_message(message)
    return ConversationTurn(turn.role, (*turn.parts, *_images(message)))


def _images(value: dict[str, Json]) -> list[ContentPart]:
    return [embedded("image", string(item)) for item in items(value.get("images"))]
