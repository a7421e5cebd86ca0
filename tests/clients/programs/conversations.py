"""The JSON of a conversation in any provider's words: taken apart, and said in another way."""

from collections.abc import Callable, Iterator
from typing import Any

from tests.clients.programs.agent_tools import PROMPT

RESULTS = (
    ("role", "tool", "content"),
    ("type", "function_call_output", "output"),
    ("type", "tool_result", "content"),
)
ID_KEYS = ("id", "call_id", "tool_call_id", "tool_use_id", "previous_response_id")


def reordered(value: Any) -> Any:
    """The same JSON with every object's keys the other way round."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


def renamed(value: Any, names: dict[str, str]) -> Any:
    """The same JSON with other names for its identifiers."""
    if isinstance(value, dict):
        return {
            key: names.get(part, part)
            if key in ID_KEYS and isinstance(part, str)
            else renamed(part, names)
            for key, part in value.items()
        }
    return [renamed(item, names) for item in value] if isinstance(value, list) else value


def identifiers(value: Any) -> list[str]:
    """What the conversation calls its turns and calls, in order."""
    found = [
        part
        for holder in objects(value)
        for key, part in holder.items()
        if key in ID_KEYS and isinstance(part, str)
    ]
    return list(dict.fromkeys(found))


def swap_results(body: Any) -> bool:
    """Tell the first two results under each other's call; whether there were two."""
    slots = [
        (part, key)
        for part in objects(body)
        for name, kind, key in RESULTS
        if part.get(name) == kind
    ]
    slots += [
        (part["functionResponse"], "response")
        for part in objects(body)
        if "functionResponse" in part
    ]
    if len(slots) < 2:
        return False
    (first, a), (second, b) = slots[:2]
    first[a], second[b] = second[b], first[a]
    return True


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in the tree, from the outside in."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list):
            yield from objects(part)


def paths(one: Any, other: Any, path: str = "body") -> list[str]:
    """Where two JSON values differ, in the language of rules."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            found
            for key in one | other
            for found in (
                paths(one[key], other[key], f"{path}.{key}")
                if key in one and key in other
                else [f"{path}.{key}"]
            )
        ]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [found for i, (a, b) in pairs for found in paths(a, b, f"{path}[{i}]")]
    return [] if one == other else [path]


def _another_word(body: Any) -> None:
    (said,) = [
        (part, key)
        for part in objects(body)
        for key in ("content", "text")
        if part.get(key) == PROMPT
    ]
    said[0][said[1]] = PROMPT.replace("trip", "journey")


def _another_tool(body: Any) -> None:
    tool = next(part for part in objects(body["tools"]) if "name" in part)
    tool["description"] = "Ask for it."


def _another_temperature(body: Any) -> None:
    config = body.setdefault("generationConfig", {}) if "contents" in body else body
    config["temperature"] = 0.5


def _streamed_or_not(body: Any) -> None:
    body["stream"] = not body.get("stream", False)


CHANGES: dict[str, Callable[[Any], None]] = {
    "a word of the prompt": _another_word,
    "a tool": _another_tool,
    "the temperature": _another_temperature,
    "stream": _streamed_or_not,
}
