"""The text of a cassette's journal: one checksummed line a step, only ever appended to.

    crc32    seq durable JSON
    9f1c20aa 0   0       {"journal": 1, "base": "sha256…", "head": {…}}       the first line
    51b2c8d0 1   0       {"interaction": {…}, "supersedes": [3]}              a recording
    a9c50de1 2   1       {"interaction": {"index": 3, "again": 1}, "supersedes": [3]}   the same again
    0a77e41c 3   2       {"commit": "sha256…"}             it was all folded into a file like this

`durable` counts the lines on the disk before the line was written. That tells a torn tail, which
nobody acknowledged and the load cuts, from damage to acknowledged lines, which the load refuses.
Nothing tells of the very last line: with a line end and a wrong checksum the line may be either.
The load cuts the line and says so.

`journal` in the first line is the version of all its lines. A change that an older tapeway would
misread needs a new version. Three things are the same in every version: the frame of a
line, the member `journal`, and the line with the commit. So each tapeway can name the version of a
journal, and say when a journal is folded.
"""

import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tapeway.core.json_text import Json, NotJson, dump, parse, parse_as_dumped
from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.formats.fields import Document
from tapeway.formats.native.assets import moved_out
from tapeway.formats.native.document import Text
from tapeway.stores.support.format_versions import refuse_other_version
from tapeway.stores.support.serialize import serialize_recording

VERSION = 1
"""The version that is written."""

_LINE = re.compile(rb"([0-9a-f]{8}) (\d{1,15}) (\d{1,15}) (\{.*\})\Z", re.DOTALL)
_NO_HEADER = "this is not the first line of a journal"
_START = re.compile(rb"[0-9a-f]{8} \d{1,15} \d{1,15} \{")


class JournalDamaged(ValueError):
    """Durable content has changed; names the line."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")


@dataclass(frozen=True, slots=True)
class Header:
    """What the journal goes on from: the digest of the cassette's file, None where there is none."""

    head: CassetteHead
    base: str | None


@dataclass(frozen=True, slots=True)
class JournaledRecording:
    """A recording by its index and the indexes it takes the place of. Its document stays in the file."""

    index: int
    supersedes: tuple[int, ...]
    text: Text = field(repr=False)
    line: tuple[int, int]
    """Where its line begins and ends in the text."""
    again: int = 0
    """How often in all the recording before it answered again; its line has nothing else then."""

    @property
    def document(self) -> Document:
        """What was recorded. Raises JournalDamaged where the file has something else by now."""
        start, end = self.line
        text = self.text[start:end]
        match _checked(text):
            case (_, _, {"interaction": dict(interaction)}):
                return interaction
            case _:
                number = text.split(b" ", 2)[1:2]
                at = int(number[0]) if number and number[0].isdigit() else 0
                raise JournalDamaged(at + 1, "this line was changed while it was read")


@dataclass(frozen=True, slots=True)
class Commit:
    """All entries before this line are in the file with this digest, if such a file exists."""

    digest: str


@dataclass(frozen=True, slots=True)
class CassetteJournal:
    """A journal read back: the whole lines, their number of bytes, and the torn rest."""

    header: Header
    steps: tuple[JournaledRecording | Commit, ...]
    size: int
    torn: int
    tail_ended: bool = False
    """Whether the remainder has the end of a line; a torn line has none."""

    @property
    def tail_text(self) -> str:
        """A description of the bytes that are left over."""
        if not self.tail_ended:
            return f"the last {self.torn} bytes were an unfinished recording, never acknowledged"
        return (
            f"the last {self.torn} bytes are no recording: their checksum is wrong, so that it was "
            "never finished, or was acknowledged and is damaged"
        )


def payload(step: Header | Commit) -> bytes:
    """What a line says, as JSON."""
    match step:
        case Header(CassetteHead(created_at, run_id, meta), base):
            head: Json = {"created_at": created_at, "run_id": run_id, "meta": dict(meta)}
            return dump({"journal": VERSION, "base": base, "head": head})
        case Commit(digest):
            return dump({"commit": digest})


def recording_payload(document: Document, supersedes: Sequence[int]) -> bytes:
    """What the line of a recording says, as JSON."""
    return dump({"interaction": document, "supersedes": list(supersedes)})


def lines(payloads: Iterable[bytes], durable: int) -> list[bytes]:
    """The next lines of a journal of which so many are durable."""
    return [_line(durable + at, durable, text) for at, text in enumerate(payloads)]


def _line(sequence: int, durable: int, text: bytes) -> bytes:
    # Joined: each formatting would copy the text once more.
    before = b"%d %d " % (sequence, durable)
    return b"".join((b"%08x " % zlib.crc32(text, zlib.crc32(before)), before, text, b"\n"))


def read(data: Text, place: str) -> CassetteJournal | None:
    """The journal, or None where not even its first line was written whole.

    Raises JournalDamaged for anything wrong before the tail, CassetteCorrupt for a version that
    this tapeway cannot read, naming the place.
    """
    first: Document | None = None
    steps: list[JournaledRecording | Commit | None] = []
    size = 0
    for start, end in _lines(data):
        checked = _check(data[start:end], 0 if first is None else len(steps) + 1)
        if checked is None:
            break
        if first is None:
            first = checked[1]
            # Before the rest is looked at: of another version it may be anything.
            refuse_other_version(_version(first), VERSION, place, what="its lines are")
        else:
            steps.append(_step(checked[1], data, (start, end)))
        size = end + 1
    rest = data[size : len(data)]
    lines_read = 0 if first is None else len(steps) + 1
    if rest:
        _refuse_damage(rest, lines_read)
    if first is None:
        _refuse_stranger(rest)
        return None
    if None in steps:
        raise JournalDamaged(steps.index(None) + 2, "this is no step of a journal")
    return CassetteJournal(
        _header(first),
        tuple([step for step in steps if step is not None]),
        size,
        len(rest),
        tail_ended=b"\n" in rest or _check(rest[:-1], lines_read) is not None,
    )


def is_only_begun(folder: int, name: str) -> bool:
    """Whether a journal has no whole recording yet: its writer was killed while it began.

    Reads its first two lines. Raises OSError.
    """
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with open(fd, "rb") as file:
        first, second = file.readline(), file.readline()
    if _check(first[:-1], 0) is None:
        # Anything else is not a torn line, and `read` refuses it.
        return not first.endswith(b"\n") or b"\0" in first
    return not second.endswith(b"\n") or _check(second[:-1], 1) is None


def _lines(data: Text) -> Iterator[tuple[int, int]]:
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        yield start, end
        start = end + 1


def _check(text: bytes, sequence: int) -> tuple[int, Document] | None:
    """The number of durable lines before this line, and the document; None for a foreign line."""
    line = _checked(text)
    return None if line is None or line[0] != sequence else line[1:]


def _checked(text: bytes) -> tuple[int, int, Document] | None:
    match = _LINE.match(text)
    if match is None or match[1] != b"%08x" % zlib.crc32(text[9:]):
        return None
    try:
        document = parse_as_dumped(match[4]) or parse(match[4])
    except NotJson:
        return None
    return (int(match[2]), int(match[3]), document) if isinstance(document, dict) else None


def _refuse_damage(rest: bytes, sequence: int) -> None:
    # A whole line further on that was written when the missing one was on the disk already.
    for start in _START.finditer(rest):
        end = rest.find(b"\n", start.start())
        if end < 0:
            return
        text = rest[start.start() : end]
        _, number, durable, _ = text.split(b" ", 3)
        if _check(text, int(number)) is not None and int(durable) > sequence:
            raise JournalDamaged(
                sequence + 1, "this line is damaged or missing, and later ones rest on it"
            )


def _refuse_stranger(data: bytes) -> None:
    # A journal torn in the first line is a part of the line, or blocks never written.
    if b"\n" in data and b"\0" not in data:
        raise JournalDamaged(1, _NO_HEADER)


def _version(first: Document) -> int:
    version = first.get("journal")
    if not isinstance(version, int) or isinstance(version, bool):
        raise JournalDamaged(1, _NO_HEADER)
    return version


def _header(document: Document) -> Header:
    match document:
        case {
            "base": (str() | None) as base,
            "head": {"created_at": str(created_at), "run_id": str(run_id), "meta": dict(meta)},
        }:
            return Header(CassetteHead(created_at, run_id, meta), base)
        case _:
            raise JournalDamaged(1, _NO_HEADER)


def _step(
    document: Document, text: Text, line: tuple[int, int]
) -> JournaledRecording | Commit | None:
    match document:
        case {"commit": str(digest)}:
            return Commit(digest)
        case {"interaction": dict(interaction), "supersedes": list(supersedes)}:
            index, again = interaction.get("index"), interaction.get("again")
            return JournaledRecording(
                index if isinstance(index, int) else 0,
                tuple([superseded for superseded in supersedes if isinstance(superseded, int)]),
                text,
                line,
                again if isinstance(again, int) and "request" not in interaction else 0,
            )
        case _:
            return None


def pending(
    journal: CassetteJournal, digest: str | None, documents: Callable[[], Iterable[Document]]
) -> list[JournaledRecording]:
    """The entries that are not in the cassette's file yet, given the file's digest and documents.

    After a crash between the renaming of the file and the removal of the journal, the entries are
    in the file already. If somebody edited the file since, no digest tells: then an entry counts as
    filed if the file has the recording unchanged.
    """
    entries: list[JournaledRecording] = []
    for step in journal.steps:
        if isinstance(step, JournaledRecording):
            entries.append(step)
        elif step.digest == digest:
            entries.clear()
    if not entries or digest == journal.header.base:
        return entries
    present = Counter(_content(document) for document in documents())
    return [
        entry for entry in entries if not _take_equal(present, _content_in_file(entry.document))
    ]


def _take_equal(present: "Counter[bytes]", content: bytes) -> bool:
    present[content] -= 1
    return present[content] >= 0


def _content_in_file(document: Document) -> bytes:
    """What stands in the cassette's file of a document: large binaries are beside it."""
    return _content(moved_out(document, lambda _: None))


def _content(document: Document) -> bytes:
    return dump({name: value for name, value in document.items() if name != "index"})


def payload_of(recording: Recording) -> bytes:
    """What the journal holds, checked. Raises StoreError like `document_of`, and for a credential.

    Of an answer that was given again it holds the number of times.
    """
    if recording.is_repeat:
        exchange = recording.exchange
        counted: Document = {"index": exchange.index, "again": exchange.again}
        return recording_payload(counted, recording.supersedes)
    return serialize_recording(
        recording, lambda document: recording_payload(document, recording.supersedes)
    )
