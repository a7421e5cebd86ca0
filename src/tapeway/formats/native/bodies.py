"""A body and the fields that hold the body: `json`, `form`, `text` or `body_b64`.

JSON and forms are stored parsed, for people to read and edit. To give back equal bytes, a
`json_layout` (indent, separators, escapes) stands beside, or else AgentTape's `raw_b64`. The raw
copy counts only while equal in value to the parsed field: an edit wins.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import orjson

from tapeway.core import json_text
from tapeway.core.http import forms
from tapeway.core.json_text import (
    MAX_DEPTH,
    Json,
    NotJson,
    is_text_written_alike,
    is_written_alike,
    is_written_as,
    parse,
    python_bytes,
    python_text,
    python_value,
    same_json,
)
from tapeway.core.text import decode_utf8
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Fields

_WHITE_SPACE = " \t\r\n"
_FIRST_INDENT = re.compile(r"[\[{]\n( +|\t+)")
_MAX_WHITE_SPACE = 64
_LIKELY = 512
"""The number of characters that show the likelier layout."""
_READ_AT_ONCE = 256 * 1024
"""While orjson reads, no other thread runs."""

NAMES = (
    "json",
    "json_layout",
    "form",
    "text",
    "text_lines",
    "content",
    "body_b64",
    "raw_b64",
    "body_file",
)
"""All fields about a body; `content` is an older name for `text` in AgentTape. A valid `text_lines`
is joined before a body is decoded."""
_BODY_FIELDS = ("json", "form", "text", "text_lines", "content", "body_b64", "body_file")

# The levels of the cassette are added to those of the body.
_MAX_BODY_DEPTH = MAX_DEPTH - 8

# AgentTape takes an object with a reserved name for a reference to an asset.
_REFERENCE = b"__agenttape_"


def encode(body: bytes, content_type: str, value: Json = None) -> dict[str, Json]:
    """The fields that give back exactly the body; none for an empty body.

    `value` is the body as read by orjson, None if the body must be read.
    """
    if not body:
        return {}
    media = content_type.partition(";")[0].strip().lower()
    if media == "application/json" or media.endswith("+json"):
        return _json(body, value) or _text(body)
    if media == "application/x-www-form-urlencoded":
        return _form(body) or _text(body)
    return _text(body)


def decode(fields: Fields, *, written: bool = True) -> bytes:
    """The body in a message's fields, empty for a body in a file. Raises FormatFault.

    A JSON body that is only to be checked is not `written`, which takes most of the time.
    """
    values = fields.values
    present = _present(tuple(values))
    if len(present) > 1:
        reason = f"the body is there twice, as '{present[0]}' and '{present[1]}': keep one"
        raise fields.fault(present[1], reason)
    raw = fields.base64("raw_b64") if values.get("raw_b64") is not None else None
    match present:
        case ["json"] if not written:
            _layout_of(fields)
            return b""
        case ["json"]:
            return _json_bytes(fields, values["json"], raw)
        case ["form"]:
            form = _checked_form(fields.object("form"))
            return raw if raw is not None and _form_of(raw) == form else forms.dump_form(form)
        case ["body_b64"]:
            return fields.base64("body_b64")
        case ["body_file"]:
            return b""
        case ["text_lines"] if not isinstance(fields.values["text_lines"], str):
            raise fields.fault("text_lines", "must be a list of texts")
        case [name]:
            return fields.text(name).encode()
        case _:
            return raw or b""


def is_plain_json(fields: Fields) -> bool:
    """Whether the body is the text of a JSON value."""
    return _present(tuple(fields.values)) == ("json",) and fields.values.get("raw_b64") is None


@lru_cache(maxsize=256)
def _present(names: tuple[str, ...]) -> tuple[str, ...]:
    """The body fields among `names`; most messages have equal names."""
    return tuple([name for name in _BODY_FIELDS if name in names])


def _json_bytes(fields: Fields, value: Json, raw: bytes | None) -> bytes:
    if raw is not None and _has_value(raw, value):
        return raw
    layout = _layout_of(fields)
    text = layout.dump(value)
    if json_text.NON_FINITE_KEY.encode() not in text:
        return text
    restored = json_text.restore_non_finite(value)
    return text if restored == value else layout.dump(restored)


def _layout_of(fields: Fields) -> "JsonLayout":
    written = fields.values.get("json_layout")
    if written is None:
        return _DEFAULT_LAYOUT
    if isinstance(written, dict) and len(written) == 1 and written.get("compact") is True:
        # As nearly all clients and services write.
        return _COMPACT_LAYOUT
    return _read_layout(fields.object("json_layout"))


def _json(body: bytes, value: Json) -> dict[str, Json]:
    if body.find(_REFERENCE) >= 0:
        return {}
    value, layout = _read_at_once(body, value)
    if layout is None:
        try:
            value = parse(body)
        except NotJson:
            return {}
        if _is_deep(body, value):
            return {}
        layout = _detect_layout(body, value)
    if layout is None:
        return {"json": value, "raw_b64": _base64(body)}
    # Nearly every layout is the first or the second object.
    if layout is _DEFAULT_LAYOUT or layout == _DEFAULT_LAYOUT:
        return {"json": value}
    if layout is _COMPACT_LAYOUT:
        return {"json": value, "json_layout": {"compact": True}}
    return {"json": value, "json_layout": layout.fields()}


def _read_at_once(body: bytes, value: Json) -> "tuple[Json, JsonLayout | None]":
    """The value that orjson reads, and the layout; None where `parse` has to read the body.

    Where the value is written as exactly the text, nothing was lost: orjson reads a repeated key
    and an integer of more than 64 bits otherwise, and would write a different text.
    """
    if len(body) > _READ_AT_ONCE:
        return None, None
    if value is None:
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError:
            return None, None
    if _is_deep(body, value):
        return value, None
    return value, _plain_layout(body, value) or _detect_layout(body, value)


def _form(body: bytes) -> dict[str, Json]:
    if not forms.is_form(body) or _REFERENCE in body:
        return {}
    form = forms.parse_form(body)
    if forms.dump_form(form) == body:
        return {"form": form}
    return {"form": form, "raw_b64": _base64(body)}


def _text(body: bytes) -> dict[str, Json]:
    text = decode_utf8(body)
    return {"body_b64": _base64(body)} if text is None else {"text": text}


def _has_value(raw: bytes, value: Json) -> bool:
    # As lenient as AgentTape: AgentTape's copy of unusual JSON counts too.
    try:
        return same_json(python_value(raw.decode()), value)
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
        if not all(isinstance(item, str) for item in values):
            raise FormatFault("must be text or a list of texts", (*form.at, name))
    return form.values


def _base64(body: bytes) -> str:
    return base64.b64encode(body).decode("ascii")


def _is_deep(body: bytes, value: Json) -> bool:
    # Nearly no body has so many brackets.
    brackets = body.count(b"[") + body.count(b"{")
    return brackets > _MAX_BODY_DEPTH and _is_deeper(value, _MAX_BODY_DEPTH)


def _is_deeper(value: Json, limit: int) -> bool:
    level: list[Json] = [value]
    for _ in range(limit):
        level = [
            inner
            for container in level
            if isinstance(container, dict | list)
            for inner in (container.values() if isinstance(container, dict) else container)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


@dataclass(frozen=True, slots=True)
class JsonLayout:
    """Indent, separators, escapes and surrounding white space; the default is that of `json.dumps`.

    Compact leaves out the blank after a colon, and after a comma where nothing is indented.
    """

    indent: str = ""
    compact: bool = False
    ascii: bool = False
    before: str = ""
    after: str = ""

    def dump(self, value: Json, *, length: int | None = None, alike: bool | None = None) -> bytes:
        """The text of a value.

        `length` is the length of the text before parsing, and `alike` the result of
        `is_written_alike`, where known.
        """
        if not self.ascii and (self.indent, self.compact) in _AS_ORJSON:
            blanks = not (self.indent or self.compact)
            quick = python_bytes(value, indent=bool(self.indent), blanks=blanks, alike=alike)
            if quick is not None:
                around = self.before or self.after
                return (
                    b"%b%b%b" % (self.before.encode(), quick, self.after.encode())
                    if around
                    else quick
                )
        colon = ":" if self.compact else ": "
        comma = "," if self.compact or self.indent else ", "
        text = python_text(
            value,
            ascii_only=self.ascii,
            indent=self.indent or None,
            separators=(comma, colon),
            length=length,
        )
        return f"{self.before}{text}{self.after}".encode()

    def fields(self) -> dict[str, Json]:
        """The fields that differ from the default."""
        values: dict[str, Json] = {
            "indent": len(self.indent) if self.indent.strip(" ") == "" else self.indent,
            "compact": self.compact,
            "ascii": self.ascii,
            "before": self.before,
            "after": self.after,
        }
        return {name: value for name, value in values.items() if value}


_DEFAULT_LAYOUT, _COMPACT_LAYOUT = JsonLayout(), JsonLayout(compact=True)
_AS_ORJSON = frozenset({("", True), ("", False), ("  ", False)})
"""Indent and compactness of the layouts that can be made from the output of orjson."""


def _detect_layout(body: bytes, value: Json) -> JsonLayout | None:
    """The layout in which the value is written as exactly the body, None where no layout fits."""
    text = body.decode()
    core = text.strip(_WHITE_SPACE)
    before, _, after = text.partition(core) if len(core) < len(text) else ("", "", "")
    if len(before) + len(after) > _MAX_WHITE_SPACE:
        return None
    indent, alike = _FIRST_INDENT.match(core), is_written_alike(value)
    for layout in _likely_layouts(core, indent[1] if indent else "", before, after):
        if layout.dump(value, length=len(text), alike=alike) == body:
            return layout
    return None


def _plain_layout(body: bytes, value: Json) -> "JsonLayout | None":
    """The result of `_detect_layout` where compact or the default; else None.

    Without a text of the body, and without a look at each number: nearly every body has either
    layout.
    """
    if not body.endswith((b"}", b"]")) or not (first := body[:_LIKELY]).isascii():
        return None
    if not is_text_written_alike(body):
        return None
    # `in` makes and drops an error message before searching bytes for bytes.
    compact = first.find(b'": ') < 0 and (first.find(b",") >= 0 or first.find(b":") >= 0)
    for layout in (
        (_COMPACT_LAYOUT, _DEFAULT_LAYOUT) if compact else (_DEFAULT_LAYOUT, _COMPACT_LAYOUT)
    ):
        if is_written_as(value, body, blanks=not layout.compact):
            return layout
    return None


def _read_layout(fields: Fields) -> JsonLayout:
    """The layout in a `json_layout`. Raises FormatFault."""
    try:
        # With their types: `true` is equal to 1.
        return _known_layout(tuple([(name, type(v), v) for name, v in fields.values.items()]))
    except (TypeError, FormatFault):
        # No key of a cache, or wrong: reported with the place.
        return _checked_layout(fields)


@lru_cache(maxsize=256)
def _known_layout(items: tuple[tuple[str, type, Json], ...]) -> JsonLayout:
    """The layout of these members; nearly all bodies have few layouts in common."""
    return _checked_layout(Fields({name: value for name, _, value in items}, ()))


def _checked_layout(fields: Fields) -> JsonLayout:
    fields.only(("indent", "compact", "ascii", "before", "after"))
    indent = fields.values.get("indent")
    if isinstance(indent, str):
        blank = fields.text("indent")
    elif indent is None:
        blank = ""
    else:
        blank = " " * fields.integer("indent", low=0, high=_MAX_WHITE_SPACE)
    layout = JsonLayout(
        indent=blank,
        compact=fields.flag("compact"),
        ascii=fields.flag("ascii"),
        before=fields.text("before"),
        after=fields.text("after"),
    )
    for name, blanks in (("indent", blank), ("before", layout.before), ("after", layout.after)):
        if blanks.strip(_WHITE_SPACE):
            raise fields.fault(name, "may hold only blanks")
    return layout


def _likely_layouts(core: str, indent: str, before: str, after: str) -> Iterator[JsonLayout]:
    # The likelier layout first: each attempt costs as much as parsing did.
    first = core[:_LIKELY]
    likely = ("," in first or ":" in first) and '": ' not in first
    for ascii_only in (False, True):
        if ascii_only and not (core.isascii() and "\\u" in core):
            return
        for compact in (likely, not likely):
            yield _layout(indent, compact, ascii_only, before, after)


_layout = lru_cache(maxsize=256)(JsonLayout)
"""The layout; nearly all bodies have few layouts in common."""
