"""The two ways to write a cassette file, told apart by how its name ends.

The cassette file in YAML: the same fields as in JSON.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tapeway.core import json_text
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document
from tapeway.formats.native import document
from tapeway.formats.native.document import ParsedFile
from tapeway.formats.native.versions import UPGRADES, Upgrade
from tapeway.formats.yaml import parser, writer
from tapeway.formats.yaml.parser import MAX_SIZE
from tapeway.formats.yaml.scalars import resolve

_ODD = {".nan": "NaN", ".inf": "Infinity", "+.inf": "Infinity", "-.inf": "-Infinity"}


def read(text: bytes, upgrades: Mapping[int, Upgrade] = UPGRADES) -> ParsedFile:
    """The documents a file holds. Raises FormatFault when the frame around them is wrong."""
    value = parser.parse(text, meaning=_meaning)
    try:
        return document.parse_root(value, upgrades)
    except FormatFault as exc:
        raise _placed(exc, text) from None


def decode_all(text: bytes, parsed: ParsedFile, fetch: document.FetchAsset) -> list[AnyInteraction]:
    """What all the documents of a file say. Raises FormatFault with line, place and reason."""
    try:
        return document.decode_parsed(parsed, fetch if document.may_refer_to_assets(text) else None)
    except FormatFault as exc:
        raise _placed(exc, text) from None


def write(head: CassetteHead, documents: Iterable[Document]) -> bytes:
    """The file of a head and documents in this order; the same ones give the same bytes.

    Raises FormatFault for one that is too large to be read again.
    """
    root = document.root_fields(head)
    root["interactions"] = [document.numbered(*each) for each in enumerate(documents)]
    text = writer.dump(root).encode()
    if len(text) > MAX_SIZE:
        raise FormatFault(
            f"it would have more than {MAX_SIZE >> 20} MiB, too much for YAML: use JSON"
        )
    return text


def _meaning(text: str) -> Json:
    name = _ODD.get(text.lower())
    return resolve(text) if name is None else json_text.non_finite_object(name)


def _placed(fault: FormatFault, text: bytes) -> FormatFault:
    line = parser.line_of(text, fault.pointer)
    return FormatFault(fault.reason, fault.pointer, line=line)


@dataclass(frozen=True, slots=True)
class Serializer:
    """How to read and write files of one kind; what the functions promise, `native` says."""

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[bytes], ParsedFile]
    decode_all: Callable[[bytes, ParsedFile, document.FetchAsset], list[AnyInteraction]]
    write: Callable[[CassetteHead, Iterable[Document]], bytes]

    def load(self, text: bytes, fetch: document.FetchAsset = document.no_assets) -> StoredCassette:
        """The cassette a file holds. Raises FormatFault with line, place and reason."""
        parsed = self.read(text)
        return StoredCassette(parsed.head, tuple(self.decode_all(text, parsed, fetch)))

    def save(self, cassette: StoredCassette) -> bytes:
        """The file of a cassette, its interactions numbered by their position."""
        return self.write(cassette.head, [document.encode(each) for each in cassette.interactions])


JSON = Serializer("json", (".json",), document.read, document.decode_all, document.write)
YAML = Serializer("yaml", (".yaml", ".yml"), read, decode_all, write)
SERIALIZERS = {each.name: each for each in (JSON, YAML)}

SERIALIZER_BY_SUFFIX = {ending: each for each in (JSON, YAML) for ending in each.suffixes}
"""Which serializer files with an ending are in."""
