"""Answers written by hand that repeat a part of the request, name a time or a new id.

Such an answer is a body of JSON. At the place of a value it has `{"$request": "body.id"}`,
`{"$now": "+3600"}` or `{"$uuid": "a"}`. There is no more to it: no conditions and no expressions.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from tapeway.core.json_text import Json, dump, parse
from tapeway.core.matching.document import body_value, decoded_path, key_headers, query_values
from tapeway.core.matching.json_paths import PathFault, Steps, parse_path
from tapeway.core.model.messages import NO_CHUNK_TIMES, Request, Response

_OFFSET: Final = re.compile(r"[+-][0-9]{1,12}")


class TemplateFault(ValueError):
    """A template that cannot be filled; the message says what and where."""


@dataclass(slots=True)
class Filling:
    """What one answer is filled with: the request, the time in seconds, and ids by their names."""

    request: Request
    now: float
    new_id: Callable[[], str]
    ids: dict[str, str] = field(default_factory=dict)
    _document: dict[str, Json] | None = None

    def value(self, kind: str, argument: str) -> Json:
        """The value that stands for `{kind: argument}`. Raises TemplateFault."""
        if kind == "$now":
            return int(self.now) + int(argument)
        if kind == "$uuid":
            if argument not in self.ids:
                self.ids[argument] = self.new_id()
            return self.ids[argument]
        if self._document is None:
            self._document = _document(self.request)
        value: Json = self._document
        for step in _steps(argument):
            if isinstance(value, dict) and step in value:
                value = value[str(step)]
            elif isinstance(value, list) and isinstance(step, int) and step < len(value):
                value = value[step]
            else:
                raise TemplateFault(f"the request has nothing at {argument}")
        return value


def _document(request: Request) -> dict[str, Json]:
    path, _, query = request.target.partition("?")
    return {
        "method": request.method,
        "path": decoded_path(path),
        "query": query_values(query),
        "headers": key_headers(request.headers),
        "body": body_value(request)[1],
    }


def check_template(value: Json) -> None:
    """Raise TemplateFault where a JSON value cannot be a template."""
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        check_template(inner)
    if (found := _placeholder(value)) is None:
        return
    kind, argument = found
    if not isinstance(argument, str):
        raise TemplateFault(f"what {kind} names is no text")
    if kind == "$now" and not _OFFSET.fullmatch(argument):
        raise TemplateFault(f"'{argument}' is no offset in seconds, as +3600")
    if kind == "$request":
        _steps(argument)


def filled(response: Response, filling: Filling) -> Response:
    """The response with a template's body filled. Raises TemplateFault."""
    body = dump(_filled(parse(response.body), filling))
    return replace(response, body=body, chunk_times=NO_CHUNK_TIMES)


def _filled(value: Json, filling: Filling) -> Json:
    if (found := _placeholder(value)) is not None and isinstance(found[1], str):
        return filling.value(found[0], found[1])
    if isinstance(value, dict):
        return {name: _filled(member, filling) for name, member in value.items()}
    return [_filled(item, filling) for item in value] if isinstance(value, list) else value


def _placeholder(value: Json) -> tuple[str, Json] | None:
    if isinstance(value, dict) and len(value) == 1:
        ((kind, argument),) = value.items()
        if kind in ("$request", "$now", "$uuid"):
            return kind, argument
    return None


def _steps(path: str) -> Steps:
    try:
        steps = parse_path(path)
    except PathFault as exc:
        raise TemplateFault(str(exc)) from exc
    plain = tuple([step for step in steps if isinstance(step, str | int)])
    if len(plain) != len(steps):
        raise TemplateFault(f"'{path}' leads to more than one value")
    return plain
