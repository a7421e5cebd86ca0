"""An exception as a cassette holds it, and raised again: the way AgentTape writes it down."""

import builtins
import sys
from collections.abc import Mapping
from contextlib import suppress

from tapeway.core.json_text import Json
from tapeway.integrations import call_values

_ATTRIBUTES = ("status_code", "code", "param", "type", "request_id", "retry_after")


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
        "message": _legible(_message(exc)),
        "repr": _legible(repr(exc)),
    }
    attrs = {name: getattr(exc, name, None) for name in _ATTRIBUTES}
    simple = {name: each for name, each in attrs.items() if isinstance(each, int | float | str)}
    for name, value in (("attrs", simple or None), ("body", getattr(exc, "body", None))):
        with suppress(call_values.NoValue):
            if value is not None:
                found[name] = call_values.written(value)
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
            setattr(found, name, call_values.read(value))
        except (AttributeError, TypeError):
            continue
    return found


def _legible(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


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
