"""The cassette file in YAML: the same fields as in JSON."""

from collections.abc import Iterable

from tapeway.core import json_text
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.formats import assets, native, yaml_text, yaml_value
from tapeway.formats.fault import FormatFault
from tapeway.formats.native import Document, Sheet
from tapeway.formats.yaml_scalar import resolve
from tapeway.formats.yaml_steps import MAX_SIZE

_ODD = {".nan": "NaN", ".inf": "Infinity", "+.inf": "Infinity", "-.inf": "-Infinity"}


def read(text: bytes) -> Sheet:
    """The documents a file holds. Raises FormatFault when the frame around them is wrong."""
    value = yaml_value.parse(text, meaning=_meaning)
    try:
        return native.sheet_of(value)
    except FormatFault as exc:
        raise _placed(exc, text) from None


def decode_all(
    text: bytes, sheet: Sheet, fetch: assets.Fetch
) -> list[Interaction | ForeignInteraction]:
    """What all the documents of a file say. Raises FormatFault with line, place and reason."""
    try:
        return native.decode_sheet(sheet, fetch if assets.mentioned(text) else None)
    except FormatFault as exc:
        raise _placed(exc, text) from None


def write(head: CassetteHead, documents: Iterable[Document]) -> bytes:
    """The file of a head and documents in this order; the same ones give the same bytes.

    Raises FormatFault for one that is too large to be read again.
    """
    root = native.root_of(head)
    root["interactions"] = [native.numbered(*each) for each in enumerate(documents)]
    text = yaml_text.dump(root).encode()
    if len(text) > MAX_SIZE:
        raise FormatFault(
            f"it would have more than {MAX_SIZE >> 20} MiB, too much for YAML: use JSON"
        )
    return text


def _meaning(text: str) -> Json:
    name = _ODD.get(text.lower())
    return resolve(text) if name is None else json_text.held(name)


def _placed(fault: FormatFault, text: bytes) -> FormatFault:
    line = yaml_value.line_of(text, fault.pointer)
    return FormatFault(fault.reason, fault.pointer, line=line)
