"""The formats there are: by name, by a file's suffix, and by what a text says.

A new format is one row here. Reading and writing are pure; what a cassette's own file needs from
beside it (journal, large bodies) is its store's business.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tapeway.core.json_text import Json, NotJson, dump, parse
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.formats import errors, jsonl
from tapeway.formats.conversion_loss import ExportedCassette, ImportedCassette, Loss
from tapeway.formats.errors import FormatFault
from tapeway.formats.native import document as native
from tapeway.formats.other_tools import aimock, dspy, har, interposition, vcr, wiremock

_Read = Callable[[Json, CassetteHead], tuple[StoredCassette, list[Loss]]]
_YAML = (".yaml", ".yml")
_Write = Callable[[StoredCassette], tuple[dict[str, Json], list[Loss]]]


@dataclass(frozen=True, slots=True)
class Format:
    """A format: what it is called, how its files end, and how they are read and written.

    `load` takes what a new cassette says about itself, for files that do not say it, and raises
    FormatFault with line and place; `save` raises FormatFault for what no cassette could hold.
    `save` is None for a format that is only read.
    """

    name: str
    suffixes: tuple[str, ...]
    recognises: Callable[[Json], bool]
    load: Callable[[bytes, CassetteHead], ImportedCassette]
    save: Callable[[StoredCassette], ExportedCassette] | None


def by_name(name: str, suffix: str = "") -> Format | None:
    """The format of this name, for a file that ends like this."""
    if name == VCR.name and suffix.lower() == ".json":
        return VCR_JSON
    return next((kind for kind in FORMATS if kind.name == name), None)


def by_suffix(suffix: str) -> Format | None:
    """The format that files which end like this are written in, such as `.har`."""
    return next((kind for kind in FORMATS if suffix.lower() in kind.suffixes), None)


def detect(text: bytes, suffix: str = "") -> Format | None:
    """The format of a text in a file that ends like this, or None where no format knows it.

    Raises FormatFault for what is neither YAML nor JSON, where the suffix says it is YAML.
    """
    if suffix.lower() in _YAML and not _is_json(text):
        value = vcr.parse(text)
        return VCR if vcr.recognises(value) else TAPEWAY if _is_native(value) else None
    try:
        return _of_value(parse(text))
    except NotJson:
        return _of_line(text)


def _of_line(text: bytes) -> Format | None:
    try:
        kind = _of_value(parse(text.lstrip().partition(b"\n")[0]))
    except NotJson:
        return None
    return kind if kind is JSONL else None


def _of_value(value: Json) -> Format | None:
    return next((kind for kind in FORMATS if kind.recognises(value)), None)


def _is_json(text: bytes) -> bool:
    return text.lstrip()[:1] == b"{"


def _json(text: bytes) -> Json:
    try:
        return parse(text)
    except NotJson as exc:
        raise errors.explain(text, exc) from None


def _loader(read: _Read) -> Callable[[bytes, CassetteHead], ImportedCassette]:
    def load(text: bytes, fresh: CassetteHead) -> ImportedCassette:
        value = _json(text)
        try:
            cassette, losses = read(value, fresh)
        except FormatFault as fault:
            line = errors.line_of(text.decode("utf-8"), fault.pointer)
            raise FormatFault(fault.reason, fault.pointer, line=line) from None
        return ImportedCassette(cassette, tuple(losses))

    return load


def _load_vcr(text: bytes, fresh: CassetteHead) -> ImportedCassette:
    if _is_json(text):
        return _loader(vcr.read)(text, fresh)
    value = vcr.parse(text)
    try:
        cassette, losses = vcr.read(value, fresh)
    except FormatFault as fault:
        line = vcr.line_of(text, fault.pointer)
        raise FormatFault(fault.reason, fault.pointer, line=line) from None
    return ImportedCassette(cassette, tuple(losses))


def _save_vcr(cassette: StoredCassette) -> ExportedCassette:
    document, losses = vcr.write(cassette, binary=True)
    return ExportedCassette(vcr.dump(document), tuple(losses))


def _saver(write: _Write) -> Callable[[StoredCassette], ExportedCassette]:
    def save(cassette: StoredCassette) -> ExportedCassette:
        document, losses = write(cassette)
        return ExportedCassette(dump(document, indent=True) + b"\n", tuple(losses))

    return save


def _is_native(value: Json) -> bool:
    match value:
        # Also of a version that cannot be read: that says what to do.
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
"""A cassette file; where it lies in a store, the store reads and writes it."""

VCR = Format("vcr", (), lambda value: False, _load_vcr, _save_vcr)
"""VCR.py's own choice, YAML; with the suffix `.json` the other one."""

VCR_JSON = Format("vcr-json", (), vcr.recognises, _load_vcr, _saver(vcr.write))

JSONL = Format(
    "jsonl",
    (".jsonl", ".ndjson"),
    jsonl.recognises,
    lambda text, fresh: ImportedCassette(jsonl.read(text, fresh)),
    lambda cassette: ExportedCassette(jsonl.write(cassette)),
)

FORMATS = (
    TAPEWAY,
    Format("har", (".har",), har.recognises, _loader(har.read), _saver(har.write)),
    VCR_JSON,
    VCR,
    Format(
        "interposition",
        (),
        interposition.recognises,
        _loader(interposition.read),
        _saver(interposition.write),
    ),
    JSONL,
    Format("dspy", (), dspy.recognises, _loader(dspy.read), _saver(dspy.write)),
    Format("aimock", (), aimock.recognises, _loader(aimock.read), None),
    Format("wiremock", (), wiremock.recognises, _loader(wiremock.read), None),
)
"""In the order they are asked whether a text is theirs."""
