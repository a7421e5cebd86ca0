"""Gemini's generateContent, at Google's AI Studio and on Vertex."""

from collections.abc import Iterable, Iterator

from tapeway.conversations.dialects.loose_json import either, error_of, fields, objects, string
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

_WHOLE = frozenset({"", "STOP", "FINISH_REASON_UNSPECIFIED"})


def asked(body: dict[str, Json]) -> Asked:
    """The system instruction and the contents; results of functions are turns of their own."""
    instruction = fields(either(body, "systemInstruction", "system_instruction"))
    contents = [turn for content in objects(body.get("contents")) for turn in _turns(content)]
    return Asked(*split([ConversationTurn(SYSTEM, tuple(_pieces(instruction))), *contents]))


def answered(values: Iterable[dict[str, Json]]) -> Answered:
    """The first candidate, its pieces in a row."""
    pieces: list[Piece] = []
    ended = error = ""
    created: Json = None
    most = 0
    for value in values:
        error = error or error_of(value)
        created = created or value.get("createTime")
        ended = string(fields(value.get("promptFeedback")).get("blockReason")) or ended
        for candidate in objects(value.get("candidates")):
            index = candidate.get("index", 0)
            most = max(most, index if isinstance(index, int) else 0)
            if index == 0:
                pieces += _pieces(fields(candidate.get("content")))
                ended = string(candidate.get("finishReason")) or ended
    notes = (f"{most} more candidates are not shown",) if most else ()
    turn = ConversationTurn(ASSISTANT, tuple(pieces))
    return Answered(turn, "" if ended in _WHOLE else ended, error, created, notes=notes)


def _turns(content: dict[str, Json]) -> Iterator[ConversationTurn]:
    pieces = list(_pieces(content))
    if content.get("role") == "model":
        yield ConversationTurn(ASSISTANT, tuple(pieces))
        return
    yield from [ConversationTurn(TOOL, (piece,)) for piece in pieces if piece.kind == "result"]
    yield ConversationTurn(USER, tuple([piece for piece in pieces if piece.kind != "result"]))


def _pieces(content: dict[str, Json]) -> Iterator[Piece]:
    for part in objects(content.get("parts")):
        yield _piece(part)


def _piece(part: dict[str, Json]) -> Piece:
    if "text" in part:
        said = string(part["text"])
        return thinking(said) if part.get("thought") is True else text(said)
    if made := fields(either(part, "functionCall", "function_call")):
        return call(string(made.get("name")), made.get("args"), string(made.get("id")))
    if given := fields(either(part, "functionResponse", "function_response")):
        said = dump(given.get("response")).decode()
        return result(said, string(given.get("id")), string(given.get("name")))
    if data := fields(either(part, "inlineData", "inline_data")):
        media = string(either(data, "mimeType", "mime_type"))
        return embedded(_kind(media), string(data.get("data")), media)
    if file := fields(either(part, "fileData", "file_data")):
        media = string(either(file, "mimeType", "mime_type"))
        return attachment(_kind(media), media_type=media, url=either(file, "fileUri", "file_uri"))
    return attachment(next(iter(part), "unknown"))


def _kind(media: str) -> str:
    return media.partition("/")[0] or "file"
