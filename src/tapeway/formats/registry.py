"""All file formats: looked up by name, by a file's suffix, or recognised in a text.

A new format is one row of FORMATS. Reading and writing are pure: the files beside a cassette's own
file (journal, large bodies) are read and written by its store.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from tapeway.core.json_text import Json, NotJson, json_pieces, non_finite_object, parse
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.formats import conflict_markers, jsonl
from tapeway.formats.cassette_file import begins_like_cassette
from tapeway.formats.conversion_loss import ExportedCassette, ImportedCassette, Loss
from tapeway.formats.errors import FormatFault, without_bom
from tapeway.formats.native import document as native
from tapeway.formats.other_tools import (
    azure_test_proxy,
    dd_apm,
    dspy,
    go_vcr,
    har,
    httprr,
    interposition,
    llama_stack,
    mitmproxy,
    nock,
    polly,
    ruby_vcr,
    test_server,
    vcr,
)
from tapeway.formats.other_tools.reading import documents
from tapeway.formats.other_tools.stubs import aimock, hoverfly, wiremock

_Read = Callable[[Json, CassetteHead], tuple[StoredCassette, list[Loss]]]
_YAML = (".yaml", ".yml")
_OWN_FIELD = re.compile(rb"^run_id:", re.MULTILINE)
_LIKE_YAML = re.compile(rb"(?:#[^\n]*\r?\n|\s)*(?:---|[A-Za-z_]+:\s|- )")
_LISTS = ("entries", "interactions")


@dataclass(frozen=True, slots=True)
class Format:
    """A format: the name, the suffixes of files, and the functions that read and write files.

    `load` takes the head of a new cassette for files that hold none, and raises FormatFault with
    line and place. `save` raises FormatFault for what no cassette could hold; it is None for a
    format that is only read. `tool` is the name of the tool for messages. A format beside
    JSON and YAML is recognised by the `beginning` of its files.
    """

    name: str
    suffixes: tuple[str, ...]
    recognises: Callable[[Json], bool]
    load: Callable[[bytes, CassetteHead], ImportedCassette]
    save: Callable[[StoredCassette], ExportedCassette] | None
    tool: str = ""
    beginning: re.Pattern[bytes] | None = None


def by_name(name: str) -> Format | None:
    """The format of this name; None for no format."""
    return next((known for known in FORMATS if known.name == name), None)


def by_suffix(suffix: str) -> Format | None:
    """The format that files with a suffix such as `.har` are written in."""
    return next((known for known in FORMATS if suffix.lower() in known.suffixes), None)


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
    for known in FORMATS:
        if known.beginning is not None and known.beginning.match(plain):
            return known
    if suffix.lower() in _YAML and not documents.is_json(plain):
        try:
            value = documents.parse(plain)
        except FormatFault as fault:
            # VCR.py's files have no such field, and are not merged.
            own = _OWN_FIELD.search(plain) is not None
            raise (conflict_markers.fault_of(plain, fault) if own else fault) from None
        detected = _of_value(value)
    else:
        try:
            value = parse(plain, constant=non_finite_object)
        except NotJson:
            return _of_line(plain) or (TAPEWAY if may_be_native else _of_yaml(plain))
        detected = _of_value(value)
    return detected or (TAPEWAY if may_be_native and native.resembles_cassette(value) else None)


def tool_of(file: BinaryIO, suffix: str) -> str | None:
    """The other tool that wrote a file; None for a cassette, and for what no format recognises.

    Nearly every file begins like a cassette, and is read no further.
    """
    if begins_like_cassette(file):
        return None
    file.seek(0)
    try:
        detected = detect(file.read(), suffix)
    except FormatFault:
        return None
    return None if detected is None else detected.tool or None


def _of_yaml(text: bytes) -> Format | None:
    """The format of a text in YAML whose file's name does not say so."""
    if not _LIKE_YAML.match(text):
        return None
    try:
        return _of_value(documents.parse(text))
    except FormatFault:
        return None


def _of_line(text: bytes) -> Format | None:
    try:
        detected = _of_value(parse(text.lstrip().partition(b"\n")[0]))
    except NotJson:
        return None
    return detected if detected is JSONL else None


def _of_value(value: Json) -> Format | None:
    return next((known for known in FORMATS if known.recognises(value)), None)


def loader(read: _Read) -> Callable[[bytes, CassetteHead], ImportedCassette]:
    """The `load` of a format whose parsed value is read by `read`; faults get their line."""

    def load(text: bytes, fresh: CassetteHead) -> ImportedCassette:
        text = without_bom(text)
        value = documents.parse(text)
        try:
            cassette, losses = read(value, fresh)
        except FormatFault as fault:
            raise fault.on_line(documents.line_of(text, fault.pointer)) from None
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


def _save_har(cassette: StoredCassette) -> ExportedCassette:
    document, losses = har.write(cassette)
    text = b"".join([*json_pieces(document, indent=True), b"\n"])
    _free(document)
    return ExportedCassette(text, tuple(losses))


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

JSONL = Format(
    "jsonl",
    (".jsonl", ".ndjson"),
    jsonl.recognises,
    lambda text, fresh: ImportedCassette(jsonl.read(without_bom(text), fresh)),
    lambda cassette: ExportedCassette(jsonl.write(cassette)),
)


def _read_only(name: str, tool: str, recognises: Callable[[Json], bool], read: _Read) -> Format:
    return Format(name, (), recognises, loader(read), None, tool)


VCR = _read_only("vcr", "VCR.py", vcr.recognises, vcr.read)

FORMATS = (
    TAPEWAY,
    _read_only("polly", "Polly.JS", polly.recognises, polly.read),
    Format("har", (".har",), har.recognises, loader(har.read), _save_har, "an HTTP archive"),
    _read_only("test-server", "test-server", test_server.recognises, test_server.read),
    VCR,
    _read_only("go-vcr", "go-vcr", go_vcr.recognises, go_vcr.read),
    _read_only("ruby-vcr", "Ruby's VCR", ruby_vcr.recognises, ruby_vcr.read),
    _read_only("interposition", "interposition", interposition.recognises, interposition.read),
    JSONL,
    _read_only("dspy", "DSPy", dspy.recognises, dspy.read),
    _read_only("nock", "nock", nock.recognises, nock.read),
    _read_only("hoverfly", "Hoverfly", hoverfly.recognises, hoverfly.read),
    _read_only(
        "azure-test-proxy",
        "the Azure test proxy",
        azure_test_proxy.recognises,
        azure_test_proxy.read,
    ),
    _read_only("llama-stack", "llama-stack", llama_stack.recognises, llama_stack.read),
    _read_only("dd-apm", "dd-apm-test-agent", dd_apm.recognises, dd_apm.read),
    Format(
        "httprr", (".httprr",), lambda value: False, httprr.load, None, "httprr", httprr.BEGINNING
    ),
    Format(
        "mitmproxy",
        (".mitm", ".flow", ".flows"),
        lambda value: False,
        mitmproxy.load,
        None,
        "mitmproxy",
        mitmproxy.BEGINNING,
    ),
    _read_only("aimock", "aimock", aimock.recognises, aimock.read),
    _read_only("wiremock", "WireMock", wiremock.recognises, wiremock.read),
)
"""The formats, in the order of detection."""

WRITTEN = tuple([known for known in FORMATS if known.save is not None])
"""The formats that are written too."""
