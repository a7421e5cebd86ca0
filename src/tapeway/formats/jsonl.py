"""JSON Lines: the head of a cassette on the first line, then one interaction a line.

`read` and `write` are the export format, for tools that stream, filter and count lines.
`CopyWriter` and `CopyReader` are for the copy that a tapeway sends to a second tapeway: the lines
of the export format with the index of each interaction, and a last line with the count of
interactions and the digest of the whole. A copy without the last line is incomplete. Large bodies
are sent separately.
"""

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tapeway.core.json_text import Json, NotJson, dump, json_pieces, parse
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.formats import conversion_loss
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document, Fields
from tapeway.formats.native import document
from tapeway.formats.native.document import (
    VERSION,
    CassetteHasher,
    check_version,
    decode,
    document_digest,
    encode,
    head_digest,
    numbered,
    parse_root,
    root_fields,
)

MEDIA_TYPE = "application/jsonl"
_END = "end"
_LONGEST_LINE = 256 * 1024 * 1024


def recognises(value: Json) -> bool:
    """Whether a value looks like the first line of such a file."""
    return isinstance(value, dict) and (_is_head(value) or {"kind", "request"} <= value.keys())


def read(text: bytes, fresh: CassetteHead) -> StoredCassette:
    """The cassette. Raises FormatFault with line and place."""
    first: Document = {"version": str(VERSION)}
    documents: list[Json] = []
    # The line numbers of the head and of each interaction.
    lines: list[int] = [1]
    for number, value in _values(text):
        if not documents and _is_head(value):
            first, lines[0] = value, number
        else:
            documents.append(value)
            lines.append(number)
    try:
        root = Fields(first, ())
        check_version(root)
        head = conversion_loss.read_head(root, fresh)
        # Joined into a single text, which reports faults like a cassette file.
        whole: Json = {**root_fields(head), "interactions": documents}
        return document.load(b"".join([*json_pieces(whole, indent=True), b"\n"]))
    except FormatFault as fault:
        at = fault.pointer[1] if len(fault.pointer) > 1 else None
        raise fault.on_line(lines[at + 1 if isinstance(at, int) else 0]) from None


def write(cassette: StoredCassette) -> bytes:
    """The lines, each interaction numbered by its position."""
    return b"".join(pieces(cassette))


def pieces(cassette: StoredCassette) -> Iterator[bytes]:
    """The lines in pieces. While a large interaction is written, other threads get turns."""
    yield dump(root_fields(cassette.head)) + b"\n"
    # Each interaction is freed once written: to free all at once would keep other threads waiting.
    for index, item in enumerate(cassette.interactions):
        yield from json_pieces({**document.encode(item), "index": index})
        yield b"\n"


def _is_head(value: Document) -> bool:
    return "version" in value and "kind" not in value and "interactions" not in value


def _values(text: bytes) -> Iterator[tuple[int, Document]]:
    for number, line in enumerate(io.BytesIO(text), 1):
        if not line.strip():
            continue
        try:
            value: Json = parse(line)
        except NotJson as exc:
            raise FormatFault(f"is no JSON: {exc}", line=number) from None
        if not isinstance(value, dict):
            raise FormatFault("must be an object", line=number)
        yield number, value


class IncompleteCopy(ValueError):
    """The copy ends too early, or the last line does not fit the lines before."""


@dataclass(frozen=True, slots=True)
class CopyEnd:
    """The head and digest of a whole copy, and, where asked for, the digest of each interaction."""

    head: CassetteHead
    digest: str
    digests: tuple[str, ...]


class _CopyDigests:
    """Count and digests of the interactions so far; memory grows only where each is remembered."""

    def __init__(self, head: str, *, remember: bool) -> None:
        self.count = 0
        self._whole = CassetteHasher(head)
        self._each: list[str] | None = [] if remember else None

    def add(self, digest: str) -> None:
        self.count += 1
        self._whole.add(digest)
        if self._each is not None:
            self._each.append(digest)

    @property
    def whole(self) -> str:
        return self._whole.digest

    @property
    def each(self) -> tuple[str, ...]:
        return tuple(self._each or ())


class CopyWriter:
    """Writes a copy; every method returns some of the lines."""

    def __init__(self, head: CassetteHead, *, remember: bool = False) -> None:
        self._head = head
        self._digests = _CopyDigests(head_digest(head), remember=remember)

    def first(self) -> bytes:
        return dump(root_fields(self._head)) + b"\n"

    def lines(self, items: Iterable[AnyInteraction]) -> bytes:
        """Raises FormatFault for an interaction that could not be read again."""
        written: list[bytes] = []
        for item in items:
            document = encode(item)
            self._digests.add(document_digest(document))
            written.append(dump(numbered(item.index, document)) + b"\n")
        return b"".join(written)

    @property
    def digests(self) -> tuple[str, ...]:
        """The digests of the interactions written so far, if they are remembered."""
        return self._digests.each

    @property
    def digest(self) -> str:
        """The digest of all that was written so far."""
        return self._digests.whole

    def last(self) -> bytes:
        end: dict[str, Json] = {"interactions": self._digests.count, "sha256": self.digest}
        return dump({_END: end}) + b"\n"


class CopyReader:
    """Reads a copy piece by piece. Raises FormatFault for what is invalid, and IncompleteCopy."""

    def __init__(self, *, remember: bool = False) -> None:
        self._remember = remember
        self._begun_line: list[bytes] = []
        self._begun_size = 0
        self._head: CassetteHead | None = None
        self._digests = _CopyDigests("", remember=remember)
        self._end: Fields | None = None

    @property
    def head(self) -> CassetteHead:
        """The metadata, once an interaction was read."""
        if self._head is None:
            raise ValueError("the first line has not come yet")
        return self._head

    def feed(self, piece: bytes) -> list[AnyInteraction]:
        """The interactions with lines that end in this piece."""
        *ended, rest = piece.split(b"\n")
        interactions: list[AnyInteraction] = []
        for line in ended:
            self._begun_line.append(line)
            if (item := self._read(b"".join(self._begun_line))) is not None:
                interactions.append(item)
            self._begun_line, self._begun_size = [], 0
        if rest:
            self._begun_line.append(rest)
            self._begun_size += len(rest)
            if self._begun_size > _LONGEST_LINE:
                raise FormatFault(f"a line of more than {_LONGEST_LINE} bytes")
        return interactions

    def finish(self) -> CopyEnd:
        """The copy's end, once nothing more comes."""
        if self._head is None or self._end is None or self._begun_line:
            raise IncompleteCopy("the copy ends before its last line")
        announced = self._end.integer("interactions", low=0, high=2**53), self._end.text("sha256")
        if announced != (self._digests.count, self._digests.whole):
            raise IncompleteCopy("the copy is not what its last line says")
        return CopyEnd(self._head, self._digests.whole, self._digests.each)

    def _read(self, line: bytes) -> AnyInteraction | None:
        if self._end is not None:
            raise IncompleteCopy("something follows on the last line of the copy")
        number = self._digests.count + 2 if self._head is not None else 1
        try:
            value = parse(line)
        except NotJson as exc:
            raise FormatFault(f"is no JSON: {exc}", line=number) from None
        fields = Fields.of(value, ())
        if self._head is None:
            root: dict[str, Json] = {**fields.values, "interactions": []}
            self._head = parse_root(root).head
            self._digests = _CopyDigests(head_digest(self._head), remember=self._remember)
            return None
        if _END in fields:
            self._end = fields.object(_END)
            return None
        document = dict(fields.values)
        index = fields.integer("index", low=0, high=2**53)
        item = decode(document, index, ("interactions", self._digests.count))
        self._digests.add(document_digest(document))
        return item
