"""JSON Lines: a cassette's head on the first line, then one interaction a line, as the cassette
file has it. For tools that stream, filter and count lines.

A cassette line by line on its way from one tapeway to another, large bodies aside.

The first line is its head, each further one an interaction with its index, and the last one counts
them and gives the digest of the whole: what has no such end is not all of it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tapeway.core.json_text import Json, NotJson, dump, parse
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.formats import conversion_loss
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document, Fields
from tapeway.formats.native import document, versions
from tapeway.formats.native.document import (
    CassetteDigest,
    decode,
    document_digest,
    encode,
    head_digest,
    numbered,
    parse_root,
    root_fields,
)
from tapeway.formats.native.versions import UPGRADES, Upgrade

MEDIA_TYPE = "application/jsonl"
_END = "end"
_LONGEST = 256 * 1024 * 1024


def recognises(value: Json) -> bool:
    """Whether the first of several lines looks like one of these."""
    return isinstance(value, dict) and (_is_head(value) or {"kind", "request"} <= value.keys())


def read(
    text: bytes, fresh: CassetteHead, upgrades: Mapping[int, Upgrade] = UPGRADES
) -> StoredCassette:
    """The cassette. Raises FormatFault with line and place."""
    first: Document = {"version": str(versions.CURRENT)}
    documents: list[Json] = []
    # Of the head and of each interaction.
    lines: list[int] = [1]
    for number, value in _values(text):
        if not documents and _is_head(value):
            first, lines[0] = value, number
        else:
            documents.append(value)
            lines.append(number)
    try:
        root = versions.upgraded({**first, "interactions": documents}, upgrades)
        head = conversion_loss.head(Fields(root, ()), fresh)
        # One text for all, so that what is wrong is told as in a cassette file.
        known = {name: root[name] for name in ("version", "interactions")}
        return document.load(dump(known | conversion_loss.head_fields(head)))
    except FormatFault as fault:
        at = fault.pointer[1] if len(fault.pointer) > 1 else None
        line = lines[at + 1 if isinstance(at, int) else 0]
        raise FormatFault(fault.reason, fault.pointer, line=line) from None


def write(cassette: StoredCassette) -> bytes:
    """The lines, each interaction numbered by its position."""
    first: Document = {
        "version": str(versions.CURRENT),
        **conversion_loss.head_fields(cassette.head),
    }
    rest = [
        {**document.encode(item), "index": index}
        for index, item in enumerate(cassette.interactions)
    ]
    return b"".join([dump(each) + b"\n" for each in [first, *rest]])


def _is_head(value: Document) -> bool:
    return "version" in value and "kind" not in value and "interactions" not in value


def _values(text: bytes) -> Iterator[tuple[int, Document]]:
    for number, line in enumerate(text.split(b"\n"), 1):
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
    """The copy does not end as it should."""


@dataclass(frozen=True, slots=True)
class CopyEnd:
    """What a whole copy says: its head, its digest, and, where asked for, that of each interaction."""

    head: CassetteHead
    digest: str
    digests: tuple[str, ...]


class CopyWriter:
    """Writes a copy; every method gives some of its lines.

    What it remembers does not grow with the copy, unless it is to remember each digest.
    """

    def __init__(self, head: CassetteHead, *, remember: bool = False) -> None:
        self._head = head
        self._count = 0
        self._whole = CassetteDigest(head_digest(head))
        self._digests: list[str] | None = [] if remember else None

    def first(self) -> bytes:
        return dump(root_fields(self._head)) + b"\n"

    def lines(self, items: Iterable[AnyInteraction]) -> bytes:
        """Raises FormatFault for an interaction that could not be read again."""
        written: list[bytes] = []
        for item in items:
            document = encode(item)
            digest = document_digest(document)
            self._count += 1
            self._whole.add(digest)
            if self._digests is not None:
                self._digests.append(digest)
            written.append(dump(numbered(item.index, document)) + b"\n")
        return b"".join(written)

    @property
    def digests(self) -> tuple[str, ...]:
        """Those of the interactions that were written and are remembered."""
        return tuple(self._digests or ())

    @property
    def digest(self) -> str:
        """That of the whole as far as it was written."""
        return self._whole.digest

    def last(self) -> bytes:
        end: dict[str, Json] = {"interactions": self._count, "sha256": self.digest}
        return dump({_END: end}) + b"\n"


class CopyReader:
    """Reads a copy piece by piece. Raises FormatFault for what cannot be read, and IncompleteCopy."""

    def __init__(self, *, remember: bool = False) -> None:
        self._rest: list[bytes] = []
        self._waiting = 0
        self._head: CassetteHead | None = None
        self._count = 0
        self._whole = CassetteDigest("")
        self._digests: list[str] | None = [] if remember else None
        self._end: Fields | None = None

    def feed(self, piece: bytes) -> list[AnyInteraction]:
        """The interactions that came to their end with this piece."""
        *ended, rest = piece.split(b"\n")
        found: list[AnyInteraction] = []
        for line in ended:
            self._rest.append(line)
            if (item := self._read(b"".join(self._rest))) is not None:
                found.append(item)
            self._rest, self._waiting = [], 0
        if rest:
            self._rest.append(rest)
            self._waiting += len(rest)
            if self._waiting > _LONGEST:
                raise FormatFault(f"a line of more than {_LONGEST} bytes")
        return found

    def finish(self) -> CopyEnd:
        """What it says, once nothing more comes."""
        if self._head is None or self._end is None or self._rest:
            raise IncompleteCopy("the copy ends before its last line")
        digest = self._whole.digest
        said = self._end.integer("interactions", low=0, high=2**53), self._end.text("sha256")
        if said != (self._count, digest):
            raise IncompleteCopy("the copy is not what its last line says")
        return CopyEnd(self._head, digest, tuple(self._digests or ()))

    def _read(self, line: bytes) -> AnyInteraction | None:
        if self._end is not None:
            raise IncompleteCopy("something follows on the last line of the copy")
        number = self._count + 2 if self._head is not None else 1
        try:
            value = parse(line)
        except NotJson as exc:
            raise FormatFault(f"is no JSON: {exc}", line=number) from None
        fields = Fields.of(value, ())
        if self._head is None:
            root: dict[str, Json] = {**fields.values, "interactions": []}
            # An upgrade needs the whole document, and a copy is never held whole.
            self._head = parse_root(root, upgrades={}).head
            self._whole = CassetteDigest(head_digest(self._head))
            return None
        if _END in fields:
            self._end = fields.object(_END)
            return None
        document = dict(fields.values)
        index = fields.integer("index", low=0, high=2**53)
        item = decode(document, index, ("interactions", self._count))
        digest = document_digest(document)
        self._count += 1
        self._whole.add(digest)
        if self._digests is not None:
            self._digests.append(digest)
        return item
