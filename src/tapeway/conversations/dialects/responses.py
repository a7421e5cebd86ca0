"""OpenAI's Responses."""

from collections.abc import Iterable, Iterator

from tapeway.conversations.dialects.loose_json import (
    error_of,
    fields,
    items,
    objects,
    position,
    string,
)
from tapeway.conversations.model import (
    ASSISTANT,
    SYSTEM,
    TOOL,
    USER,
    Answered,
    Asked,
    ConversationTurn,
    Piece,
    attachment,
    call,
    embedded,
    linked,
    result,
    split,
    text,
    thinking,
)
from tapeway.core.json_text import Json, dump

_ENDS = frozenset({"response.completed", "response.failed", "response.incomplete"})
_DELTAS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "arguments",
}


def asked(body: dict[str, Json]) -> Asked:
    """The instructions and the items; `previous` where the service itself keeps what was before."""
    system = ConversationTurn(SYSTEM, (text(string(body.get("instructions"))),))
    given = body.get("input")
    turns = (
        [ConversationTurn(USER, (text(given),))]
        if isinstance(given, str)
        else _turns(objects(given))
    )
    kept = body.get("conversation")
    previous = string(body.get("previous_response_id")) or _conversation(kept)
    instructed = [system] if body.get("instructions") else []
    return Asked(*split([*instructed, *turns]), previous)


def answered(values: Iterable[dict[str, Json]]) -> Answered:
    """The answer's items; of a stream that was cut, what its deltas had said."""
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
    pieces = [piece for item in objects(whole.get("output")) for piece in _item(item).pieces]
    if not pieces:
        pieces = [piece for at in sorted(drafts) for piece in drafts[at].pieces()]
    return Answered(
        ConversationTurn(ASSISTANT, tuple(pieces)),
        ended=string(fields(whole.get("incomplete_details")).get("reason")),
        error=error or error_of(whole),
        created=whole.get("created_at"),
        names=tuple(
            filter(None, (string(whole.get("id")), _conversation(whole.get("conversation"))))
        ),
    )


def _conversation(value: Json) -> str:
    return string(value) or string(fields(value).get("id"))


def _turns(given: Iterable[dict[str, Json]]) -> list[ConversationTurn]:
    return [_item(item) for item in given]


def _item(item: dict[str, Json]) -> ConversationTurn:
    kind = string(item.get("type")) or "message"
    identifier = string(item.get("call_id")) or string(item.get("id"))
    if kind == "message":
        return ConversationTurn(
            string(item.get("role")) or USER, tuple(_parts(item.get("content")))
        )
    if kind == "reasoning":
        told = [*objects(item.get("summary")), *objects(item.get("content"))]
        said = "\n".join([string(each.get("text")) for each in told])
        return ConversationTurn(ASSISTANT, (thinking(said),))
    if kind in ("function_call", "custom_tool_call"):
        arguments = item.get("arguments", item.get("input"))
        return ConversationTurn(ASSISTANT, (call(string(item.get("name")), arguments, identifier),))
    if kind.endswith("_output"):
        return ConversationTurn(TOOL, (result(_plain(item.get("output")), identifier),))
    if kind == "item_reference":
        return ConversationTurn(ASSISTANT, (attachment(kind, id=item.get("id")),))
    if kind == "image_generation_call":
        return ConversationTurn(ASSISTANT, (embedded("image", string(item.get("result"))),))
    rest = {k: v for k, v in item.items() if k not in ("id", "call_id", "type", "status", "name")}
    name = string(item.get("name")) or kind.removesuffix("_call")
    return ConversationTurn(ASSISTANT, (call(name, rest, identifier),))


def _parts(content: Json) -> Iterator[Piece]:
    if isinstance(content, str):
        yield text(content)
    for part in objects(content):
        kind = string(part.get("type"))
        if kind in ("input_text", "output_text", "text"):
            yield text(string(part.get("text")))
        elif kind == "refusal":
            yield text(string(part.get("refusal")))
        elif kind == "input_image" and part.get("image_url"):
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
    if told := [piece.text for piece in _parts(items(output)) if piece.kind == "text"]:
        return "\n".join(told)
    return dump(output).decode()


class _ResponseItem:
    """An item as its events make it."""

    def __init__(self) -> None:
        self._item: dict[str, Json] = {}
        self._done = False
        self._said = {"text": "", "thinking": "", "arguments": ""}

    def add(self, kind: str, event: dict[str, Json]) -> None:
        if kind in ("response.output_item.added", "response.output_item.done"):
            self._item = fields(event.get("item"))
            self._done = kind.endswith("done")
        elif kind in _DELTAS:
            self._said[_DELTAS[kind]] += string(event.get("delta"))

    def pieces(self) -> tuple[Piece, ...]:
        if self._done:
            return _item(self._item).pieces
        if self._said["arguments"]:
            item = {"type": "function_call", **self._item, "arguments": self._said["arguments"]}
            return _item(item).pieces
        return thinking(self._said["thinking"]), text(self._said["text"])
