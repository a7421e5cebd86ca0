"""VCR.py's documents as YAML, where a body that is no UTF-8 stands as `!!binary`."""

import base64
import binascii
import hashlib
import re

from tapeway.core.json_text import Json
from tapeway.formats import yaml_text, yaml_value
from tapeway.formats.extension import Document
from tapeway.formats.fault import Pointer
from tapeway.formats.yaml_scalar import resolve
from tapeway.formats.yaml_steps import Tags

_NO_NUMBER = re.compile(r"-?[0-9]+[eE].*|-?[0-9.]+[eE][0-9]+")


def parse(text: bytes) -> Json:
    """The document. Raises FormatFault with line and reason; other tags than `!!binary` are refused."""
    return yaml_value.parse(text, _TAGS, _meaning)


def line_of(text: bytes, pointer: Pointer) -> int:
    """The line a value stands on."""
    return yaml_value.line_of(text, pointer, _TAGS)


def dump(document: Document) -> bytes:
    """The text that VCR.py reads as this document."""
    binary: dict[str, str] = {}
    text = yaml_text.dump(_marked(document, binary))
    for mark, content in binary.items():
        text = text.replace(mark, content)
    return text.encode()


def _marked(value: Json, binary: dict[str, str]) -> Json:
    """The value with a mark, plain in YAML, for each text that holds odd octets."""
    if isinstance(value, dict):
        return {name: _marked(inner, binary) for name, inner in value.items()}
    if isinstance(value, list):
        return [_marked(inner, binary) for inner in value]
    if isinstance(value, str) and not _is_text(value):
        octets = value.encode("utf-8", "surrogateescape")
        # Nobody can have written a hash of the very bytes that stand in its place.
        mark = f"binary_{hashlib.sha256(octets).hexdigest()}"
        binary[mark] = f'!!binary "{base64.b64encode(octets).decode("ascii")}"'
        return mark
    return value


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _meaning(text: str) -> Json:
    # PyYAML writes the text `1e5` without quotes: its numbers have a dot, and a sign before exponents.
    return text if _NO_NUMBER.fullmatch(text) else resolve(text)


def _binary(text: str) -> str:
    try:
        octets = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("what stands under !!binary is not valid base64") from None
    return octets.decode("utf-8", "surrogateescape")


_TAGS: Tags = {"tag:yaml.org,2002:binary": _binary}
