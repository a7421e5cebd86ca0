"""OpenAI's Responses."""

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
from tapeway.core.loose_json import (
    error_of,
    fields,
    items,
    objects,
    position,
    string,
)

_ENDS = frozenset({"response.completed", "response.failed", "response.incomplete"})
_DELTAS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "arguments",
}


def parse_request(body: dict[str, Json]) -> ParsedRequest:
    """The instructions and the items; `previous` where the service stores the history."""
    system = ConversationTurn(SYSTEM, (text(string(body.get("instructions"))),))
    sent = body.get("input")
    turns = (
        [ConversationTurn(USER, (text(sent),))]
        if isinstance(sent, str)
        else [_item(item) for item in objects(sent)]
    )
    conversation = body.get("conversation")
    previous = string(body.get("previous_response_id")) or _conversation(conversation)
    return split_instructions([system, *turns], previous)


def parse_answer(values: Iterable[dict[str, Json]]) -> ParsedAnswer:
    """The answer's items; for a stream that was cut off, the content of the deltas."""
    whole: dict[str, Json] = {}
    drafts: dict[int, _ResponseItem] = {}
    error = ""
    for value in values:
        kind = string(value.get("type"))
        if kind in _ENDS or kind == "response.created" or value.get("object") == "response":
            whole = whole | (fields(value.get("response")) or value)
        elif kind == "error":
            error = error_of(value) or error_of({"error": value})
        elif kind.startswith("response."):
            drafts.setdefault(position(value.get("output_index")), _ResponseItem()).add(kind, value)
        else:
            error = error or error_of(value)
    parts = [part for item in objects(whole.get("output")) for part in _item(item).parts]
    if not parts:
        parts = [part for at in sorted(drafts) for part in drafts[at].parts()]
    return ParsedAnswer(
        ConversationTurn(ASSISTANT, tuple(parts)),
        stop_reason=string(fields(whole.get("incomplete_details")).get("reason")),
        error=error or error_of(whole),
        created=whole.get("created_at"),
        names=tuple(
            filter(None, (string(whole.get("id")), _conversation(whole.get("conversation"))))
        ),
    )


def _conversation(value: Json) -> str:
    return string(value) or string(fields(value).get("id"))


def _item(item: dict[str, Json]) -> ConversationTurn:
    kind = string(item.get("type")) or "message"
    identifier = string(item.get("call_id")) or string(item.get("id"))
    if kind == "message":
        return ConversationTurn(
            string(item.get("role")) or USER, tuple(_content_parts(item.get("content")))
        )
    if kind == "reasoning":
        sections = [*objects(item.get("summary")), *objects(item.get("content"))]
        reasoning = "\n".join([string(section.get("text")) for section in sections])
        return ConversationTurn(ASSISTANT, (thinking(reasoning),))
    if kind in ("function_call", "custom_tool_call"):
        arguments = item.get("arguments", item.get("input"))
        return ConversationTurn(
            ASSISTANT, (tool_call(string(item.get("name")), arguments, identifier),)
        )
    if kind.endswith("_output"):
        failed = item.get("status") == "incomplete"
        output = item.get("output")
        images = [part for part in _content_parts(items(output) or [output]) if part.data]
        result = tool_result(_plain(output), identifier, failed=failed)
        return ConversationTurn(TOOL, (result, *images))
    if kind == "item_reference":
        return ConversationTurn(ASSISTANT, (attachment(kind, id=item.get("id")),))
    if kind == "image_generation_call":
        return ConversationTurn(ASSISTANT, (embedded("image", string(item.get("result"))),))
    rest = {k: v for k, v in item.items() if k not in ("id", "call_id", "type", "status", "name")}
    name = string(item.get("name")) or kind.removesuffix("_call")
    return ConversationTurn(ASSISTANT, (tool_call(name, rest, identifier),))


def _content_parts(content: Json) -> Iterator[ContentPart]:
    if isinstance(content, str):
        yield text(content)
    for part in objects(content):
        kind = string(part.get("type"))
        if kind in ("input_text", "output_text", "text"):
            yield text(string(part.get("text")))
        elif kind == "refusal":
            yield text(string(part.get("refusal")))
        elif kind in ("input_image", "computer_screenshot") and part.get("image_url"):
            yield linked("image", string(part.get("image_url")))
        elif data := string(part.get("file_data")):
            yield embedded("file", data)
        else:
            name = kind.removeprefix("input_") or "unknown"
            url = part.get("file_url")
            yield attachment(name, id=part.get("file_id"), url=url, name=part.get("filename"))


def _plain(output: Json) -> str:
    if isinstance(output, str):
        return output
    parts = [*_content_parts(items(output) or [output])]
    if texts := [part.text for part in parts if part.kind == "text"]:
        return "\n".join(texts)
    if any(part.data for part in parts):
        return ""
    return dump(output).decode()


class _ResponseItem:
    """An output item of a stream, put together from the events."""

    def __init__(self) -> None:
        self._item: dict[str, Json] = {}
        self._done = False
        self._texts = {"text": "", "thinking": "", "arguments": ""}

    def add(self, kind: str, event: dict[str, Json]) -> None:
        if kind in ("response.output_item.added", "response.output_item.done"):
            self._item = fields(event.get("item"))
            self._done = kind.endswith("done")
        elif kind in _DELTAS:
            self._texts[_DELTAS[kind]] += string(event.get("delta"))

    def parts(self) -> tuple[ContentPart, ...]:
        if self._done:
            return _item(self._item).parts
        if self._texts["arguments"]:
            item = {"type": "function_call", **self._item, "arguments": self._texts["arguments"]}
            return _item(item).parts
        return thinking(self._texts["thinking"]), text(self._texts["text"])
