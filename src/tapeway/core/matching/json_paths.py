"""Paths into a JSON value, as rules, differences and suggestions write them.

`body.messages[2].content`, `query["odd key"]`; in a rule also `[*]` or `*` for any element or key,
`**` for any number of levels, and `[role=system]` for the objects that have this text in a field.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from tapeway.core.json_text import Json


class Wild(Enum):
    """A step that matches several: any one element or key, or any number of levels."""

    ONE = "*"
    ANY_DEPTH = "**"


@dataclass(frozen=True, slots=True)
class Having:
    """A step to each object of a list, or of an object, that has this text in a field."""

    field: str
    text: str

    def fits(self, value: Json) -> bool:
        return isinstance(value, dict) and value.get(self.field) == self.text


ONE: Final = Wild.ONE
ANY_DEPTH: Final = Wild.ANY_DEPTH

Step: TypeAlias = str | int | Wild | Having
Path: TypeAlias = tuple[Step, ...]
Steps: TypeAlias = tuple[str | int, ...]
"""A path that leads to one value."""

# One step at a position. A quoted key is a JSON string, so that any key can be written.
_STEP = re.compile(
    r'\.?(?P<wild>\*\*?)(?=[.\[]|\Z)|\.?(?P<name>[^.\[\]"*\s](?:[^.\[\]"*\x00-\x1f]*[^.\[\]"*\s])?)'
    r'|\[(?P<field>[^.\[\]"*\s=]+)=(?P<text>[^\[\]"*\s=]+)\]'
    r'|\[(?P<index>[0-9]{1,9})\]|(?P<each>\[\*\])|\[(?P<key>"(?:[^"\\]|\\.)*")\]'
)
_UNQUOTED_KEY = re.compile(r'[^.\[\]"*\s\x00-\x1f]+')


class PathFault(ValueError):
    """A malformed path, and where it is wrong."""


def parse_path(text: str) -> Path:
    """The steps of a path. Raises PathFault."""
    steps: list[Step] = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        # Only the first step may begin without a dot, and must.
        dotted = match is not None and match[0].startswith(".")
        bare = match is not None and match.lastgroup in ("wild", "name")
        if match is None or (bare and dotted == (at == 0)):
            raise PathFault(f"'{text}' cannot be parsed from '{text[at:]}'")
        steps.append(_step(match, text))
        at = match.end()
    if not steps:
        raise PathFault("a path cannot be empty")
    return tuple(steps)


def path_text(path: Sequence[Step]) -> str:
    """A path as people write it; `parse_path` reads it back."""
    return "".join([_step_text(step) for step in path]).removeprefix(".")


def without_paths(value: Json, paths: Sequence[Path]) -> Json:
    """A copy of the value without the elements at these paths."""
    if not paths or not isinstance(value, dict | list):
        return value
    expanded = _expanded(paths)
    if isinstance(value, dict):
        kept: dict[str, Json] = {}
        for key, member in value.items():
            if (rest := _rests_of_paths(expanded, key, member)) is not None:
                kept[key] = without_paths(member, rest)
        return kept
    left: list[Json] = []
    for index, item in enumerate(value):
        if (rest := _rests_of_paths(expanded, index, item)) is not None:
            left.append(without_paths(item, rest))
    return left


def changed_at(value: Json, path: Path, change: Callable[[Json], Json]) -> Json:
    """A copy of the value with what is at a path changed."""
    if not path:
        return change(value)
    head, rest = path[0], path[1:]
    if head is ANY_DEPTH:
        value, rest = changed_at(value, rest, change), path
    if isinstance(value, dict):
        return {
            key: changed_at(member, rest, change) if _takes(head, key, member) else member
            for key, member in value.items()
        }
    if isinstance(value, list):
        return [
            changed_at(item, rest, change) if _takes(head, index, item) else item
            for index, item in enumerate(value)
        ]
    return value


def value_at(document: Json, steps: Steps) -> Json:
    """The value at a place of a document that has it."""
    for step in steps:
        if isinstance(document, dict):
            document = document[str(step)]
        elif isinstance(document, list):
            document = document[int(step)]
    return document


def text_at(document: Json, steps: Steps) -> str:
    """The text at a place, or how JSON writes what is there."""
    value = value_at(document, steps)
    return value if isinstance(value, str) else json.dumps(value)


def texts_at(document: Json, path: Path) -> Iterator[str]:
    """Every text that a path leads to, and how JSON writes any other plain value there."""
    if not path:
        if not isinstance(document, dict | list):
            yield document if isinstance(document, str) else json.dumps(document)
        return
    step, rest = path[0], path[1:]
    if step is ANY_DEPTH:
        yield from texts_at(document, rest)
        step, rest = ONE, path
    if isinstance(document, dict):
        for name, member in document.items():
            if _takes(step, name, member):
                yield from texts_at(member, rest)
    elif isinstance(document, list):
        for at, item in enumerate(document):
            if _takes(step, at, item):
                yield from texts_at(item, rest)


def with_value(document: Json, steps: Steps, value: Json) -> Json:
    """A copy of a document with another value at a place."""
    if not steps:
        return value
    first, rest = steps[0], steps[1:]
    if isinstance(document, dict):
        return document | {str(first): with_value(document[str(first)], rest, value)}
    if isinstance(document, list):
        at = int(first)
        return [*document[:at], with_value(document[at], rest, value), *document[at + 1 :]]
    return document


def texts_in(value: Json, steps: Steps = ()) -> Iterator[tuple[Steps, str]]:
    """Every text in a document, with its place."""
    if isinstance(value, str):
        yield steps, value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from texts_in(member, (*steps, name))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from texts_in(item, (*steps, at))


def outline(value: Json) -> Json:
    """A document without its values: what is left are names and lengths of lists."""
    # A call for each plain value would take most of the time.
    if isinstance(value, dict):
        return {
            name: outline(member) if isinstance(member, dict | list) else None
            for name, member in value.items()
        }
    if isinstance(value, list):
        return [outline(item) if isinstance(item, dict | list) else None for item in value]
    return None


def _expanded(paths: Sequence[Path]) -> list[Path]:
    """The paths, and each path that begins with `**` also without: `**` may match no level."""
    expanded: list[Path] = []
    for path in paths:
        expanded.append(path)
        while len(path) > 1 and path[0] is ANY_DEPTH:
            path = path[1:]
            expanded.append(path)
    return expanded


def _takes(head: Step, step: str | int, value: Json) -> bool:
    """Whether a step of a path matches a step of the document that leads to `value`."""
    if isinstance(head, Having):
        return head.fits(value)
    return isinstance(head, Wild) or head == step


def _rests_of_paths(paths: Sequence[Path], step: str | int, value: Json) -> list[Path] | None:
    """The rest of each path that matches the step, None if a path ends here."""
    behind: list[Path] = []
    for path in paths:
        head = path[0]
        if head is ANY_DEPTH:
            if len(path) == 1:
                return None
            behind.append(path)
        elif _takes(head, step, value):
            if len(path) == 1:
                return None
            behind.append(path[1:])
    return behind


def _step(match: "re.Match[str]", text: str) -> Step:
    if match["wild"]:
        return Wild(match["wild"])
    if match["each"]:
        return ONE
    if match["field"]:
        return Having(match["field"], match["text"])
    if match["index"]:
        return int(match["index"])
    if match["name"]:
        return match["name"]
    try:
        key: str = json.loads(match["key"])
    except ValueError:
        raise PathFault(f"'{text}' has a quoted key that is no JSON string") from None
    return key


def _step_text(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if isinstance(step, Having):
        return f"[{step.field}={step.text}]"
    if isinstance(step, Wild):
        return f".{step.value}"
    return (
        f".{step}" if _UNQUOTED_KEY.fullmatch(step) else f"[{json.dumps(step, ensure_ascii=False)}]"
    )
