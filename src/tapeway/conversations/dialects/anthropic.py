"""Anthropic's Messages, also at other services with Anthropic's models."""

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
    linked,
    split_instructions,
    text,
    thinking,
    tool_call,
    tool_result,
)
from tapeway.core.json_text import Json, dump
from tapeway.core.loose_json import error_of, fields, objects, position, string

_COMPLETE = frozenset({"", "end_turn", "stop_sequence", "tool_use"})


def parse_request(body: dict[str, Json]) -> ParsedRequest:
    """The system prompt and the messages; results of tools are separate turns."""
    system = ConversationTurn(SYSTEM, tuple(_parts(body.get("system"))))
    turns = [turn for message in objects(body.get("messages")) for turn in _turns(message)]
    return split_instructions([system, *turns])


def parse_answer(values: Iterable[dict[str, Json]]) -> ParsedAnswer:
    """The answer, its deltas joined."""
    blocks: dict[int, dict[str, Json]] = {}
    stop_reason = error = ""
    for value in values:
        kind = string(value.get("type"))
        error = error or error_of(value)
        if kind in ("message", "message_start"):
            message = value if kind == "message" else fields(value.get("message"))
            blocks |= dict(enumerate([dict(block) for block in objects(message.get("content"))]))
            stop_reason = string(message.get("stop_reason")) or stop_reason
        elif kind == "content_block_start":
            blocks[position(value.get("index"))] = dict(fields(value.get("content_block")))
        elif kind == "content_block_delta":
            block = blocks.setdefault(position(value.get("index")), {})
            _extend(block, fields(value.get("delta")))
        elif kind == "message_delta":
            stop_reason = string(fields(value.get("delta")).get("stop_reason")) or stop_reason
    parts = [_part(_closed(blocks[at])) for at in sorted(blocks)]
    turn = ConversationTurn(ASSISTANT, tuple(parts))
    return ParsedAnswer(turn, "" if stop_reason in _COMPLETE else stop_reason, error)


def _turns(message: dict[str, Json]) -> Iterator[ConversationTurn]:
    role = string(message.get("role")) or USER
    content = message.get("content")
    results = [block for block in objects(content) if role != ASSISTANT and _is_result(block)]
    for block in results:
        inside = [part for part in _parts(block.get("content")) if part.kind == "attachment"]
        yield ConversationTurn(TOOL, (_part(block), *inside))
    rest: Json = (
        [block for block in objects(content) if block not in results] if results else content
    )
    yield ConversationTurn(role, tuple(_parts(rest)))


def _is_result(block: dict[str, Json]) -> bool:
    return string(block.get("type")).endswith("tool_result")


def _parts(content: Json) -> Iterator[ContentPart]:
    if isinstance(content, str):
        yield text(content)
    for block in objects(content):
        yield _part(block)


def _part(block: dict[str, Json]) -> ContentPart:
    kind = string(block.get("type"))
    if kind == "text":
        return text(string(block.get("text")))
    if kind == "thinking":
        return thinking(string(block.get("thinking")))
    if kind == "redacted_thinking":
        return thinking("(redacted)")
    if kind.endswith("tool_use"):
        return tool_call(string(block.get("name")), block.get("input"), string(block.get("id")))
    if _is_result(block):
        inner = string(fields(block.get("content")).get("type"))
        return tool_result(
            _plain(block.get("content")),
            string(block.get("tool_use_id")),
            failed=block.get("is_error") is True or inner.endswith("_error"),
        )
    source = fields(block.get("source"))
    if data := string(source.get("data")):
        return embedded(kind, data, string(source.get("media_type")))
    if url := string(source.get("url")):
        return linked(kind, url)
    return attachment(kind or "unknown", id=source.get("file_id"))


def _plain(content: Json) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return dump(content).decode()
    texts = [part for part in _parts(content) if part.kind == "text"]
    if not texts and any(True for _ in objects(content)):
        return dump([block for block in objects(content) if "source" not in block]).decode()
    return "\n".join([part.text for part in texts])


def _extend(block: dict[str, Json], delta: dict[str, Json]) -> None:
    for name in ("text", "thinking", "partial_json"):
        if isinstance(more := delta.get(name), str):
            block[name] = string(block.get(name)) + more
            # The start of a block may have been lost, or never sent.
            block.setdefault("type", "tool_use" if name == "partial_json" else name)


def _closed(block: dict[str, Json]) -> dict[str, Json]:
    """The block with a tool's input, joined from its parts."""
    return block | {"input": block["partial_json"]} if "partial_json" in block else block
