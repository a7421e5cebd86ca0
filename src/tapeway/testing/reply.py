"""What the pretended model says: an echo, a tool call, or JSON after a schema.

It is a function of the conversation alone, so equal requests get equal words.
"""

import hashlib
import re
from dataclasses import dataclass

import orjson

from tapeway.testing.call import Call
from tapeway.testing.json_tree import JsonObject, at, list_at

ALL_AT_ONCE = "at once"
IN_PAIRS = "in pairs"


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the client offers."""

    name: str
    parameters: object


@dataclass(frozen=True, slots=True)
class Turn:
    """The end of a conversation: the last user text and what tools have answered since."""

    prompt: str
    tools: tuple[Tool, ...] = ()
    results: tuple[str, ...] = ()
    schema: object = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the model wants called."""

    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class Reply:
    """Either words or tool calls."""

    text: str
    calls: tuple[ToolCall, ...] = ()


def reply_to(call: Call, turn: Turn) -> Reply:
    """Ask for each tool in turn, then answer with what they said, in the order of the calls.

    All are asked for together if the prompt says "at once", two at a time if it says "in pairs".

    With a schema the answer is JSON that fits it. A model named `reflect` repeats the key.
    """
    if call.model == "reflect":
        return Reply(f"Your key is {call.credential} — is it not?")
    wanted = _wanted(turn)
    if wanted:
        calls = tuple(ToolCall(t.name, _arguments(t.parameters, turn.prompt)) for t in wanted)
        return Reply("", calls)
    if turn.schema is not None:
        return Reply(orjson.dumps(sample(turn.schema, turn.prompt)).decode())
    if turn.results:
        return Reply(f"The tools say: {'; '.join(turn.results)}. That is naïve but true ✓ 🎉")
    return Reply(f"You said “{turn.prompt}”. Here is a café, 日本語 and a 🎉 for it.")


def _wanted(turn: Turn) -> tuple[Tool, ...]:
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
    """The text in the words a stream brings it in, blanks in front."""
    return re.findall(r"\s*\S+|\s+$", text)


def slices(text: str, length: int = 7) -> list[str]:
    """The text in parts of equal length, as tool arguments are streamed."""
    return [text[start : start + length] for start in range(0, len(text), length)]


def tokens(text: str) -> int:
    """A count of tokens that grows with the text."""
    return max(1, (len(text) + 3) // 4)


def vector(text: str, dimensions: int) -> list[float]:
    """An embedding of the text; every number is exact as a 32-bit float."""
    raw = hashlib.shake_256(text.encode()).digest(dimensions * 2)
    return [
        int.from_bytes(raw[start : start + 2], "big", signed=True) / 32768
        for start in range(0, len(raw), 2)
    ]
