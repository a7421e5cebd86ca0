"""The JSON and YAML of other tools' files, read as one kind of document.

Bytes that are not UTF-8 are texts with lone surrogates. Tags of Ruby, Go and Python are read where
they mark texts; nothing builds other objects.
"""

import base64
import binascii
import re

from tapeway.core.json_text import Json, NotJson, Pointer
from tapeway.core.json_text import parse as parse_json
from tapeway.formats import errors
from tapeway.formats.yaml import parser
from tapeway.formats.yaml.parser import Tags
from tapeway.formats.yaml.scalars import resolve

_YAML = "tag:yaml.org,2002:"
_NO_NUMBER = re.compile(r"-?[0-9]+[eE].*|-?[0-9.]+[eE][0-9]+")


def parse(text: bytes) -> Json:
    """The value in a text without byte order mark. Raises FormatFault with the line."""
    if not is_json(text):
        return parser.parse(text, _TAGS, _meaning)
    try:
        return parse_json(text)
    except NotJson as exc:
        raise errors.explain(text, exc) from None


def line_of(text: bytes, pointer: Pointer) -> int:
    """The line of a value."""
    if is_json(text):
        return errors.line_of(text, pointer)
    return parser.line_of(text, pointer, _TAGS)


def is_json(text: bytes) -> bool:
    """Whether a text is to be read as JSON."""
    return text.lstrip()[:1] in (b"{", b"[")


def _meaning(text: str) -> Json:
    # PyYAML writes the text `1e5` without quotes: its numbers need a dot, and a signed exponent.
    return text if _NO_NUMBER.fullmatch(text) else resolve(text)


def _binary(text: str) -> str:
    try:
        raw = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the value of !!binary is not valid base64") from None
    return raw.decode("utf-8", "surrogateescape")


_ISTR = [
    f"{_YAML}python/object/{made}:multidict.{module}.istr"
    for made in ("apply", "new")
    for module in ("_multidict", "_multidict_py", "_istr")
]
"""The names of headers in aiohttp, which compare without case."""
_TAGS = Tags(
    # Ruby once wrote `! 'text'`: the tag means a text.
    texts={f"{_YAML}binary": _binary, "!binary": _binary, **dict.fromkeys(("!", *_ISTR), str)},
    ignored=(
        "!ruby/",
        "!str",
        *(f"{_YAML}{name}" for name in ("str", "map", "seq", "python/unicode", "python/str")),
        *(f"{_YAML}python/{name}" for name in ("tuple", "object/new:_io.BytesIO")),
    ),
    aliases=True,
)
