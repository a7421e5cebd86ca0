"""Arguments, results and exceptions of Python calls as JSON and back, as AgentTape writes them.

Bytes are an object with the one name `__agenttape_bytes__`. Any other object becomes its public
attributes, or else a text. A value inside itself is cut off.
"""

import base64
import binascii
import builtins
import enum
import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date, time
from decimal import Decimal
from typing import cast
from uuid import UUID

from tapeway.core import json_text
from tapeway.core.json_text import Json
from tapeway.core.text import escape_surrogates, is_utf8
from tapeway.formats.native.assets import BYTES_NAME

_CYCLE = "<cycle>"
_ATTRIBUTES = ("status_code", "code", "param", "type", "request_id", "retry_after")


class NotRecordable(Exception):
    """A value that cannot be recorded; the message says why."""


def value_to_json(value: object) -> Json:
    """The value as it is recorded. Raises NotRecordable."""
    try:
        return _to_json(value, frozenset())
    except RecursionError:
        raise NotRecordable("it is nested too deep") from None


def _to_json(value: object, around: frozenset[int]) -> Json:
    match value:
        case enum.Enum():
            return _to_json(value.value, around)
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
            return [_to_json(item, around) for item in sorted(value, key=repr)]
        case Iterator() | AsyncIterator():
            kind = type(value).__name__
            raise NotRecordable(f"a {kind} can be read once only: make a list of it")
        case Awaitable():
            raise NotRecordable(f"a {type(value).__name__} has to be awaited: use acall")
    if id(value) in around:
        return _CYCLE
    inside = around | {id(value)}
    if isinstance(value, Mapping):
        return {_text(str(name)): _to_json(member, inside) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item, inside) for item in value]
    return _object(value, inside)


def hashed_json(value: Json) -> Json:
    """The value as AgentTape hashes it, with bytes as text."""
    return cast(Json, _restored(value, lambda octets: octets.decode("utf-8", "replace")))


def json_to_value(value: Json) -> object:
    """The value that a program gets back, with bytes as bytes."""
    return _restored(value, lambda octets: octets)


def _restored(value: Json, of_bytes: Callable[[bytes], object]) -> object:
    if isinstance(value, dict):
        if (octets := _octets(value)) is not None:
            return of_bytes(octets)
        if (number := json_text.non_finite_number(value)) is not None:
            return number
        return {name: _restored(member, of_bytes) for name, member in value.items()}
    if isinstance(value, list):
        return [_restored(item, of_bytes) for item in value]
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
                return _to_json(dump(**options), inside)
            except NotRecordable:
                raise
            except Exception:  # noqa: S112 - the next way may work
                continue
    if hasattr(value, "__dict__"):
        public = {name: attribute for name, attribute in vars(value).items() if name[:1] != "_"}
        return _to_json(public, inside)
    return _text(str(value))


def _text(text: str) -> str:
    if not is_utf8(text):
        raise NotRecordable("a text holds half of a surrogate pair")
    return text


class RecordedError(Exception):
    """A recorded error of a class that is not loaded. `document` is the whole recording."""

    def __init__(self, message: str, document: Mapping[str, Json]) -> None:
        super().__init__(message)
        self.document = document


def exception_to_json(exc: BaseException) -> dict[str, Json]:
    """The document of an exception."""
    members: dict[str, Json] = {
        "type": type(exc).__name__,
        "module": type(exc).__module__,
        "message": escape_surrogates(_message(exc)),
        "repr": escape_surrogates(repr(exc)),
    }
    attrs = {name: getattr(exc, name, None) for name in _ATTRIBUTES}
    simple = {
        name: attribute
        for name, attribute in attrs.items()
        if isinstance(attribute, int | float | str)
    }
    for name, value in (("attrs", simple or None), ("body", getattr(exc, "body", None))):
        with suppress(NotRecordable):
            if value is not None:
                members[name] = value_to_json(value)
    return members


def json_to_exception(document: Mapping[str, Json]) -> Exception:
    """The exception, of its original class if already loaded: nothing is imported."""
    message = document.get("message")
    text = message if isinstance(message, str) else ""
    kind = _kind(document)
    if kind is None:
        return RecordedError(f"{document.get('type', 'an error')}: {text}", document)
    try:
        error = kind(text)
    except Exception:
        return RecordedError(f"{kind.__name__}: {text}", document)
    for name, value in _attributes(document):
        try:
            setattr(error, name, json_to_value(value))
        except (AttributeError, TypeError):
            continue
    return error


def _message(exc: BaseException) -> str:
    # str() of a KeyError is the repr of its key, and would be again once it is raised.
    if isinstance(exc, KeyError) and len(exc.args) == 1 and isinstance(exc.args[0], str):
        return exc.args[0]
    return str(exc)


def _attributes(document: Mapping[str, Json]) -> list[tuple[str, Json]]:
    attrs = document.get("attrs")
    members = list(attrs.items()) if isinstance(attrs, dict) else []
    return [*members, ("body", document["body"])] if "body" in document else members


def _kind(document: Mapping[str, Json]) -> type[Exception] | None:
    module, name = document.get("module"), document.get("type")
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    owner = builtins if module == "builtins" else sys.modules.get(module)
    kind = getattr(owner, name, None)
    # A recorded SystemExit or KeyboardInterrupt must not end this process.
    return kind if isinstance(kind, type) and issubclass(kind, Exception) else None
