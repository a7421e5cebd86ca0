"""All file formats: looked up by name, by a file's suffix, or recognised in a text.

A new format is one row of FORMATS. Reading and writing are pure: the files beside a cassette's own
file (journal, large bodies) are read and written by its store.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tapeway.core.json_text import Json, NotJson, Pointer, json_pieces, non_finite_object, parse
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.formats import conflict_markers, errors, jsonl
from tapeway.formats.conversion_loss import ExportedCassette, ImportedCassette, Loss
from tapeway.formats.errors import FormatFault, without_bom
from tapeway.formats.native import document as native
from tapeway.formats.other_tools import aimock, dspy, har, interposition, vcr, wiremock

_Parse = Callable[[bytes], Json]
_LineOf = Callable[[bytes, Pointer], int]
_Read = Callable[[Json, CassetteHead], tuple[StoredCassette, list[Loss]]]
_YAML = (".yaml", ".yml")
_OWN_FIELD = re.compile(rb"^run_id:", re.MULTILINE)
_LISTS = ("entries", "interactions")
_Write = Callable[[StoredCassette], tuple[dict[str, Json], list[Loss]]]


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its name, the suffixes of its files, and how they are read and written.

    `load` takes the head of a new cassette for files that hold none, and raises FormatFault with
    line and place. `save` raises FormatFault for what no cassette could hold; it is None for a
    format that is only read.
    """

    name: str
    suffixes: tuple[str, ...]
    recognises: Callable[[Json], bool]
    load: Callable[[bytes, CassetteHead], ImportedCassette]
    save: Callable[[StoredCassette], ExportedCassette] | None


def by_name(name: str, suffix: str = "") -> Format | None:
    """The format of this name, in the variant for files with this suffix; None for no format."""
    if name == VCR.name and suffix.lower() == ".json":
        return VCR_JSON
    return next((each for each in FORMATS if each.name == name), None)


def by_suffix(suffix: str) -> Format | None:
    """The format that files with a suffix such as `.har` are written in."""
    return next((each for each in FORMATS if suffix.lower() in each.suffixes), None)


def detect(file: native.Text, suffix: str = "") -> Format | None:
    """The format of a file with this suffix, None where no format recognises it.

    Raises FormatFault for what is neither YAML nor JSON if the suffix is one of YAML. What is to be
    a cassette and cannot be read as one is a cassette too: loading it says what is wrong.
    """
    may_be_native = suffix.lower() in TAPEWAY.suffixes
    if may_be_native and native.is_laid_out_as_written(file):
        # Without all of a large one in memory.
        return TAPEWAY
    plain = without_bom(file[: len(file)])
    if suffix.lower() in _YAML and not _is_json(plain):
        try:
            value = vcr.parse(plain)
        except FormatFault as fault:
            # VCR.py's files have no such field, and are not merged.
            own = _OWN_FIELD.search(plain) is not None
            raise (conflict_markers.fault_of(plain, fault) if own else fault) from None
        found = VCR if vcr.recognises(value) else None
    else:
        try:
            value = parse(plain, constant=non_finite_object)
        except NotJson:
            return _of_line(plain) or (TAPEWAY if may_be_native else None)
        found = _of_value(value)
    return found or (TAPEWAY if may_be_native and native.resembles_cassette(value) else None)


def _of_line(text: bytes) -> Format | None:
    try:
        found = _of_value(parse(text.lstrip().partition(b"\n")[0]))
    except NotJson:
        return None
    return found if found is JSONL else None


def _of_value(value: Json) -> Format | None:
    return next((each for each in FORMATS if each.recognises(value)), None)


def _is_json(text: bytes) -> bool:
    return text.lstrip()[:1] == b"{"


def _parse_json(text: bytes) -> Json:
    try:
        return parse(text)
    except NotJson as exc:
        raise errors.explain(text, exc) from None


def loader(
    read: _Read, parse: _Parse = _parse_json, line_of: _LineOf = errors.line_of
) -> Callable[[bytes, CassetteHead], ImportedCassette]:
    """The `load` of a format whose parsed value is read by `read`; faults get their line."""

    def load(text: bytes, fresh: CassetteHead) -> ImportedCassette:
        text = without_bom(text)
        value = parse(text)
        try:
            cassette, losses = read(value, fresh)
        except FormatFault as fault:
            raise fault.on_line(line_of(text, fault.pointer)) from None
        _free(value)
        return ImportedCassette(cassette, tuple(losses))

    return load


def _free(value: Json) -> None:
    """Free a document's entries one by one: freeing all at once would block other threads."""
    root = value if isinstance(value, dict) else {}
    for holder in (root, root.get("log")):
        for name in _LISTS if isinstance(holder, dict) else ():
            entries = holder.get(name) if isinstance(holder, dict) else None
            while isinstance(entries, list) and entries:
                entries.pop()


_load_vcr_json = loader(vcr.read)
_load_vcr_yaml = loader(vcr.read, vcr.parse, vcr.line_of)


def _load_vcr(text: bytes, fresh: CassetteHead) -> ImportedCassette:
    return (_load_vcr_json if _is_json(without_bom(text)) else _load_vcr_yaml)(text, fresh)


def _save_vcr(cassette: StoredCassette) -> ExportedCassette:
    document, losses = vcr.write(cassette, binary=True)
    return ExportedCassette(vcr.dump(document), tuple(losses))


def _saver(write: _Write) -> Callable[[StoredCassette], ExportedCassette]:
    def save(cassette: StoredCassette) -> ExportedCassette:
        document, losses = write(cassette)
        text = b"".join([*json_pieces(document, indent=True), b"\n"])
        _free(document)
        return ExportedCassette(text, tuple(losses))

    return save


def _is_native(value: Json) -> bool:
    match value:
        # Also in a version that cannot be read: loading it says what to do.
        case {"version": str() | int(), "interactions": [{"kind": _}, *_]}:
            return True
        case {"version": str(), "interactions": []}:
            return True
        case _:
            return False


TAPEWAY = Format(
    "tapeway",
    (".json", *_YAML),
    _is_native,
    lambda text, fresh: ImportedCassette(native.load(text)),
    lambda cassette: ExportedCassette(native.save(cassette)),
)
"""A cassette file outside a store; within a store, the store reads and writes it."""

VCR = Format("vcr", (), lambda value: False, _load_vcr, _save_vcr)
"""VCR.py's default, YAML."""

VCR_JSON = Format("vcr-json", (), vcr.recognises, _load_vcr, _saver(vcr.write))

JSONL = Format(
    "jsonl",
    (".jsonl", ".ndjson"),
    jsonl.recognises,
    lambda text, fresh: ImportedCassette(jsonl.read(without_bom(text), fresh)),
    lambda cassette: ExportedCassette(jsonl.write(cassette)),
)

FORMATS = (
    TAPEWAY,
    Format("har", (".har",), har.recognises, loader(har.read), _saver(har.write)),
    VCR_JSON,
    VCR,
    Format(
        "interposition",
        (),
        interposition.recognises,
        loader(interposition.read),
        _saver(interposition.write),
    ),
    JSONL,
    Format("dspy", (), dspy.recognises, loader(dspy.read), _saver(dspy.write)),
    Format("aimock", (), aimock.recognises, loader(aimock.read), None),
    Format("wiremock", (), wiremock.recognises, loader(wiremock.read), None),
)
"""The formats, in the order of detection."""
