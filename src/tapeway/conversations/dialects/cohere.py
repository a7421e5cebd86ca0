"""The answers of Cohere's Chat, version 2; its requests are like those of OpenAI."""

from collections.abc import Iterable

from tapeway.conversations.dialects import chat_completions
from tapeway.conversations.model import (
    ASSISTANT,
    ContentPart,
    ConversationTurn,
    ParsedAnswer,
    text,
    thinking,
)
from tapeway.core.json_text import Json
from tapeway.core.loose_json import error_of, fields, position, string

_COMPLETE = frozenset({"", "COMPLETE", "STOP_SEQUENCE", "TOOL_CALL"})


def parse_answer(values: Iterable[dict[str, Json]]) -> ParsedAnswer:
    """The answer, its deltas joined."""
    parts: list[ContentPart] = []
    texts: list[str] = []
    reasoning: list[str] = []
    calls = chat_completions.StreamedCalls()
    stop_reason = error = ""
    for value in values:
        delta = fields(value.get("delta"))
        message = fields(delta.get("message"))
        stop_reason = (
            string(value.get("finish_reason")) or string(delta.get("finish_reason")) or stop_reason
        )
        error = error or error_of(value) or string(delta.get("error"))
        if whole := fields(value.get("message")):
            parts += chat_completions.parse_message({**whole, "role": ASSISTANT}).parts
        elif "type" not in value:
            error = error or string(value.get("message"))
        content = fields(message.get("content"))
        texts.append(string(content.get("text")))
        reasoning += [string(content.get("thinking")), string(message.get("tool_plan"))]
        if delta_call := fields(message.get("tool_calls")):
            calls.add(position(value.get("index")), delta_call)
    turn = (*parts, thinking("".join(reasoning)), text("".join(texts)), *calls.parts())
    return ParsedAnswer(
        ConversationTurn(ASSISTANT, turn), "" if stop_reason in _COMPLETE else stop_reason, error
    )
