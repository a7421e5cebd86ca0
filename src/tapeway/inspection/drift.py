"""The differences in form between a new and a recorded answer: fields and their types.

The words of an LLM differ each time; the fields around the words are the interface. A field of
another type breaks a client that was tested with the recording. A missing field may break a client,
an additional field does not.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tapeway.conversations.meaning import is_stream
from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json, NotJson, parse
from tapeway.core.model.messages import Response
from tapeway.core.model.request_fields import media_type
from tapeway.core.streams.documents import documents

Level = Literal["error", "warning", "info"]

_FREE = frozenset({"args", "arguments", "input", "metadata"})
"""Fields whose content has a form given by the app or the model."""

_Path = tuple[str, ...]
_Form = Mapping[_Path, frozenset[str]]
"""The types of the values at each path."""

_ELEMENT = "[]"
_NULL = "null"
_NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Drift:
    """A place where the form differs, with the recorded value and the present value."""

    level: Level
    path: str
    recorded: str
    live: str


def drift(recorded: Response, live: Response) -> tuple[Drift, ...]:
    """Where a new answer has another form: the status and the type first, then fields by path."""
    for path, old, new in (
        ("status", str(recorded.status), str(live.status)),
        ("content-type", _media(recorded), _media(live)),
    ):
        if old != new:
            # The rest is another thing altogether.
            return (Drift("error", path, old, new),)
    return tuple(_differences(_form(recorded), _form(live)))


def _differences(recorded: _Form, live: _Form) -> Iterator[Drift]:
    for path, types in recorded.items():
        if path in live:
            yield from _changed(_shown(path), types, live[path])
        elif _is_news(path, live):
            yield Drift("warning", _shown(path), _named(types), _NOTHING)
    for path, types in live.items():
        if path not in recorded and _is_news(path, recorded):
            yield Drift("info", _shown(path), _NOTHING, _named(types))


def _changed(path: str, recorded: frozenset[str], live: frozenset[str]) -> Iterator[Drift]:
    known, now = recorded - {_NULL}, live - {_NULL}
    if known and now and not known & now:
        yield Drift("error", path, _named(recorded), _named(live))
    elif known and not now:
        yield Drift("info", path, _named(recorded), _named(live))


def _is_news(path: _Path, other: _Form) -> bool:
    """Whether the parent is an object on the other side too.

    Otherwise that has been said of the parent, or it is a list that happens to be empty.
    """
    if path[-1] == _ELEMENT:
        return False
    return len(path) == 1 or "object" in other.get(path[:-1], frozenset())


def _form(response: Response) -> _Form:
    """The types at each path of an answer; those of a stream's events by the type of the event."""
    types_of: dict[_Path, set[str]] = {}
    streamed = is_stream(response)
    for text in documents(response):
        try:
            value = parse(text)
        except NotJson:
            continue
        kind = value.get("type") if isinstance(value, dict) else None
        start = "body" if not streamed else f"events({kind})" if isinstance(kind, str) else "events"
        _add((start,), value, types_of)
    return {path: frozenset(types) for path, types in types_of.items()}


def _add(path: _Path, value: Json, types_of: dict[_Path, set[str]]) -> None:
    types_of.setdefault(path, set()).add(_type(value))
    if isinstance(value, dict) and path[-1] not in _FREE:
        for name, member in value.items():
            _add((*path, name), member, types_of)
    elif isinstance(value, list):
        for item in value:
            _add((*path, _ELEMENT), item, types_of)


def _shown(path: _Path) -> str:
    return ".".join(path).replace(f".{_ELEMENT}", _ELEMENT)


def _type(value: Json) -> str:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "list" if isinstance(value, list) else "object"


def _named(types: frozenset[str]) -> str:
    return " or ".join(sorted(types))


def _media(response: Response) -> str:
    media = media_type(find_header(response.headers, b"content-type") or b"")
    return media.decode("ascii", "replace") or _NOTHING
