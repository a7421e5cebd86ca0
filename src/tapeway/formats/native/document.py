"""The cassette file: AgentTape's schema as one indented JSON document.

`load` and `save` read and write a whole cassette. Below `load`, reading has two steps: `read` gives
the documents of the interactions, `decode` the interaction in a document. Documents that nobody
changed are written back as found; `write` gives new indexes.

AgentTape moves texts and bytes of more than 4 KiB into files in `NAME.assets/` and leaves
references with the digests; decoding puts the texts and bytes back in place.
"""

import hashlib
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from json import JSONDecoder
from typing import Protocol, TypeVar

import orjson

from tapeway.core import json_text
from tapeway.core.cassette import cursors
from tapeway.core.digests import sha256
from tapeway.core.json_text import (
    NON_FINITE_KEY,
    Json,
    NotJson,
    Pointer,
    ReadJson,
    dump,
    parse,
    parse_as_dumped,
)
from tapeway.core.matching import rules
from tapeway.core.matching.rules import RulesFault
from tapeway.core.model.cassette import NOT_READ, CassetteHead, ReadBodies, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction
from tapeway.core.model.messages import Request
from tapeway.core.text import nearest_names, occurs
from tapeway.formats import conflict_markers, errors
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document, Fields
from tapeway.formats.native import http_exchange, layout, sdk_calls
from tapeway.formats.native.assets import (
    REFERENCE_NAME,
    FetchAsset,
    inlined,
    no_assets,
    with_previews,
)
from tapeway.formats.native.repeated_parts import (
    OWN_KINDS,
    EarlierRequests,
    HasReferences,
    PartSharer,
    is_own,
)
from tapeway.formats.native.text_lines import joined, spread

T = TypeVar("T")

VERSION = 1
"""The format version that every cassette file names: AgentTape's.

New fields that AgentTape ignores need no new version. A change that an older tapeway would misread
needs a new version, and the upgrade of files, journals and tables of version 1.
"""
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_RESERVED = b"__agenttape_"
"""How AgentTape's reserved names begin, also for a number that is not finite."""
# As in JSON and YAML, or within some text.
_NON_FINITE = re.compile(rb"NaN|Infinity|\.(?:nan|NAN|inf|Inf|INF)")
_FIRST, _NEXT, _LAST = b',\n  "interactions": [\n', b"\n    },\n    {\n", b"\n  ]\n}\n"
_MOST_INDEXES = 2**53
_LEVELS = 2
"""How deep an interaction is in a file."""
_BLANKS = re.compile(r"[ \t\n\r]*")
_read_value = JSONDecoder().raw_decode
_MOST_FILED = 1024 * 1024
"""Longer texts of recordings stay in memory: reading long texts would hold up the event loop."""
_MOST_LAID_OUT = 256 * 1024
"""Larger interactions have each value on a separate line: to lay out takes longer than to write."""
KINDS = ("llm", "tool", "retrieval", "memory_read", "memory_write", "http", "websocket")
_OTHER_FILES = "move it away, or convert another tool's file with tapeway cassette convert"
_ROOT = ("version", "created_at", "run_id", "meta", "interactions")
_ALWAYS = frozenset({"version", "run_id", "interactions"})


class Text(Protocol):
    """The bytes of a file, which need not be in memory."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes: ...

    def find(self, sought: bytes, start: int = ..., end: int = ..., /) -> int: ...


FileRecording = Callable[[int, Request, ReadJson | None, int, bytes], AnyInteraction]
"""Takes a recording and returns the recording to load. The arguments are the index; the request;
the JSON body as read, or None where the request has the body as sent; the place of the text in the
file; the text.
"""
BeginFiling = Callable[[CassetteHead], FileRecording]
"""For a cassette with recordings that are to stay in the file."""


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The head of a cassette file, and the document of each interaction with the index."""

    head: CassetteHead
    documents: tuple[tuple[int, Document], ...]

    def discard(self, cassette: StoredCassette) -> None:
        """Free the decoded documents singly, to let other threads run."""
        kept = {
            id(interaction.document)
            for interaction in cassette.interactions
            if isinstance(interaction, ForeignInteraction)
        }
        for _, document in self.documents:
            if id(document) not in kept:
                document.clear()


@dataclass(frozen=True, slots=True)
class Serializer:
    """Reads and writes cassette files in one syntax, JSON or YAML."""

    name: str
    suffixes: tuple[str, ...]
    parse: Callable[[bytes], tuple[Json, bool]]
    """The value, and whether a number in it may not be finite.

    Raises FormatFault with line and reason."""
    line_of: Callable[[bytes, Pointer], int]
    """The line of a value in a file that could be parsed."""
    pieces: Callable[[CassetteHead, Iterable[Document]], Iterable[bytes]]
    """The file of a head and documents in this order, in pieces. Equal input gives equal bytes.

    Raises FormatFault for a file that could not be read again."""
    divide: Callable[..., "FileParts | None"] = lambda *_, **__: None
    """The parts of a file, also in another layout than `pieces` writes if `scans`.

    None for a file that has to be parsed as a whole, such as a file with a fault.
    """

    def write(self, head: CassetteHead, documents: Iterable[Document]) -> bytes:
        """The file in a single piece."""
        return b"".join(self.pieces(head, documents))

    def load(
        self, text: Text, fetch: FetchAsset = no_assets, filing: BeginFiling | None = None
    ) -> StoredCassette:
        """The cassette a file holds. Raises FormatFault with line, place and reason."""
        in_parts = self._in_parts(text, lambda parts: parts.load(filing), scans=filing is not None)
        if in_parts is not None:
            return in_parts
        whole = text[: len(text)]
        parsed = self.read(whole)
        cassette = StoredCassette(parsed.head, tuple(self.decode_all(whole, parsed, fetch)))
        parsed.discard(cassette)
        return cassette

    def documents(self, text: Text) -> "DocumentsOfFile":
        """The documents of a file, if possible one in memory at a time. Raises FormatFault."""
        in_parts = self._in_parts(text, FileParts.documents, scans=True)
        return in_memory(self.read(text[: len(text)])) if in_parts is None else in_parts

    def _in_parts(self, text: Text, read: "Callable[[FileParts], T]", *, scans: bool) -> T | None:
        """What `read` makes of a file's parts; None for a file that has to be parsed as a whole."""
        if (parts := self.divide(text, scans=scans)) is None:
            return None
        # A fault is found again in the whole, with its place.
        with suppress(FormatFault, NotJson):
            try:
                return read(parts)
            except HasReferences:
                # Most cassettes have no references, and the first one is soon found.
                return read(replace(parts, keeps=True))
        return None

    def save(self, cassette: StoredCassette) -> bytes:
        """The file of a cassette, the interactions numbered by position."""
        return self.write(cassette.head, map(encode, cassette.interactions))

    def read(self, text: bytes) -> ParsedFile:
        """The documents in a file, not decoded yet. Raises FormatFault for a wrong root."""
        try:
            value, non_finite = self.parse(text)
        except FormatFault as fault:
            raise conflict_markers.fault_of(text, fault) from None
        try:
            parsed = parse_root(value)
            if non_finite:
                _refuse_non_finite(parsed)
            return parsed
        except FormatFault as fault:
            raise fault.on_line(self.line_of(text, fault.pointer)) from None

    def decode_all(
        self, text: bytes, parsed: ParsedFile, fetch: FetchAsset
    ) -> list[AnyInteraction]:
        """The interactions of a file. Raises FormatFault with line, place and reason."""
        # Searching for references takes time: most cassettes have none.
        assets = fetch if REFERENCE_NAME.encode() in text else None
        try:
            return [
                decode(document, index, ("interactions", position), assets)
                for position, (index, document) in enumerate(parsed.documents)
            ]
        except FormatFault as fault:
            raise fault.on_line(self.line_of(text, fault.pointer)) from None


def parse_root(value: Json) -> ParsedFile:
    """The documents in a file's JSON value. Raises FormatFault with the place."""
    if not resembles_cassette(value):
        reason = "this is no cassette, which has a 'version' and 'interactions'"
        raise FormatFault(reason, advice=_OTHER_FILES)
    fields = Fields(_root(value), ())
    check_version(fields)
    fields.only(_ROOT)
    fields.require("interactions")
    objects = _objects(fields.list("interactions"))
    indexes = _indexes(objects)
    earlier = EarlierRequests()
    documents = [
        _whole(index, document, position, earlier)[0]
        for position, (index, document) in enumerate(zip(indexes, objects, strict=True))
    ]
    head = CassetteHead(
        created_at=fields.text("created_at"),
        run_id=fields.text("run_id"),
        meta=fields.object("meta").values,
    )
    _check_rules(head)
    return ParsedFile(head, tuple(zip(indexes, documents, strict=True)))


def check_version(fields: Fields) -> None:
    """Raise FormatFault for the root of a file in a version that this tapeway does not read."""
    fields.require("version")
    written = str(fields.values["version"])
    if written == str(VERSION):
        return
    known = f"this tapeway reads {VERSION}"
    if _NUMBER.fullmatch(written) and int(written) > VERSION:
        reason = f"the file has the newer format version {written}; {known}"
        raise FormatFault(reason, ("version",), advice="update tapeway")
    raise fields.fault("version", f"there is no format version '{written}'; {known}: correct it")


def resembles_cassette(value: Json) -> bool:
    """Whether a value has a field of all cassettes, even if further fields are missing or wrong."""
    return isinstance(value, dict) and not _ALWAYS.isdisjoint(value)


def decode(
    document: Document, index: int, at: Pointer = (), fetch: FetchAsset | None = None
) -> AnyInteraction:
    """The interaction in a document. Raises FormatFault with the place of what is wrong.

    Other kinds than HTTP calls, and errors of foreign tools, are kept unchanged.
    """
    if fetch is not None or document.get("kind") == "websocket":
        document = inlined(document, fetch, at)
    if (
        is_own(document)
        and "response" in document
        and "error" not in document
        and not _is_custom(document["request"])
    ):
        # Nearly every document.
        return http_exchange.decode(document, index, at)
    fields = Fields(document, at)
    fields.require("kind")
    kind = fields.text("kind")
    if kind not in KINDS:
        near = nearest_names(kind, KINDS)
        advice = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(KINDS)}"
        raise fields.fault("kind", f"there is no kind '{kind}'; {advice}")
    if "error" not in fields and "response" not in document:
        raise FormatFault("there is neither a 'response' nor an 'error'", at)
    if kind not in OWN_KINDS or _is_custom(document.get("request")):
        return ForeignInteraction(index, document, sdk_calls.exchange_of(document, index, at))
    if "error" in fields and not http_exchange.is_ours(document.get("error")):
        return ForeignInteraction(index, document, sdk_calls.exchange_of_error(document, index, at))
    return http_exchange.decode(document, index, at)


def encode(interaction: AnyInteraction, read: ReadBodies = NOT_READ) -> Document:
    """The document of an interaction. Raises FormatFault where it could not be read again."""
    if isinstance(interaction, ForeignInteraction):
        return dict(interaction.document)
    return http_exchange.encode(interaction, read)


def pieces(head: CassetteHead, documents: Iterable[Document]) -> Iterator[bytes]:
    """The file of a head and documents in this order. Equal input gives equal bytes."""
    before = json_text.write_non_finite(_head_text(head)).removesuffix(b"\n}")
    index, sharer = -1, PartSharer()
    # Singly: a large cassette is never in memory as a whole.
    for index, document in enumerate(documents):
        yield b",\n" if index else before + _FIRST
        shared = sharer.shared(index, document)
        yield _indented(index, spread(shared) if is_own(document) else shared)
    yield _LAST if index >= 0 else before + b',\n  "interactions": []\n}\n'


def root_fields(head: CassetteHead) -> Document:
    """The fields of a file before its interactions."""
    return {
        "version": str(VERSION),
        "created_at": head.created_at,
        "run_id": head.run_id,
        "meta": dict(head.meta),
    }


def numbered(index: int, document: Document) -> Document:
    """The document with a new index, in place of the old index or else in front."""
    return document | {"index": index} if "index" in document else {"index": index, **document}


def document_digest(document: Mapping[str, Json]) -> str:
    """The digest of an interaction's document without the index."""
    plain = {name: value for name, value in document.items() if name != "index"}
    return sha256(dump(plain)).hexdigest()


def interaction_digest(item: AnyInteraction) -> str:
    """The digest of an interaction's document. Raises FormatFault without a document."""
    return document_digest(encode(item))


def head_digest(head: CassetteHead) -> str:
    """The digest of a cassette's own fields."""
    return sha256(dump(root_fields(head))).hexdigest()


class CassetteHasher:
    """The digest of a cassette, computed from the digests of head and interactions as they come.

    The digest depends on content and order of the interactions, and not on the indexes.
    """

    def __init__(self, head: str) -> None:
        self._hash = hashlib.sha256(head.encode())

    def add(self, digest: str) -> None:
        self._hash.update(b"\n" + digest.encode())

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


def cassette_digest(head: str, digests: Iterable[str]) -> str:
    """The digest of a cassette, from the digests of head and interactions in order."""
    hasher = CassetteHasher(head)
    for digest in digests:
        hasher.add(digest)
    return hasher.digest


def _indented(index: int, document: Document) -> bytes:
    in_lines = layout.chunk_line(numbered(index, document))
    text = dump(in_lines, indent=True)
    if len(text) <= _MOST_LAID_OUT and is_own(document):
        text = dump(layout.short_lines(in_lines), indent=True)
    # A line break inside a string is an escape: each line break begins a line.
    return b"    " + json_text.write_non_finite(text).replace(b"\n", b"\n    ")


def _head_text(head: CassetteHead) -> bytes:
    root = root_fields(head)
    return dump({**root, "meta": layout.rule_lines(dict(head.meta))}, indent=True)


def _is_custom(request: Json) -> bool:
    # A program that records with AgentTape's own functions may call anything `http`.
    return isinstance(request, dict) and "method" not in request and "url" not in request


def _root(value: Json) -> Document:
    # With a low size limit AgentTape moves even the head's own fields into assets.
    return {
        name: member if name == "interactions" else with_previews(member)
        for name, member in Fields.of(value, ()).values.items()
    }


def _refuse_non_finite(parsed: ParsedFile) -> None:
    """Raise FormatFault for a number that is not finite in a recording by tapeway.

    AgentTape writes NaN and infinities, tapeway never does: somebody's edit would replay as no
    JSON.
    """
    for position, (_, document) in enumerate(parsed.documents):
        match document:
            case {"kind": "http" | "websocket", "request": {"route": str()}}:
                for pointer in _non_finite(document, ("interactions", position)):
                    raise FormatFault("is no number that JSON can hold: write another", pointer)


def _non_finite(value: Json, at: Pointer) -> Iterator[Pointer]:
    if json_text.non_finite_number(value) is not None:
        yield at
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _non_finite(inner, (*at, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _non_finite(inner, (*at, index))


def _check_rules(head: CassetteHead) -> None:
    try:
        rules.rules_of_meta(head.meta)
        cursors.repeats_of_meta(head.meta)
    except RulesFault as exc:
        raise FormatFault(f"{exc.what}; {exc.remedy}", ("meta", *exc.pointer)) from exc


def _objects(items: list[Json]) -> list[Document]:
    # The place is computed only for an error.
    return [
        item if isinstance(item, dict) else {**Fields.of(item, _place(position)).values}
        for position, item in enumerate(items)
    ]


def _place(position: int) -> Pointer:
    return "interactions", position


def _indexes(documents: Sequence[Document]) -> list[int]:
    # An interaction that was copied or added by hand gets the next free number.
    own: list[int | None] = []
    taken: set[int | None] = set()
    for position, document in enumerate(documents):
        index = document.get("index")
        if not (index is None or (type(index) is int and 0 <= index <= _MOST_INDEXES)):
            index = Fields(document, _place(position)).integer("index", low=0, high=_MOST_INDEXES)
        own.append(None if index in taken else index)
        taken.add(index)
    fresh = count(max([number for number in own if number is not None], default=-1) + 1)
    return [next(fresh) if number is None else number for number in own]


def _parse_json(text: bytes) -> tuple[Json, bool]:
    if (parsed := parse_in_parts(text)) is not None:
        return parsed
    try:
        return parse(text, constant=json_text.non_finite_object), may_be_non_finite(text)
    except NotJson as exc:
        raise errors.explain(text, exc) from None


def may_be_non_finite(text: bytes) -> bool:
    """Whether a text may have a number that is not finite, as written in JSON or YAML."""
    return occurs(_NON_FINITE, text, len("Infinity"))


def parse_in_parts(text: bytes) -> tuple[Json, bool] | None:
    """The value of a file in the layout of `write`, and whether a number may not be finite.

    None for a file in another layout, and for a file with a fault.
    """
    if (parts := divide(text)) is None:
        return None
    try:
        parsed = [(*_parsed(part), part) for _, part in parts.texts()]
    except NotJson:
        return None
    non_finite = NON_FINITE_KEY.encode() in text or any(
        not plain and may_be_non_finite(part) for _, plain, part in parsed
    )
    items: list[Json] = [document for document, _, _ in parsed]
    return {**parts.root, "interactions": items}, non_finite


def is_laid_out_as_written(text: Text) -> bool:
    """Whether the text is a cassette file in the layout of `write`."""
    return (split := _split(text)) is not None and resembles_cassette(split[0])


def _split(text: Text) -> tuple[Document, int, int] | None:
    """The root of a file in the layout of `write`, and the place of the list of interactions.

    Parsing a large text at once would keep all other threads waiting. An object between the commas
    and brackets of a list is an item of the list in any layout.
    """
    start, end = text.find(_FIRST) + len(_FIRST), len(text) - len(_LAST)
    if start < len(_FIRST) or text[max(end, 0) : len(text)] != _LAST:
        return None
    try:
        root = parse(text[: start - len(_FIRST)] + b"\n}")
    except NotJson:
        return None
    if not isinstance(root, dict) or not root or "interactions" in root:
        # Without a member before, the comma is superfluous.
        return None
    return root, start, end


@dataclass(frozen=True, slots=True)
class DocumentsOfFile:
    """The head of a cassette file, and the documents singly."""

    head: CassetteHead
    indexes: Sequence[int]
    documents: Callable[[], Iterator[Document]]
    """The documents in order, each made whole."""


def in_memory(parsed: ParsedFile) -> DocumentsOfFile:
    """The documents of a file that was parsed as a whole."""
    indexes = [index for index, _ in parsed.documents]
    return DocumentsOfFile(
        parsed.head, indexes, lambda: (document for _, document in parsed.documents)
    )


@dataclass(slots=True)
class FoundDocument:
    """A whole document of a file, and the place and the text of its interaction there."""

    index: int
    document: Document
    start: int
    text: bytes
    alone: bool
    """Whether tapeway recorded it, and the text has all of it."""
    plain: bool
    """Whether orjson reads the text exactly."""

    @property
    def stays(self) -> bool:
        """Whether the recording can stay in its file, where orjson reads it."""
        return (
            self.alone
            and http_exchange.is_all_in(self.document)
            and (self.plain or _reads_alike(self.text, self.document))
        )


@dataclass(frozen=True, slots=True)
class FileParts:
    """The root of a file without its interactions, and the text of each interaction.

    Each interaction is read before the next one is parsed: values are freed while in the processor's
    cache, which saves a quarter of the time. The methods raise NotJson for a file that has to be
    parsed as a whole: another version, assets, NaN and infinities, indexes that do not ascend.
    """

    root: Document
    texts: Callable[[], Iterator[tuple[int, bytes]]]
    """Begins to go through the texts, each with its place in the file."""
    keeps: bool = False
    """Whether requests are kept for later ones; otherwise the first reference raises HasReferences."""

    def load(self, filing: BeginFiling | None) -> StoredCassette:
        """The cassette. Raises FormatFault."""
        head, items = self._head(), list[AnyInteraction]()
        file = None if filing is None else filing(head)
        as_sent = bool(rules.rules_of_meta(head.meta))
        for found in self._found():
            at = _place(len(items))
            if file is not None and found.stays:
                request, read = http_exchange.check(found.document, at, as_sent=as_sent)
                items.append(file(found.index, request, read, found.start, found.text))
            else:
                items.append(decode(found.document, found.index, at))
        return StoredCassette(head, tuple(items))

    def documents(self) -> DocumentsOfFile:
        """The head and the documents. Raises FormatFault."""
        indexes = array("Q", (found.index for found in self._found()))
        return DocumentsOfFile(
            self._head(), indexes, lambda: (found.document for found in self._found())
        )

    def _head(self) -> CassetteHead:
        if self.root.get("version") != str(VERSION):
            raise NotJson("this may be another version")
        return parse_root({**self.root, "interactions": []}).head

    def _found(self) -> Iterator[FoundDocument]:
        earlier, least = EarlierRequests(keeps=self.keeps), 0
        for position, (start, text) in enumerate(self.texts()):
            if _RESERVED in text:
                raise NotJson("a name in it may be one of AgentTape's")
            document, plain = _parsed(text)
            if not plain and may_be_non_finite(text):
                raise NotJson("a number in it may not be finite")
            index = document.get("index")
            if type(index) is not int or not least <= index <= _MOST_INDEXES:
                raise NotJson("the index is missing or lower than the one before")
            least = index + 1
            whole, alone = _whole(index, document, position, earlier)
            yield FoundDocument(index, whole, start, text, alone, plain)


def divide(text: Text, *, scans: bool = False) -> FileParts | None:
    """The parts of a file in the layout of `write`, or in any layout if `scans`."""
    if (split := _split(text)) is not None:
        root, start, end = split
        texts = partial(_texts, text, start, end)
    elif scans and (scanned := _scan(whole := text[: len(text)])) is not None:
        root, places = scanned
        texts = partial(_texts_at, whole, places)
    else:
        return None
    return FileParts(root, texts)


def _parsed(text: bytes) -> tuple[Document, bool]:
    """The document in a text, and whether orjson reads it exactly. Raises NotJson."""
    if isinstance(plain := parse_as_dumped(text, levels=_LEVELS), dict):
        return plain, True
    # In the file, an interaction is as deep.
    match parse(b"[[%b]]" % text, constant=json_text.non_finite_object):
        case [[dict(document)]]:
            return document, False
    raise NotJson("this is no interaction")


def _whole(
    index: int, document: Document, position: int, earlier: EarlierRequests
) -> tuple[Document, bool]:
    """A document of a file made whole, and whether tapeway recorded it without references."""
    if not is_own(document):
        return document, False
    whole = earlier.whole(index, document, position)
    return joined(whole), whole is document


def _scan(text: bytes) -> "tuple[Document, array[int]] | None":
    """The root of a file in any layout, and the bounds of each interaction.

    None for a file with a fault. Interactions are parsed singly, to give other threads turns.
    """
    # In Latin-1 a character is an octet, and the syntax of JSON is ASCII.
    scanned = text.decode("latin-1")
    try:
        start, end, places = _scan_root(scanned)
        root = parse(text[:start] + b"[]" + text[end:])
    except (ValueError, RecursionError, NotJson):
        return None
    return (root, places) if isinstance(root, dict) else None


def _scan_root(text: str) -> "tuple[int, int, array[int]]":
    """Where the list of interactions begins and ends, and each interaction. Raises ValueError."""
    span: tuple[int, int, array[int]] | None = None
    at = _after_sign(text, 0, "{")
    while True:
        name, at = _read_value(text, _after_sign(text, at))
        at = _after_sign(text, _after_sign(text, at, ":"))
        if name == "interactions":
            if span is not None:
                raise ValueError("there are two lists of interactions")
            places = array("Q")
            end = _scan_list(text, at, places)
            span, at = (at, end, places), end
        else:
            _, at = _read_value(text, at)
        at = _after_sign(text, at)
        if text[at : at + 1] == "}":
            break
        at = _after_sign(text, at, ",")
    if span is None:
        raise ValueError("there is no list of interactions")
    return span


def _scan_list(text: str, at: int, places: "array[int]") -> int:
    """Note where each object of the list begins and ends; returns where the list ends."""
    at = _after_sign(text, _after_sign(text, at, "["))
    while not text.startswith("]", at):
        if places:
            at = _after_sign(text, _after_sign(text, at, ","))
        if not text.startswith("{", at):
            raise ValueError("this is no interaction")
        _, end = _read_value(text, at)
        places.extend((at, end))
        at = _after_sign(text, end)
    return at + 1


def _after_sign(text: str, at: int, sign: str = "") -> int:
    """The place behind blanks and the sign. Raises ValueError for a different sign."""
    match = _BLANKS.match(text, at)
    at = at if match is None else match.end()
    if not text.startswith(sign, at):
        raise ValueError(f"there is no {sign}")
    return at + len(sign)


def _texts_at(text: bytes, places: "array[int]") -> Iterator[tuple[int, bytes]]:
    for at in range(0, len(places), 2):
        yield places[at], text[places[at] : places[at + 1]]


def _texts(text: Text, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The text of each interaction, and the place of the text."""
    while start < end:
        cut = text.find(_NEXT, start, end)
        stop = end if cut < 0 else cut + 6
        yield start, text[start:stop]
        start = stop + 1


def _reads_alike(text: bytes, document: Document) -> bool:
    """Whether orjson reads exactly this value from a text spelled otherwise, as with escapes."""
    if len(text) > _MOST_FILED:
        return False
    try:
        return orjson.dumps(joined(orjson.loads(text))) == orjson.dumps(document)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return False


JSON = Serializer("json", (".json",), _parse_json, errors.line_of, pieces, divide)
load, save, write = JSON.load, JSON.save, JSON.write
