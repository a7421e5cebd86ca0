"""Bedrock's Converse, streamed or not."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tapeway.conversations.dialects.loose_json import error_of, fields, objects, position, string
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
    result,
    split,
    text,
    thinking,
)
from tapeway.core.json_text import Json, dump

_WHOLE = frozenset({"", "end_turn", "stop_sequence", "tool_use"})
_MEDIA = ("image", "document", "video", "audio")


@dataclass(slots=True)
class _Block:
    """A part of an answer, as far as its deltas have come."""

    text: str = ""
    thought: str = ""
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
        thought = fields(delta.get("reasoningContent"))
        hidden = "(redacted)" if "redactedContent" in thought and not self.thought else ""
        self.thought += string(thought.get("text")) or hidden

    def pieces(self) -> Iterator[Piece]:
        if self.thought:
            yield thinking(self.thought)
        if self.text:
            yield text(self.text)
        if self.name or self.id:
            yield call(self.name, self.input, self.id)


def asked(body: dict[str, Json]) -> Asked:
    """The system prompt and the messages; results of tools are turns of their own."""
    system = ConversationTurn(SYSTEM, tuple(_pieces(body.get("system"))))
    turns = [turn for message in objects(body.get("messages")) for turn in _turns(message)]
    return Asked(*split([system, *turns]))


def answered(values: Iterable[dict[str, Json]]) -> Answered:
    """The message of a whole answer, or the joined deltas of one."""
    pieces: list[Piece] = []
    blocks: dict[int, _Block] = {}
    ended = error = ""
    for value in values:
        if "contentBlockIndex" in value:
            blocks.setdefault(position(value["contentBlockIndex"]), _Block()).extend(value)
            continue
        message = fields(fields(value.get("output")).get("message"))
        pieces += _pieces(message.get("content"))
        ended = string(value.get("stopReason")) or ended
        if not message:
            error = error or error_of(value) or string(value.get("message"))
    joined = [piece for _, block in sorted(blocks.items()) for piece in block.pieces()]
    turn = ConversationTurn(ASSISTANT, (*pieces, *joined))
    return Answered(turn, "" if ended in _WHOLE else ended, error)


def _turns(message: dict[str, Json]) -> Iterator[ConversationTurn]:
    content = list(objects(message.get("content")))
    for block in content:
        if given := fields(block.get("toolResult")):
            inside = [each for each in _pieces(given.get("content")) if each.kind == "attachment"]
            yield ConversationTurn(TOOL, (_result(given), *inside))
    rest: list[Json] = [each for each in content if "toolResult" not in each]
    yield ConversationTurn(string(message.get("role")) or USER, tuple(_pieces(rest)))


def _pieces(content: Json) -> Iterator[Piece]:
    for block in objects(content):
        yield _piece(block)


def _piece(block: dict[str, Json]) -> Piece:
    if "text" in block:
        return text(string(block["text"]))
    if "json" in block:
        return text(dump(block["json"]).decode())
    if used := fields(block.get("toolUse")):
        return call(string(used.get("name")), used.get("input"), string(used.get("toolUseId")))
    if thought := fields(block.get("reasoningContent")):
        said = string(fields(thought.get("reasoningText")).get("text"))
        return thinking(said or "(redacted)")
    kind = next((each for each in _MEDIA if each in block), next(iter(block), "unknown"))
    medium = fields(block.get(kind))
    source, form = fields(medium.get("source")), string(medium.get("format"))
    if data := string(source.get("bytes")):
        return embedded(kind, data, form)
    return attachment(kind, media_type=form, url=fields(source.get("s3Location")).get("uri"))


def _result(given: dict[str, Json]) -> Piece:
    told = [each.text for each in _pieces(given.get("content")) if each.kind == "text"]
    return result("\n".join(told), string(given.get("toolUseId")))
