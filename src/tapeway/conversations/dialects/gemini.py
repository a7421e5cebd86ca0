"""Gemini's generateContent, at Google's AI Studio and on Vertex."""

from collections.abc import Iterable, Iterator

from tapeway.conversations.model import (
    ASSISTANT,
    SYSTEM,
    TOOL,
    USER,
    ContentPart,
    ConversationTurn,
    ParsedAnswer,
    ParsedRequest,
    attachment,
    embedded,
    split_instructions,
    text,
    thinking,
    tool_call,
    tool_result,
)
from tapeway.core.json_text import Json, dump
from tapeway.core.loose_json import either, error_of, fields, objects, string

_COMPLETE = frozenset({"", "STOP", "FINISH_REASON_UNSPECIFIED"})


def parse_request(body: dict[str, Json]) -> ParsedRequest:
    """The system instruction and the contents; results of functions are separate turns."""
    instruction = fields(either(body, "systemInstruction", "system_instruction"))
    contents = [turn for content in objects(body.get("contents")) for turn in _turns(content)]
    system = ConversationTurn(SYSTEM, tuple(_parts(instruction)))
    return split_instructions([system, *contents])


def parse_answer(values: Iterable[dict[str, Json]]) -> ParsedAnswer:
    """The first candidate, the parts of all its events joined."""
    parts: list[ContentPart] = []
    stop_reason = error = ""
    created: Json = None
    last_index = 0
    for value in values:
        error = error or error_of(value)
        created = created or value.get("createTime")
        stop_reason = string(fields(value.get("promptFeedback")).get("blockReason")) or stop_reason
        for candidate in objects(value.get("candidates")):
            index = candidate.get("index", 0)
            last_index = max(last_index, index if isinstance(index, int) else 0)
            if index == 0:
                parts += _parts(fields(candidate.get("content")))
                stop_reason = string(candidate.get("finishReason")) or stop_reason
    notes = (f"{last_index} more candidates are not shown",) if last_index else ()
    turn = ConversationTurn(ASSISTANT, tuple(parts))
    return ParsedAnswer(
        turn, "" if stop_reason in _COMPLETE else stop_reason, error, created, notes=notes
    )


def _turns(content: dict[str, Json]) -> Iterator[ConversationTurn]:
    parts = list(_parts(content))
    if content.get("role") == "model":
        yield ConversationTurn(ASSISTANT, tuple(parts))
        return
    yield from [ConversationTurn(TOOL, (part,)) for part in parts if part.kind == "result"]
    yield ConversationTurn(USER, tuple([part for part in parts if part.kind != "result"]))


def _parts(content: dict[str, Json]) -> Iterator[ContentPart]:
    for part in objects(content.get("parts")):
        yield _part(part)


def _part(part: dict[str, Json]) -> ContentPart:
    if "text" in part:
        content = string(part["text"])
        return thinking(content) if part.get("thought") is True else text(content)
    if call := fields(either(part, "functionCall", "function_call")):
        return tool_call(string(call.get("name")), call.get("args"), string(call.get("id")))
    if result := fields(either(part, "functionResponse", "function_response")):
        content = dump(result.get("response")).decode()
        return tool_result(content, string(result.get("id")), string(result.get("name")))
    if data := fields(either(part, "inlineData", "inline_data")):
        media = string(either(data, "mimeType", "mime_type"))
        return embedded(_kind(media), string(data.get("data")), media)
    if file := fields(either(part, "fileData", "file_data")):
        media = string(either(file, "mimeType", "mime_type"))
        return attachment(_kind(media), media_type=media, url=either(file, "fileUri", "file_uri"))
    return attachment(next(iter(part), "unknown"))


def _kind(media: str) -> str:
    return media.partition("/")[0] or "file"
