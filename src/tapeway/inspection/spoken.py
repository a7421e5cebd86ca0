"""A session as a transcript: who said what, in OpenAI's Realtime and in Gemini's Live API.

The service transcribes what it heard after it has begun to answer: words belong to the line of their
item, which stands where the sound was handed over.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from tapeway.conversations.model import ContentPart, tool_result
from tapeway.core.json_text import Json, dump
from tapeway.core.loose_json import error_of, fields, objects, string

Speaker = Literal["you", "assistant", "tool call", "tool result", "instructions", "error"]

_ROLES: Mapping[str, Speaker] = {"assistant": "assistant", "system": "instructions"}
_COMMITTED = "input_audio_buffer.committed"
_TRANSCRIBED = "conversation.item.input_audio_transcription."


class SessionPiece(Protocol):
    """A message of a session, or the joined pieces of several."""

    @property
    def by_client(self) -> bool: ...
    @property
    def type(self) -> str: ...
    @property
    def at_ms(self) -> float: ...
    @property
    def until_ms(self) -> float: ...
    @property
    def item(self) -> str: ...
    @property
    def value(self) -> Json: ...
    @property
    def text(self) -> str: ...
    @property
    def has_sound(self) -> bool: ...


@dataclass(slots=True)
class SpokenLine:
    """What one side said. `sounds` are the places of the messages that have its sound."""

    who: Speaker
    at_ms: float
    until_ms: float
    text: str = ""
    name: str = ""
    failed: bool = False
    interrupted: bool = False
    sounds: list[int] = field(default_factory=list)
    """Words and sounds grow; a tool's call and an error come at once."""


def ends_turn(kind: str, value: Json) -> bool:
    """Whether a message ends what both sides were saying."""
    content = fields(fields(value).get("serverContent"))
    return kind == _COMMITTED or bool(content.get("turnComplete") or content.get("interrupted"))


def spoken(messages: Sequence[SessionPiece]) -> list[SpokenLine]:
    """The lines of a session; empty for a session in which nothing is known to be said."""
    reading = _Reading()
    for place, message in enumerate(messages):
        reading.add(place, message)
    return reading.finished(messages)


class _Reading:
    def __init__(self) -> None:
        self.lines: list[SpokenLine] = []
        self._open: dict[tuple[Speaker, str], SpokenLine] = {}
        self._heard: list[int] = []
        """Sounds of the client that no line has yet."""
        self._commits = False
        self._calls: dict[str, str] = {}

    def add(self, place: int, message: SessionPiece) -> None:
        if message.by_client and message.has_sound:
            self._heard.append(place)
        elif message.value is None:
            self._piece(place, message)
        elif message.by_client:
            self._of_client(message, fields(message.value))
        else:
            self._of_service(message, fields(message.value))

    def finished(self, messages: Sequence[SessionPiece]) -> list[SpokenLine]:
        if self._heard and not self._commits:
            self._line("you", "", messages[self._heard[0]])
        for line in self.lines:
            # Somebody began to speak when the first sound came.
            line.at_ms = min([line.at_ms, *[messages[place].at_ms for place in line.sounds]])
        return [line for line in self.lines if line.text.strip() or line.sounds or line.name]

    def _line(self, who: Speaker, item: str, message: SessionPiece) -> SpokenLine:
        """The line that a side is saying now, or a new one."""
        found = self._open.get((who, item))
        if found is None:
            if who == "assistant" and self._heard and not self._commits:
                self._line("you", "", message)
            found = self._open[who, item] = self._said(who, "", message)
            if who == "you":
                found.sounds, self._heard = self._heard, []
        found.until_ms = max(found.until_ms, message.until_ms)
        return found

    def _said(self, who: Speaker, text: str, message: SessionPiece, name: str = "") -> SpokenLine:
        line = SpokenLine(who, message.at_ms, message.until_ms, text, name)
        self.lines.append(line)
        return line

    def _piece(self, place: int, message: SessionPiece) -> None:
        kind = message.type
        if message.by_client or not (kind.endswith(".delta") or kind.startswith("serverContent")):
            return
        if kind == "response.function_call_arguments.delta":
            return
        heard = kind.startswith(_TRANSCRIBED) or kind == "serverContent inputTranscription"
        line = self._line("you" if heard else "assistant", message.item, message)
        line.text += message.text
        if message.has_sound:
            line.sounds.append(place)

    def _of_client(self, message: SessionPiece, value: dict[str, Json]) -> None:
        item = fields(value.get("item"))
        if item.get("type") == "function_call_output":
            self._result(message, item.get("output"), string(item.get("call_id")))
        elif message.type == "conversation.item.create":
            words = _words(item.get("content"))
            self._said(_ROLES.get(string(item.get("role")), "you"), words, message)
        for turn in objects(fields(value.get("clientContent")).get("turns")):
            who: Speaker = "assistant" if turn.get("role") == "model" else "you"
            self._said(who, _words(turn.get("parts")), message)
        if written := string(fields(value.get("realtimeInput")).get("text")):
            self._said("you", written, message)
        for result in objects(fields(value.get("toolResponse")).get("functionResponses")):
            self._calls.setdefault(string(result.get("id")), string(result.get("name")))
            self._result(message, result.get("response"), string(result.get("id")))

    def _of_service(self, message: SessionPiece, value: dict[str, Json]) -> None:
        kind, item = message.type, string(value.get("item_id"))
        if kind == _COMMITTED:
            self._commits = True
            self._line("you", item, message)
        elif kind.startswith(_TRANSCRIBED) and (words := string(value.get("transcript"))):
            self._line("you", item, message).text = words
        elif kind.endswith(".done") and (words := _whole(value)):
            line = self._line("assistant", item, message)
            line.text = line.text or words
        elif kind == "conversation.item.truncated":
            for (_, open_item), line in self._open.items():
                line.interrupted = line.interrupted or open_item == item
        elif kind == "error":
            self._said("error", error_of(value) or error_of({"error": value}), message)
        self._call(message, fields(value.get("item")), "arguments")
        for call in objects(fields(value.get("toolCall")).get("functionCalls")):
            self._call(message, {"type": "function_call", **call}, "args")
        self._server_content(message, fields(value.get("serverContent")))
        if kind == "response.done" or ends_turn("", value):
            self._open = {key: line for key, line in self._open.items() if key[1]}

    def _server_content(self, message: SessionPiece, content: dict[str, Json]) -> None:
        """What came together with the end of a turn."""
        if words := string(fields(content.get("inputTranscription")).get("text")):
            self._line("you", "", message).text += words
        said = string(fields(content.get("outputTranscription")).get("text"))
        if words := said or _words(fields(content.get("modelTurn")).get("parts")):
            self._line("assistant", "", message).text += words
        if content.get("interrupted") and (line := self._open.get(("assistant", ""))):
            line.interrupted = True

    def _call(self, message: SessionPiece, item: dict[str, Json], arguments: str) -> None:
        identifier = string(item.get("call_id")) or string(item.get("id"))
        whole = message.type in ("response.output_item.done", "toolCall")
        if item.get("type") != "function_call" or not whole or identifier in self._calls:
            return
        name, given = string(item.get("name")), item.get(arguments)
        self._calls[identifier] = name
        self._said("tool call", given if isinstance(given, str) else _json(given), message, name)

    def _result(self, message: SessionPiece, output: Json, identifier: str) -> None:
        text = output if isinstance(output, str) else _json(output)
        result: ContentPart = tool_result(text, identifier, self._calls.get(identifier, ""))
        self._said("tool result", text, message, result.name).failed = result.failed


def _json(value: Json) -> str:
    return "" if value is None else dump(value).decode()


def _words(content: Json) -> str:
    return "\n".join(filter(None, _texts(content)))


def _texts(content: Json) -> Iterator[str]:
    for part in objects(content):
        yield string(part.get("text")) or string(part.get("transcript"))


def _whole(value: dict[str, Json]) -> str:
    """The words of an answer that came as a whole."""
    return string(value.get("transcript")) or string(value.get("text"))
