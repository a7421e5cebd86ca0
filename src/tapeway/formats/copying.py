"""A cassette line by line on its way from one tapeway to another, large bodies aside.

The first line is its head, each further one an interaction with its index, and the last one counts
them and gives the digest of the whole: what has no such end is not all of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tapeway.core.json_text import Json, NotJson, dump, parse
from tapeway.core.model.cassette import CassetteHead, Held
from tapeway.formats import fingerprint, native
from tapeway.formats.fault import FormatFault
from tapeway.formats.fields import Fields

MEDIA_TYPE = "application/jsonl"
_END = "end"
_LONGEST = 256 * 1024 * 1024


class Cut(ValueError):
    """The copy does not end as it should."""


@dataclass(frozen=True, slots=True)
class End:
    """What a whole copy says: its head, its digest, and, where asked for, that of each interaction."""

    head: CassetteHead
    digest: str
    digests: tuple[str, ...]


class Writer:
    """Writes a copy; every method gives some of its lines.

    What it remembers does not grow with the copy, unless it is to remember each digest.
    """

    def __init__(self, head: CassetteHead, *, remember: bool = False) -> None:
        self._head = head
        self._count = 0
        self._whole = fingerprint.Whole(fingerprint.of_head(head))
        self._digests: list[str] | None = [] if remember else None

    def first(self) -> bytes:
        return dump(native.root_of(self._head)) + b"\n"

    def lines(self, items: Iterable[Held]) -> bytes:
        """Raises FormatFault for an interaction that could not be read again."""
        written: list[bytes] = []
        for item in items:
            document = native.encode(item)
            digest = fingerprint.of_document(document)
            self._count += 1
            self._whole.add(digest)
            if self._digests is not None:
                self._digests.append(digest)
            written.append(dump(native.numbered(item.index, document)) + b"\n")
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


class Reader:
    """Reads a copy piece by piece. Raises FormatFault for what cannot be read, and Cut."""

    def __init__(self, *, remember: bool = False) -> None:
        self._rest: list[bytes] = []
        self._waiting = 0
        self._head: CassetteHead | None = None
        self._count = 0
        self._whole = fingerprint.Whole("")
        self._digests: list[str] | None = [] if remember else None
        self._end: Fields | None = None

    def feed(self, piece: bytes) -> list[Held]:
        """The interactions that came to their end with this piece."""
        *ended, rest = piece.split(b"\n")
        found: list[Held] = []
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

    def finish(self) -> End:
        """What it says, once nothing more comes."""
        if self._head is None or self._end is None or self._rest:
            raise Cut("the copy ends before its last line")
        digest = self._whole.digest
        said = self._end.integer("interactions", low=0, high=2**53), self._end.text("sha256")
        if said != (self._count, digest):
            raise Cut("the copy is not what its last line says")
        return End(self._head, digest, tuple(self._digests or ()))

    def _read(self, line: bytes) -> Held | None:
        if self._end is not None:
            raise Cut("something follows on the last line of the copy")
        number = self._count + 2 if self._head is not None else 1
        try:
            value = parse(line)
        except NotJson as exc:
            raise FormatFault(f"is no JSON: {exc}", line=number) from None
        fields = Fields.of(value, ())
        if self._head is None:
            root: dict[str, Json] = {**fields.values, "interactions": []}
            self._head = native.sheet_of(root).head
            self._whole = fingerprint.Whole(fingerprint.of_head(self._head))
            return None
        if _END in fields:
            self._end = fields.object(_END)
            return None
        document = dict(fields.values)
        index = fields.integer("index", low=0, high=2**53)
        item = native.decode(document, index, ("interactions", self._count))
        digest = fingerprint.of_document(document)
        self._count += 1
        self._whole.add(digest)
        if self._digests is not None:
            self._digests.append(digest)
        return item
