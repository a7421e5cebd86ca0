"""The formats there are: by name, by a file's suffix, and by what a text says.

A new format is one row here. Reading and writing are pure; what a cassette's own file needs from
beside it (journal, large bodies) is its store's business.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tapeway.core.json_text import Json, NotJson, dump, parse
from tapeway.core.model import CassetteHead, StoredCassette
from tapeway.formats import har, interposition, json_lines, jsonl, native, vcr
from tapeway.formats.fault import FormatFault
from tapeway.formats.loss import Loaded, Loss, Saved

_Read = Callable[[Json, CassetteHead], tuple[StoredCassette, list[Loss]]]
_Write = Callable[[StoredCassette], tuple[dict[str, Json], list[Loss]]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A format: what it is called, how its files end, and how they are read and written.

    `load` takes what a new cassette says about itself, for files that do not say it, and raises
    FormatFault with line and place; `save` raises FormatFault for what no cassette could hold.
    `save` is None for a format that is only read.
    """

    name: str
    suffixes: tuple[str, ...]
    recognises: Callable[[Json], bool]
    load: Callable[[bytes, CassetteHead], Loaded]
    save: Callable[[StoredCassette], Saved] | None


def named(name: str) -> Kind | None:
    """The format of this name."""
    return next((kind for kind in KINDS if kind.name == name), None)


def of_suffix(suffix: str) -> Kind | None:
    """The format that files which end like this are written in, such as `.har`."""
    return next((kind for kind in KINDS if suffix.lower() in kind.suffixes), None)


def of_text(text: bytes) -> Kind | None:
    """The format a text is in, or None where no format knows it."""
    try:
        value = parse(text)
    except NotJson:
        return _of_line(text)
    return _of_value(value)


def _of_line(text: bytes) -> Kind | None:
    try:
        kind = _of_value(parse(text.lstrip().partition(b"\n")[0]))
    except NotJson:
        return None
    return kind if kind is JSONL else None


def _of_value(value: Json) -> Kind | None:
    return next((kind for kind in KINDS if kind.recognises(value)), None)


def _json(text: bytes) -> Json:
    try:
        return parse(text)
    except NotJson as exc:
        raise json_lines.explain(text, exc) from None


def _loader(read: _Read) -> Callable[[bytes, CassetteHead], Loaded]:
    def load(text: bytes, fresh: CassetteHead) -> Loaded:
        value = _json(text)
        try:
            cassette, losses = read(value, fresh)
        except FormatFault as fault:
            line = json_lines.line_of(text.decode("utf-8"), fault.pointer)
            raise FormatFault(fault.reason, fault.pointer, line=line) from None
        return Loaded(cassette, tuple(losses))

    return load


def _saver(write: _Write) -> Callable[[StoredCassette], Saved]:
    def save(cassette: StoredCassette) -> Saved:
        document, losses = write(cassette)
        return Saved(dump(document, indent=True) + b"\n", tuple(losses))

    return save


def _is_native(value: Json) -> bool:
    match value:
        case {"version": "1" | 1, "interactions": [{"kind": _}, *_]}:
            return True
        case {"version": "1", "interactions": []}:
            return True
        case _:
            return False


TAPEWAY = Kind(
    "tapeway",
    (".json",),
    _is_native,
    lambda text, fresh: Loaded(native.load(text)),
    lambda cassette: Saved(native.save(cassette)),
)
"""A cassette file; where it lies in a store, the store reads and writes it."""

JSONL = Kind(
    "jsonl",
    (".jsonl", ".ndjson"),
    jsonl.recognises,
    lambda text, fresh: Loaded(jsonl.read(text, fresh)),
    lambda cassette: Saved(jsonl.write(cassette)),
)

KINDS = (
    TAPEWAY,
    Kind("har", (".har",), har.recognises, _loader(har.read), _saver(har.write)),
    Kind("vcr", (), vcr.recognises, _loader(vcr.read), _saver(vcr.write)),
    Kind(
        "interposition",
        (),
        interposition.recognises,
        _loader(interposition.read),
        _saver(interposition.write),
    ),
    JSONL,
)
"""In the order they are asked whether a text is theirs."""
