"""The cassette file in JSON or YAML, chosen by its suffix. Both hold the same fields."""

import re
from collections.abc import Iterable
from typing import BinaryIO

from tapeway.core.json_text import Json, Pointer
from tapeway.core.model.cassette import CassetteHead
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document
from tapeway.formats.native.document import JSON as JSON
from tapeway.formats.native.document import Serializer as Serializer
from tapeway.formats.native.document import may_be_non_finite, numbered, root_fields
from tapeway.formats.native.repeated_parts import PartSharer
from tapeway.formats.native.text_lines import spread_base64

_LOOKED_AT = 4096
_BEGINNING = re.compile(
    rb"(?:\xef\xbb\xbf)?"
    rb"(?:\s*\{\s*\"version\"\s*:\s*\"|(?:#[^\n]*\n|---\s|\s)*version\s*:\s*['\"])"
)
"""Cassettes begin with a version in quotes; other tools write a number."""

# PyYAML is imported where YAML is: most stores hold none, and it takes a while.


def _parse_yaml(text: bytes) -> tuple[Json, bool]:
    from tapeway.formats.yaml import parser

    return parser.parse(text), may_be_non_finite(text)


def _line_of_yaml(text: bytes, pointer: Pointer) -> int:
    from tapeway.formats.yaml import parser

    return parser.line_of(text, pointer)


def _yaml_pieces(head: CassetteHead, documents: Iterable[Document]) -> Iterable[bytes]:
    from tapeway.formats.yaml import writer
    from tapeway.formats.yaml.parser import MAX_SIZE

    root = root_fields(head)
    sharer = PartSharer()
    root["interactions"] = [
        numbered(index, spread_base64(sharer.shared(index, document)))
        for index, document in enumerate(documents)
    ]
    pieces = list(writer.pieces(root))
    if sum(map(len, pieces)) > MAX_SIZE:
        raise FormatFault(
            f"it would have more than {MAX_SIZE >> 20} MiB, too much for YAML: use JSON"
        )
    return pieces


YAML = Serializer("yaml", (".yaml", ".yml"), _parse_yaml, _line_of_yaml, _yaml_pieces)

SERIALIZERS = {serializer.name: serializer for serializer in (JSON, YAML)}
SERIALIZER_BY_SUFFIX = {
    suffix: serializer for serializer in (JSON, YAML) for suffix in serializer.suffixes
}


def begins_like_cassette(file: BinaryIO) -> bool:
    """Whether a file begins as tapeway and AgentTape write cassettes."""
    return _BEGINNING.match(file.read(_LOOKED_AT)) is not None
