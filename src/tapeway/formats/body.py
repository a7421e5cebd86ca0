"""A body's bytes and the fields that hold them: `json`, `form`, `text`, `body_b64`.

JSON and forms are stored parsed, for people to read and edit, with what it takes to give back the
same bytes: a `json_layout`, or else AgentTape's `raw_b64`. A raw copy counts only as long as it
says what the parsed field says: an edit wins.
"""

import base64
import json
from collections.abc import Mapping

from tapeway.core import json_text
from tapeway.core.http import forms
from tapeway.core.json_text import MAX_DEPTH, Json, NotJson, parse, same
from tapeway.formats import json_layout
from tapeway.formats.fault import FormatFault
from tapeway.formats.fields import Fields

NAMES = ("json", "json_layout", "form", "text", "content", "body_b64", "raw_b64", "body_file")
"""All fields that speak of a body; `content` is what AgentTape once called `text`."""

_FORMS = ("json", "form", "text", "content", "body_b64", "body_file")
# The cassette's own levels come on top of a body's.
_MAX_BODY_DEPTH = MAX_DEPTH - 8
# AgentTape takes an object with such a key for a reference of its own.
_MARKER = b"__agenttape_"


def encode(body: bytes, content_type: str) -> dict[str, Json]:
    """The fields that give back exactly this body; none for an empty one."""
    if not body:
        return {}
    media = content_type.partition(";")[0].strip().lower()
    if media == "application/json" or media.endswith("+json"):
        return _json(body) or _text(body)
    if media == "application/x-www-form-urlencoded":
        return _form(body) or _text(body)
    return _text(body)


def decode(fields: Fields) -> bytes:
    """The body a request's or response's fields say, empty where a file has it. Raises FormatFault."""
    present = [name for name in _FORMS if name in fields.values]
    if len(present) > 1:
        reason = f"the body stands there twice, as '{present[0]}' and '{present[1]}': keep one"
        raise fields.fault(present[1], reason)
    raw = fields.base64("raw_b64") if "raw_b64" in fields else None
    match present:
        case ["json"]:
            return _written(fields, fields.values["json"], raw)
        case ["form"]:
            form = _checked_form(fields.object("form"))
            return raw if raw is not None and _form_of(raw) == form else forms.dump(form)
        case ["body_b64"]:
            return fields.base64("body_b64")
        case ["body_file"]:
            return b""
        case [name]:
            return fields.text(name).encode()
        case _:
            return raw or b""


def _written(fields: Fields, value: Json, raw: bytes | None) -> bytes:
    if raw is not None and _says(raw, value):
        return raw
    text = json_layout.read(fields.object("json_layout")).dump(value)
    if json_text.NAME.encode() not in text:
        return text
    restored = json_text.restored(value)
    return text if restored == value else _written(fields, restored, raw)


def _json(body: bytes) -> dict[str, Json]:
    try:
        value = parse(body)
    except NotJson:
        return {}
    if _MARKER in body or _deeper(value, _MAX_BODY_DEPTH):
        return {}
    layout = json_layout.detect(body.decode(), value)
    if layout is None:
        return {"json": value, "raw_b64": _base64(body)}
    if layout == json_layout.PLAIN:
        return {"json": value}
    return {"json": value, "json_layout": layout.document()}


def _form(body: bytes) -> dict[str, Json]:
    form = _form_of(body)
    if form is None or _MARKER in body:
        return {}
    if forms.dump(form) == body:
        return {"form": form}
    return {"form": form, "raw_b64": _base64(body)}


def _text(body: bytes) -> dict[str, Json]:
    try:
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"body_b64": _base64(body)}


def _says(raw: bytes, value: Json) -> bool:
    # As leniently as AgentTape read it, so that its copy of odd JSON counts too.
    try:
        return same(json.loads(raw.decode()), value)
    except (ValueError, RecursionError):
        return False


def _form_of(body: bytes) -> dict[str, Json] | None:
    try:
        return forms.parse_form(body)
    except UnicodeDecodeError:
        return None


def _checked_form(form: Fields) -> Mapping[str, Json]:
    for name, value in form.values.items():
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(each, str) for each in values):
            raise FormatFault("must be text or a list of texts", (*form.at, name))
    return form.values


def _base64(body: bytes) -> str:
    return base64.b64encode(body).decode("ascii")


def _deeper(value: Json, limit: int) -> bool:
    level: list[Json] = [value]
    for _ in range(limit):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
