"""OpenAI's Chat Completions, which many services speak, and the older completions."""

from collections.abc import Iterable, Iterator

from tapeway.conversations.model import (
    ASSISTANT,
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
from tapeway.core.json_text import Json
from tapeway.core.loose_json import (
    error_of,
    fields,
    items,
    objects,
    position,
    string,
)

_COMPLETE = frozenset({"", "stop", "tool_calls", "function_call"})
_THINKING_FIELDS = ("reasoning_content", "reasoning", "thinking", "tool_plan")
"""The fields of DeepSeek, OpenRouter, Ollama and Cohere, who speak this dialect."""


def parse_request(body: dict[str, Json]) -> ParsedRequest:
    """The messages of a request, or the prompts of an older one."""
    if "messages" not in body and "prompt" in body:
        given = body["prompt"]
        prompts = [given] if isinstance(given, str) else items(given)
        return ParsedRequest(
            (), (ConversationTurn(USER, tuple([text(string(prompt)) for prompt in prompts])),)
        )
    return split_instructions(map(parse_message, objects(body.get("messages"))))


def parse_message(message: dict[str, Json]) -> ConversationTurn:
    """One message of a history."""
    role = string(message.get("role")) or USER
    if role in (TOOL, "function"):
        identifier = string(message.get("tool_call_id"))
        name = string(message.get("name")) or string(message.get("tool_name"))
        content = message.get("content")
        images = [part for part in content_parts(content) if part.data]
        return ConversationTurn(
            TOOL, (tool_result(content_text(content), identifier, name), *images)
        )
    return ConversationTurn(role, tuple(_message_parts(message)))


def content_text(content: Json) -> str:
    """The text of a content that is a text or a list of parts."""
    if isinstance(content, str):
        return content
    return "\n".join([part.text for part in content_parts(content) if part.text])


def content_parts(content: Json) -> Iterator[ContentPart]:
    """The parts of a content; a part of an unknown type becomes an attachment of the type."""
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


def parse_answer(values: Iterable[dict[str, Json]]) -> ParsedAnswer:
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
    stop_reason = "" if first.stop_reason in _COMPLETE else first.stop_reason
    notes = (f"{len(choices) - 1} more choices are not shown",) if len(choices) > 1 else ()
    return ParsedAnswer(
        ConversationTurn(ASSISTANT, first.parts()), stop_reason, error, created, notes=notes
    )


def tool_calls(message: dict[str, Json]) -> Iterator[ContentPart]:
    """The tool calls in a message."""
    for call in objects(message.get("tool_calls")):
        function = fields(call.get("function")) or fields(call.get("custom"))
        arguments = function.get("arguments", function.get("input"))
        yield tool_call(string(function.get("name")), arguments, string(call.get("id")))
    if old := fields(message.get("function_call")):
        yield tool_call(string(old.get("name")), old.get("arguments"))


def thinking_text(message: dict[str, Json]) -> str:
    """The reasoning in a message or delta, whichever field it is in."""
    return next(filter(None, [string(message.get(name)) for name in _THINKING_FIELDS]), "")


def _message_parts(message: dict[str, Json]) -> Iterator[ContentPart]:
    yield thinking(thinking_text(message))
    yield from content_parts(message.get("content"))
    yield text(string(message.get("refusal")))
    if audio := fields(message.get("audio")):
        yield text(string(audio.get("transcript")))
        yield attachment("audio", id=audio.get("id"))
    yield from tool_calls(message)


def _file(file: dict[str, Json]) -> ContentPart:
    name = string(file.get("filename"))
    if data := string(file.get("file_data")):
        return embedded("file", data)
    return attachment("file", id=file.get("file_id"), name=name)


class _Choice:
    """A choice of a stream, assembled from its deltas."""

    def __init__(self) -> None:
        self.stop_reason = ""
        self._whole: tuple[ContentPart, ...] = ()
        self._texts: list[str] = []
        self._thinking: list[str] = []
        self._calls = StreamedCalls()

    def add(self, choice: dict[str, Json]) -> None:
        self.stop_reason = string(choice.get("finish_reason")) or self.stop_reason
        if message := fields(choice.get("message")):
            self._whole = tuple(_message_parts(message))
        self._texts.append(string(choice.get("text")))
        delta = fields(choice.get("delta"))
        self._texts += [content_text(delta.get("content")), string(delta.get("refusal"))]
        self._texts.append(string(fields(delta.get("audio")).get("transcript")))
        self._thinking.append(thinking_text(delta))
        # Some services leave out the index of a single call, some that of calls sent whole.
        for at, call in enumerate(objects(delta.get("tool_calls"))):
            self._calls.add(position(call.get("index", at)), call)
        if old := fields(delta.get("function_call")):
            self._calls.add(0, {"function": old})

    def parts(self) -> tuple[ContentPart, ...]:
        return (
            *self._whole,
            thinking("".join(self._thinking)),
            text("".join(self._texts)),
            *self._calls.parts(),
        )


class StreamedCalls:
    """The tool calls of a stream, put together from their deltas."""

    def __init__(self) -> None:
        self._calls: dict[int, dict[str, str]] = {}

    def add(self, at: int, delta: dict[str, Json]) -> None:
        call = self._calls.setdefault(at, {"id": "", "name": "", "arguments": ""})
        function = fields(delta.get("function"))
        call["id"] = string(delta.get("id")) or call["id"]
        call["name"] = string(function.get("name")) or call["name"]
        call["arguments"] += string(function.get("arguments"))

    def parts(self) -> list[ContentPart]:
        return [
            tool_call(call["name"], call["arguments"], call["id"]) for call in self._calls.values()
        ]
