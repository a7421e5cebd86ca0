"""Bedrock's Converse, streamed or not."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
from tapeway.core.loose_json import error_of, fields, objects, position, string

_COMPLETE = frozenset({"", "end_turn", "stop_sequence", "tool_use"})
_MEDIA = ("image", "document", "video", "audio")


@dataclass(slots=True)
class _Block:
    """A content block of a stream, put together from the deltas."""

    text: str = ""
    thinking: str = ""
    name: str = ""
    id: str = ""
    input: str = ""

    def extend(self, event: dict[str, Json]) -> None:
        begun = fields(fields(event.get("start")).get("toolUse"))
        self.name = string(begun.get("name")) or self.name
        self.id = string(begun.get("toolUseId")) or self.id
        delta = fields(event.get("delta"))
        self.text += string(delta.get("text"))
        self.input += string(fields(delta.get("toolUse")).get("input"))
        reasoning = fields(delta.get("reasoningContent"))
        hidden = "(redacted)" if "redactedContent" in reasoning and not self.thinking else ""
        self.thinking += string(reasoning.get("text")) or hidden

    def parts(self) -> Iterator[ContentPart]:
        if self.thinking:
            yield thinking(self.thinking)
        if self.text:
            yield text(self.text)
        if self.name or self.id:
            yield tool_call(self.name, self.input, self.id)


def parse_request(body: dict[str, Json]) -> ParsedRequest:
    """The system prompt and the messages; results of tools are separate turns."""
    system = ConversationTurn(SYSTEM, tuple(_parts(body.get("system"))))
    turns = [turn for message in objects(body.get("messages")) for turn in _turns(message)]
    return split_instructions([system, *turns])


def parse_answer(values: Iterable[dict[str, Json]]) -> ParsedAnswer:
    """The message of a whole answer, or the joined deltas of one."""
    parts: list[ContentPart] = []
    blocks: dict[int, _Block] = {}
    stop_reason = error = ""
    for value in values:
        if "contentBlockIndex" in value:
            blocks.setdefault(position(value["contentBlockIndex"]), _Block()).extend(value)
            continue
        message = fields(fields(value.get("output")).get("message"))
        parts += _parts(message.get("content"))
        stop_reason = string(value.get("stopReason")) or stop_reason
        if not message:
            error = error or error_of(value) or string(value.get("message"))
    joined = [part for _, block in sorted(blocks.items()) for part in block.parts()]
    turn = ConversationTurn(ASSISTANT, (*parts, *joined))
    return ParsedAnswer(turn, "" if stop_reason in _COMPLETE else stop_reason, error)


def _turns(message: dict[str, Json]) -> Iterator[ConversationTurn]:
    content = list(objects(message.get("content")))
    for block in content:
        if result := fields(block.get("toolResult")):
            inside = [part for part in _parts(result.get("content")) if part.kind == "attachment"]
            yield ConversationTurn(TOOL, (_result(result), *inside))
    rest: list[Json] = [block for block in content if "toolResult" not in block]
    yield ConversationTurn(string(message.get("role")) or USER, tuple(_parts(rest)))


def _parts(content: Json) -> Iterator[ContentPart]:
    for block in objects(content):
        yield _part(block)


def _part(block: dict[str, Json]) -> ContentPart:
    if "text" in block:
        return text(string(block["text"]))
    if "json" in block:
        return text(dump(block["json"]).decode())
    if used := fields(block.get("toolUse")):
        return tool_call(string(used.get("name")), used.get("input"), string(used.get("toolUseId")))
    if reasoning := fields(block.get("reasoningContent")):
        reasoning_text = string(fields(reasoning.get("reasoningText")).get("text"))
        return thinking(reasoning_text or "(redacted)")
    kind = next((media for media in _MEDIA if media in block), next(iter(block), "unknown"))
    medium = fields(block.get(kind))
    source, form = fields(medium.get("source")), string(medium.get("format"))
    if data := string(source.get("bytes")):
        return embedded(kind, data, form)
    return attachment(kind, media_type=form, url=fields(source.get("s3Location")).get("uri"))


def _result(result: dict[str, Json]) -> ContentPart:
    texts = [part.text for part in _parts(result.get("content")) if part.kind == "text"]
    return tool_result(
        "\n".join(texts), string(result.get("toolUseId")), failed=result.get("status") == "error"
    )
