"""OpenAI's Chat Completions, which many others speak too, and its older completions."""

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
from tapeway.core.json_text import Json

_WHOLE = frozenset({"", "stop", "tool_calls", "function_call"})
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "tool_plan")
"""Where those who speak this dialect put them: DeepSeek, OpenRouter, Ollama, Cohere."""


def asked(body: dict[str, Json]) -> Asked:
    """The messages of a request, or the prompts of an older one."""
    if "messages" not in body and "prompt" in body:
        prompt = body["prompt"]
        prompts = [prompt] if isinstance(prompt, str) else items(prompt)
        return Asked((), (ConversationTurn(USER, tuple([text(string(each)) for each in prompts])),))
    system, turns = split([turn(message) for message in objects(body.get("messages"))])
    return Asked(system, turns)


def turn(message: dict[str, Json]) -> ConversationTurn:
    """One message of a history."""
    role = string(message.get("role")) or USER
    if role in (TOOL, "function"):
        identifier = string(message.get("tool_call_id"))
        name = string(message.get("name")) or string(message.get("tool_name"))
        return ConversationTurn(TOOL, (result(plain(message.get("content")), identifier, name),))
    return ConversationTurn(role, tuple(_pieces(message)))


def plain(content: Json) -> str:
    """The text of a content that is one or a list of parts."""
    if isinstance(content, str):
        return content
    return "\n".join([piece.text for piece in parts(content) if piece.text])


def parts(content: Json) -> Iterator[Piece]:
    """The pieces of a content; a part that is not known comes as an attachment of its type."""
    if isinstance(content, str):
        yield text(content)
    for part in objects(content):
        match string(part.get("type")):
            case "text" | "input_text" | "output_text":
                yield text(string(part.get("text")))
            case "refusal":
                yield text(string(part.get("refusal")))
            case "thinking":
                yield thinking(string(part.get("thinking")))
            case "image_url":
                image = part.get("image_url")
                yield linked("image", string(image) or string(fields(image).get("url")))
            case "input_audio":
                audio = fields(part.get("input_audio"))
                yield embedded("audio", string(audio.get("data")), string(audio.get("format")))
            case "file":
                yield _file(fields(part.get("file")))
            case other:
                yield attachment(other or "unknown")


def answered(values: Iterable[dict[str, Json]]) -> Answered:
    """The first choice of an answer, its deltas joined."""
    choices: dict[int, _Choice] = {}
    created: Json = None
    error = ""
    for value in values:
        error = error or error_of(value)
        created = created or value.get("created")
        for choice in objects(value.get("choices")):
            choices.setdefault(position(choice.get("index")), _Choice()).add(choice)
    first = choices.get(min(choices, default=0), _Choice())
    ended = "" if first.ended in _WHOLE else first.ended
    notes = (f"{len(choices) - 1} more choices are not shown",) if len(choices) > 1 else ()
    return Answered(ConversationTurn(ASSISTANT, first.pieces()), ended, error, created, notes=notes)


def calls(message: dict[str, Json]) -> Iterator[Piece]:
    """The calls of tools in a message."""
    for each in objects(message.get("tool_calls")):
        function = fields(each.get("function")) or fields(each.get("custom"))
        arguments = function.get("arguments", function.get("input"))
        yield call(string(function.get("name")), arguments, string(each.get("id")))
    if old := fields(message.get("function_call")):
        yield call(string(old.get("name")), old.get("arguments"))


def thoughts(message: dict[str, Json]) -> str:
    """What it thought, in whichever field."""
    return next(filter(None, [string(message.get(name)) for name in _THOUGHTS]), "")


def _pieces(message: dict[str, Json]) -> Iterator[Piece]:
    yield thinking(thoughts(message))
    yield from parts(message.get("content"))
    yield text(string(message.get("refusal")))
    if audio := fields(message.get("audio")):
        yield text(string(audio.get("transcript")))
        yield attachment("audio", id=audio.get("id"))
    yield from calls(message)


def _file(file: dict[str, Json]) -> Piece:
    name = string(file.get("filename"))
    if data := string(file.get("file_data")):
        return embedded("file", data)
    return attachment("file", id=file.get("file_id"), name=name)


class _Choice:
    """A choice as its deltas make it."""

    def __init__(self) -> None:
        self.ended = ""
        self._whole: tuple[Piece, ...] = ()
        self._said: list[str] = []
        self._thought: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}

    def add(self, choice: dict[str, Json]) -> None:
        self.ended = string(choice.get("finish_reason")) or self.ended
        if message := fields(choice.get("message")):
            self._whole = tuple(_pieces(message))
        self._said.append(string(choice.get("text")))
        delta = fields(choice.get("delta"))
        self._said += [plain(delta.get("content")), string(delta.get("refusal"))]
        self._said.append(string(fields(delta.get("audio")).get("transcript")))
        self._thought.append(thoughts(delta))
        # Some leave the number out where there is one call, and some where each comes whole.
        for at, each in enumerate(objects(delta.get("tool_calls"))):
            self._add_call(position(each.get("index", at)), each)
        if old := fields(delta.get("function_call")):
            self._add_call(0, {"function": old})

    def pieces(self) -> tuple[Piece, ...]:
        made = [call(each["name"], each["arguments"], each["id"]) for each in self._calls.values()]
        thought, said = "".join(self._thought), "".join(self._said)
        return (*self._whole, thinking(thought), text(said), *made)

    def _add_call(self, at: int, delta: dict[str, Json]) -> None:
        made = self._calls.setdefault(at, {"id": "", "name": "", "arguments": ""})
        function = fields(delta.get("function"))
        made["id"] = string(delta.get("id")) or made["id"]
        made["name"] = string(function.get("name")) or made["name"]
        made["arguments"] += string(function.get("arguments"))
