"""A YAML text read as a JSON value, and the lines its values stand on."""

from collections.abc import Callable, Iterator

from tapeway.core.json_text import Json
from tapeway.formats.fault import FormatFault, Pointer
from tapeway.formats.yaml_scalar import resolve
from tapeway.formats.yaml_steps import NO_TAGS, Step, Tags, steps


def parse(text: bytes, tags: Tags = NO_TAGS, meaning: Callable[[str], Json] = resolve) -> Json:
    """The value. Raises FormatFault with line and reason where there is none that JSON could hold.

    A key is the text that stands there, also `1` or `true`; a repeated one is refused.
    """
    composer = _Composer(meaning)
    for step in steps(text, tags):
        composer.take(step)
    return composer.value


def line_of(text: bytes, pointer: Pointer, tags: Tags = NO_TAGS) -> int:
    """The line of the value, or of the innermost one around it that is there; counted from 1."""
    best, depth = 1, -1
    for place, line in _lines(text, tags):
        if len(place) > depth and pointer[: len(place)] == place:
            best, depth = line, len(place)
    return best


class _Composer:
    def __init__(self, meaning: Callable[[str], Json]) -> None:
        self.value: Json = None
        self._meaning = meaning
        self._open: list[dict[str, Json] | list[Json]] = []
        self._keys: list[str | None] = []

    def take(self, step: Step) -> None:
        kind, text, quoted, line = step
        if kind == "end":
            self._open.pop()
            self._keys.pop()
        elif self._open and isinstance(self._open[-1], dict) and self._keys[-1] is None:
            self._name(step, self._open[-1])
        elif kind == "text":
            self._put(text if quoted else self._resolved(text, line))
        else:
            container: dict[str, Json] | list[Json] = {} if kind == "object" else []
            self._put(container)
            self._open.append(container)
            self._keys.append(None)

    def _name(self, step: Step, into: dict[str, Json]) -> None:
        if step.kind != "text":
            raise FormatFault("a key must be text", self._place(), line=step.line)
        if step.text in into:
            place = (*self._place(), step.text)
            raise FormatFault("a key stands twice in one object", place, line=step.line)
        self._keys[-1] = step.text

    def _put(self, value: Json) -> None:
        if not self._open:
            self.value = value
            return
        into, key = self._open[-1], self._keys[-1]
        if isinstance(into, list):
            into.append(value)
        elif key is not None:
            into[key] = value
            self._keys[-1] = None

    def _resolved(self, text: str, line: int) -> Json:
        try:
            return self._meaning(text)
        except ValueError as exc:
            raise FormatFault(str(exc), self._place(here=True), line=line) from None

    def _place(self, *, here: bool = False) -> Pointer:
        # A name stays in `_keys` only until its value is put: those of what is open are sought.
        steps: list[str | int] = []
        for outer, inner in zip(self._open, self._open[1:], strict=False):
            if isinstance(outer, list):
                steps.append(len(outer) - 1)
            else:
                steps.append(next(name for name, value in outer.items() if value is inner))
        if here and self._open:
            into, key = self._open[-1], self._keys[-1]
            steps.append(len(into) if key is None else key)
        return tuple(steps)


def _lines(text: bytes, tags: Tags) -> Iterator[tuple[Pointer, int]]:
    path: list[str | int | None] = []
    key_line = 0
    for kind, said, _, line in steps(text, tags):
        if kind == "end":
            path.pop()
            _pass_on(path)
        elif path and path[-1] is None:
            path[-1], key_line = said, line
        else:
            # A value below its key stands, for people, where the key does.
            under_key = bool(path) and isinstance(path[-1], str)
            place = tuple([each for each in path if each is not None])
            yield place, key_line if under_key else line
            if kind == "text":
                _pass_on(path)
            else:
                path.append(None if kind == "object" else 0)


def _pass_on(path: list[str | int | None]) -> None:
    if path:
        last = path[-1]
        path[-1] = last + 1 if isinstance(last, int) else None
