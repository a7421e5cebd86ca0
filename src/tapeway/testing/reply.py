"""The reply of the simulated model: an echo, tool calls, or JSON for a schema.

The reply depends only on the conversation: equal requests get equal text. Ids and times come from a
`StandInState`.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import orjson

from tapeway.testing.request import (
    JsonObject,
    StandInRequest,
    at,
    list_at,
    objects_at,
    text_at,
    tokens,
)

ALL_AT_ONCE = "at once"
IN_PAIRS = "in pairs"
_USE = re.compile(r"\buse ([\w-]+) (?=\{)")


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the client offers."""

    name: str
    parameters: object


@dataclass(frozen=True, slots=True)
class PendingTurn:
    """The end of a conversation: the last user text and the tool results since."""

    prompt: str
    tools: tuple[Tool, ...] = ()
    results: tuple[str, ...] = ()
    schema: object = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for."""

    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class Reply:
    """Either text or tool calls."""

    text: str
    calls: tuple[ToolCall, ...] = ()

    @property
    def tokens(self) -> int:
        """The tokens of the text and of the names of the tools."""
        return tokens(self.text + "".join([wanted.name for wanted in self.calls]))


def reply_to(call: StandInRequest, turn: PendingTurn) -> Reply:
    """Call each tool in turn, then answer with the results in the order of the calls.

    All are called together if the prompt contains "at once", two at a time for "in pairs"; for
    `use NAME {"…": …}` only the named tool, with the arguments. With a schema the answer is valid
    JSON. The model `reflect` repeats the caller's key.
    """
    if call.model == "reflect":
        return Reply(f"Your key is {call.credential} — is it not?")
    if (named := _named_call(turn)) is not None:
        if not turn.results:
            return Reply("", (named,))
    elif wanted := _wanted(turn):
        calls = tuple(ToolCall(t.name, _arguments(t.parameters, turn.prompt)) for t in wanted)
        return Reply("", calls)
    if turn.schema is not None:
        return Reply(orjson.dumps(sample(turn.schema, turn.prompt)).decode())
    if turn.results:
        return Reply(f"The tools say: {'; '.join(turn.results)}. That is naïve but true ✓ 🎉")
    return Reply(f"You said “{turn.prompt}”. Here is a café, 日本語 and a 🎉 for it.")


def _named_call(turn: PendingTurn) -> ToolCall | None:
    """The call that the prompt asks for by the name of a tool and its arguments."""
    for match in _USE.finditer(turn.prompt):
        if any(tool.name == match[1] for tool in turn.tools):
            with suppress(json.JSONDecodeError):
                arguments, _ = json.JSONDecoder().raw_decode(turn.prompt, match.end())
                return ToolCall(match[1], arguments)
    return None


def _wanted(turn: PendingTurn) -> tuple[Tool, ...]:
    answered = len(turn.results)
    if ALL_AT_ONCE in turn.prompt:
        return () if answered else turn.tools
    if IN_PAIRS in turn.prompt:
        return turn.tools[answered : answered + 2]
    return turn.tools[answered : answered + 1]


def _arguments(parameters: object, prompt: str) -> JsonObject:
    made = sample(parameters, prompt)
    return made if isinstance(made, dict) else {}


def sample(schema: object, prompt: str) -> object:
    """A value that fits the JSON schema; its strings are the prompt."""
    if choices := list_at(schema, "enum") or list_at(schema, "anyOf"):
        return sample(choices[0], prompt) if isinstance(choices[0], dict) else choices[0]
    kind = at(schema, "type")
    match kind.lower() if isinstance(kind, str) else kind:
        case "object":
            properties = at(schema, "properties")
            known = properties.items() if isinstance(properties, dict) else ()
            return {name: sample(part, prompt) for name, part in known}
        case "array":
            return [sample(at(schema, "items"), prompt)]
        case "integer":
            return len(prompt)
        case "number":
            return len(prompt) + 0.5
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return prompt


def pieces(text: str) -> list[str]:
    """The text in words for a stream, each with the blanks before the word."""
    return re.findall(r"\s*\S+|\s+$", text)


def slices(text: str) -> list[str]:
    """The text in parts of equal length, as tool arguments are streamed."""
    return [text[start : start + 7] for start in range(0, len(text), 7)]


def tools_of(offered: Iterable[object], *schema: str) -> tuple[Tool, ...]:
    """The tools in these objects, each with its schema at that path."""
    return tuple([Tool(text_at(tool, "name"), at(tool, *schema)) for tool in offered])


def function_tools(body: JsonObject) -> tuple[Tool, ...]:
    """The tools of a request that wraps each in a `function`."""
    return tools_of([at(tool, "function") for tool in objects_at(body, "tools")], "parameters")


def vector(text: str, dimensions: int) -> list[float]:
    """An embedding of the text; every number is exact as a 32-bit float."""
    raw = hashlib.shake_256(text.encode()).digest(dimensions * 2)
    return [
        int.from_bytes(raw[start : start + 2], "big", signed=True) / 32768
        for start in range(0, len(raw), 2)
    ]


class InvalidToolResult(Exception):
    """A tool result for no call; the message is the provider's."""


class Conversation:
    """A conversation that is read: the last user text, the calls since, and their results."""

    def __init__(self, unknown: str = "") -> None:
        """`unknown` is the message for a result without a call, with `{}` for its id.

        Without a message, results need no calls.
        """
        self._unknown = unknown
        self._prompt = ""
        self._results: dict[str, str | None] = {}

    def said(self, prompt: str) -> None:
        """Take a user text. It begins a new turn: the calls before it do not count."""
        self._prompt = prompt
        self._results.clear()

    def called(self, call_id: str) -> None:
        """Expect a result under that id."""
        self._results[call_id] = None

    def answered(self, call_id: str, text: str) -> None:
        """Take the result of a call. Raises InvalidToolResult for an unknown call."""
        if self._unknown and call_id not in self._results:
            raise InvalidToolResult(self._unknown.format(call_id))
        self._results[call_id] = text

    def turn(self, tools: tuple[Tool, ...], schema: object = None) -> PendingTurn:
        """The turn that is to be answered, with the results in the order of the calls."""
        results = [text for text in self._results.values() if text is not None]
        return PendingTurn(self._prompt, tools, tuple(results), schema)


@dataclass(frozen=True, slots=True)
class StandInState:
    """Random values, time, and objects that earlier calls created. A test fixes the first two."""

    token_hex: Callable[[int], str] = secrets.token_hex
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    documents: dict[str, JsonObject] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    def new_id(self, prefix: str, length: int = 24) -> str:
        """A new id of `length` hexadecimal digits behind the prefix."""
        return prefix + self.token_hex((length + 1) // 2)[:length]

    def seconds(self) -> int:
        """The time as the providers put it into `created`."""
        return int(self.now().timestamp())
