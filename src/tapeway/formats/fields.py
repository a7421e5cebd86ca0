"""A JSON object read field by field; a wrong field is reported with the place."""

import base64
import binascii
import math
from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

from tapeway.core.json_text import Json, Pointer
from tapeway.core.text import nearest_names
from tapeway.formats.errors import FormatFault

Document = dict[str, Json]
"""A JSON object of a file: an interaction, or the root around all of them."""

T = TypeVar("T")

_EXACT_MS = 1_000_000
"""Below, the thousandths of a number are known to better than a thousandth."""


class Fields:
    """The fields of one object. A field that is missing or null has the default value.

    Every method that reads a field raises FormatFault for a value of another type.
    """

    __slots__ = ("at", "values")

    def __init__(self, values: Mapping[str, Json], at: Pointer) -> None:
        self.values = values
        self.at = at

    @classmethod
    def of(cls, value: Json, at: Pointer) -> "Fields":
        if not isinstance(value, dict):
            raise FormatFault(f"must be an object, not {_kind(value)}", at)
        return cls(value, at)

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def fault(self, name: str, reason: str) -> FormatFault:
        return FormatFault(reason, (*self.at, name))

    def only(self, known: Collection[str]) -> None:
        """Raise FormatFault for any other field, suggesting the nearest name."""
        for name in self.values:
            if name not in known:
                names = list(known)
                near = nearest_names(name, names)
                advice = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(names)}"
                raise self.fault(name, f"there is no such field; {advice}")

    def require(self, *names: str) -> None:
        for name in names:
            if self.values.get(name) is None:
                raise FormatFault(f"the field '{name}' is missing", self.at)

    def text(self, name: str, default: str = "") -> str:
        value = self.values.get(name)
        # Most fields are texts, and present.
        return value if isinstance(value, str) else self._typed(name, str, "text", default)

    def flag(self, name: str) -> bool:
        return self._typed(name, bool, "true or false", default=False)

    def list(self, name: str) -> "list[Json]":
        items: list[Json] = self._typed(name, list, "a list", [])
        return items

    def object(self, name: str) -> "Fields":
        members: dict[str, Json] = self._typed(name, dict, "an object", {})
        return Fields(members, (*self.at, name))

    def objects(self, name: str) -> "Iterator[Fields]":
        """The objects in a list."""
        for position, value in enumerate(self.list(name)):
            yield Fields.of(value, (*self.at, name, position))

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self._texts(name)) if name in self.values else ()

    def choice(self, name: str, known: Mapping[str, T], default: str = "") -> T:
        """The value in `known` of the field's text, or of `default` if the field is missing."""
        written = self.text(name, default)
        if written not in known:
            raise self.fault(name, f"must be one of {', '.join(known)}, not '{written}'")
        return known[written]

    def integer(self, name: str, *, low: int, high: int) -> int:
        value = self.values.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            shown = value if isinstance(value, int | float) else _kind(value)
            reason = f"must be a whole number between {low} and {high}, not {shown}"
            raise self.fault(name, reason)
        return value

    def number(self, name: str) -> float:
        """A number of at least 0; 0 where there is none."""
        value = self.values.get(name)
        if value is None:
            return 0.0
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e15:
            raise self.fault(name, "must be a number from 0 on")
        return float(value)

    def base64(self, name: str) -> bytes:
        """The bytes; line breaks between the lines of the base64 do not count."""
        try:
            return base64.b64decode(self.text(name).replace("\n", ""), validate=True)
        except (binascii.Error, ValueError):
            raise self.fault(name, "is not valid base64") from None

    def _texts(self, name: str) -> Iterator[str]:
        for position, value in enumerate(self.list(name)):
            if not isinstance(value, str):
                pointer = (*self.at, name, position)
                raise FormatFault(f"must be text, not {_kind(value)}", pointer)
            yield value

    def _typed(self, name: str, kind: type[T], wanted: str, default: T) -> T:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, kind):
            raise self.fault(name, f"must be {wanted}, not {_kind(value)}")
        return value


def millis(value: float) -> float:
    """A duration in milliseconds as written: to the microsecond, 0 for an invalid duration."""
    if 0 < value < _EXACT_MS:
        # The result of `round` in a third of the time; `round` itself decides near a half.
        thousandths = value * 1000
        rest = thousandths - (whole := int(thousandths))
        if rest < 0.4999:
            return whole / 1000
        if rest > 0.5001:
            return (whole + 1) / 1000
    return round(value, 3) if math.isfinite(value) and value > 0 else 0.0


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "an object"
