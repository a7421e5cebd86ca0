"""What Python calls with and returns, as JSON says it: the way AgentTape writes it down.

Octets are an object with the one name `__agenttape_bytes__`. What is no value at all becomes its
public attributes, or else its text; what is inside itself is cut off.

An exception as a cassette holds it, and raised again: the way AgentTape writes it down.
"""

import base64
import binascii
import builtins
import enum
import math
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import suppress
from datetime import date, time
from decimal import Decimal
from uuid import UUID

from tapeway.core import json_text
from tapeway.core.json_text import Json
from tapeway.core.text import escape_surrogates, is_utf8
from tapeway.formats.native.document import BYTES_NAME

_CYCLE = "<cycle>"
_ATTRIBUTES = ("status_code", "code", "param", "type", "request_id", "retry_after")


class NoValue(Exception):
    """What a program calls with or returns can be in no cassette; the message says why."""


def written(value: object) -> Json:
    """The value as a cassette holds it. Raises NoValue."""
    try:
        return _written(value, frozenset())
    except RecursionError:
        raise NoValue("it is nested too deep") from None


def _written(value: object, around: frozenset[int]) -> Json:
    match value:
        case enum.Enum():
            return _written(value.value, around)
        case None | bool() | int():
            return value
        case str():
            return _text(value)
        case float():
            return (
                value
                if math.isfinite(value)
                else json_text.non_finite_object(json_text.non_finite_name(value))
            )
        case bytes() | bytearray():
            return {BYTES_NAME: base64.b64encode(value).decode("ascii")}
        case date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case set() | frozenset():
            return [_written(each, around) for each in sorted(value, key=repr)]
        case Iterator() | AsyncIterator():
            kind = type(value).__name__
            raise NoValue(f"a {kind} can be read once only: make a list of it")
        case Awaitable():
            raise NoValue(f"a {type(value).__name__} has to be awaited: use acall")
    if id(value) in around:
        return _CYCLE
    inside = around | {id(value)}
    if isinstance(value, Mapping):
        return {_text(str(name)): _written(each, inside) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_written(each, inside) for each in value]
    return _object(value, inside)


def keyed(value: Json) -> Json:
    """The value as AgentTape hashes it: octets as the text they are."""
    if isinstance(value, dict):
        if (octets := _octets(value)) is not None:
            return octets.decode("utf-8", "replace")
        if (number := json_text.non_finite_number(value)) is not None:
            return number
        return {name: keyed(each) for name, each in value.items()}
    if isinstance(value, list):
        return [keyed(each) for each in value]
    return value


def read(value: Json) -> object:
    """What a program is given back: octets where there were some."""
    if isinstance(value, dict):
        if (octets := _octets(value)) is not None:
            return octets
        if (number := json_text.non_finite_number(value)) is not None:
            return number
        return {name: read(each) for name, each in value.items()}
    if isinstance(value, list):
        return [read(each) for each in value]
    return value


def _octets(value: Mapping[str, Json]) -> bytes | None:
    text = value.get(BYTES_NAME)
    if len(value) != 1 or not isinstance(text, str):
        return None
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


def _object(value: object, inside: frozenset[int]) -> Json:
    for name, options in (("model_dump", {"mode": "json"}), ("to_dict", {})):
        if callable(dump := getattr(value, name, None)):
            try:
                return _written(dump(**options), inside)
            except NoValue:
                raise
            except Exception:  # noqa: S112 - whatever it is, there is another way
                continue
    if hasattr(value, "__dict__"):
        public = {name: each for name, each in vars(value).items() if name[:1] != "_"}
        return _written(public, inside)
    return _text(str(value))


def _text(text: str) -> str:
    if not is_utf8(text):
        raise NoValue("a text holds half of a surrogate pair")
    return text


class RecordedError(Exception):
    """An error that was recorded and whose own class is not at hand; `document` is all of it."""

    def __init__(self, message: str, document: Mapping[str, Json]) -> None:
        super().__init__(message)
        self.document = document


def document_of(exc: BaseException) -> dict[str, Json]:
    """What is kept of an exception."""
    found: dict[str, Json] = {
        "type": type(exc).__name__,
        "module": type(exc).__module__,
        "message": escape_surrogates(_message(exc)),
        "repr": escape_surrogates(repr(exc)),
    }
    attrs = {name: getattr(exc, name, None) for name in _ATTRIBUTES}
    simple = {name: each for name, each in attrs.items() if isinstance(each, int | float | str)}
    for name, value in (("attrs", simple or None), ("body", getattr(exc, "body", None))):
        with suppress(NoValue):
            if value is not None:
                found[name] = written(value)
    return found


def exception_of(document: Mapping[str, Json]) -> Exception:
    """The exception, of its own class where that is loaded already: nothing is imported for it."""
    message = document.get("message")
    text = message if isinstance(message, str) else ""
    kind = _kind(document)
    if kind is None:
        return RecordedError(f"{document.get('type', 'an error')}: {text}", document)
    try:
        found = kind(text)
    except Exception:
        return RecordedError(f"{kind.__name__}: {text}", document)
    for name, value in _attributes(document):
        try:
            setattr(found, name, read(value))
        except (AttributeError, TypeError):
            continue
    return found


def _message(exc: BaseException) -> str:
    # A KeyError shows its key as Python would write it, and would do so again when it is raised.
    if isinstance(exc, KeyError) and len(exc.args) == 1 and isinstance(exc.args[0], str):
        return exc.args[0]
    return str(exc)


def _attributes(document: Mapping[str, Json]) -> list[tuple[str, Json]]:
    attrs = document.get("attrs")
    found = list(attrs.items()) if isinstance(attrs, dict) else []
    return [*found, ("body", document["body"])] if "body" in document else found


def _kind(document: Mapping[str, Json]) -> type[Exception] | None:
    module, name = document.get("module"), document.get("type")
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    owner = builtins if module == "builtins" else sys.modules.get(module)
    kind = getattr(owner, name, None)
    # An exit or an interrupt of then is none of now.
    return kind if isinstance(kind, type) and issubclass(kind, Exception) else None
