"""A cassette looked at for secrets, all of it: head, interactions and large bodies.

Secrets found in cassettes, as they are shown: where, of what kind, and never what.

Secrets taken out of a cassette on its way, and what was found of them.

A cassette in a store without files: looked at for secrets, and mended where it lies.
"""

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from tapeway.body_files import pieces
from tapeway.cli.places import CassettePlace
from tapeway.core.json_text import Pointer
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.redaction.findings import Finding
from tapeway.core.redaction.known_values import KnownValues
from tapeway.errors import StoreError
from tapeway.formats.errors import pointer_text
from tapeway.formats.fields import Document
from tapeway.formats.native.secret_scan import ScanResult, SecretScanner, decode_redacted
from tapeway.formats.other_tools.http_call import with_match_key
from tapeway.paging import CassetteWalk, walk_over
from tapeway.stores.file.offline import Page, Pages
from tapeway.stores.shared.serialize import document_of

_PIECE = 256 * 1024
REPLACED, LEFT = "replaced", "still there"


@dataclass(slots=True)
class Examination:
    """What a cassette shows, and what it would be without that."""

    head: CassetteHead
    documents: list[Document] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    replaced: list[Finding] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)

    def add(self, seen: ScanResult, place: Pointer) -> None:
        self.findings += _within(place, seen.findings)
        self.replaced += _within(place, seen.replaced)
        self.left += _within(place, seen.left)


def examine(cassette: Pages, known: KnownValues) -> Examination:
    """Look at all of it. Raises StoreError for a large body that cannot be read."""
    scanner = SecretScanner(cassette.head.run_id, known)
    meta = scanner.document(dict(cassette.head.meta))
    result = Examination(replace(cassette.head, meta=meta.document))
    result.add(meta, ("meta",))
    for number, page in enumerate(cassette.pages):
        seen = scanner.interaction(page.item, page.document)
        result.documents.append(seen.document)
        result.add(seen, ("interactions", number))
        large = ScanResult(seen.document, (), tuple(_in_files(scanner, page)))
        result.add(large, ("interactions", number))
    return result


def examine_file(path: Path, known: KnownValues) -> list[Finding]:
    """What a large body shows that lies beside a cassette."""
    return list(SecretScanner("", known).body((), (), _pieces(path)))


def _in_files(scanner: SecretScanner, page: Page) -> Iterator[Finding]:
    if isinstance(page.item, Interaction):
        for name, message in (("request", page.item.request), ("response", page.item.response)):
            if message.file is not None:
                pieces = _pieces(Path(message.file.path))
                yield from scanner.body((name, "body_file"), message.headers, pieces)


def _within(place: Pointer, findings: Iterable[Finding]) -> list[Finding]:
    return [replace(each, place=(*place, *each.place)) for each in findings]


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece
    except OSError as exc:
        raise StoreError(f"{path}: cannot be read ({exc.strerror})") from exc


@dataclass(frozen=True, slots=True)
class FoundSecret:
    """A finding in a cassette's file, and what became of it."""

    file: str
    finding: Finding
    deed: str = "found"


def report(found: Iterable[FoundSecret], form: str) -> None:
    """Print them, a line each or as one JSON list."""
    if form == "json":
        click.echo(json.dumps([_fields(each) for each in found], indent=2))
        return
    for each in found:
        finding = each.finding
        deed = "" if each.deed == "found" else each.deed
        begins = f", begins with {finding.prefix!r}" if finding.prefix else ""
        told = [each.file, deed, _place(finding), _legible(finding.kind) + begins]
        click.echo(": ".join(filter(None, told)))


def _fields(found: FoundSecret) -> dict[str, str | int | None]:
    place = found.finding.place
    index = place[1] if len(place) > 1 and place[0] == "interactions" else None
    return {
        "file": found.file,
        "interaction": index,
        "place": _place(found.finding),
        "kind": found.finding.kind,
        "prefix": found.finding.prefix,
        "deed": found.deed,
    }


def _place(finding: Finding) -> str:
    return _legible(pointer_text(finding.place))


def _legible(text: str) -> str:
    # Names in a cassette are anybody's: none of them steers the terminal.
    return "".join([each if each.isprintable() else f"\\u{ord(each):04x}" for each in text])


class Cleansing:
    """What one cassette shows; `foreign` for another tool's, which says nothing of keys."""

    def __init__(self, shown: str, known: KnownValues, *, foreign: bool) -> None:
        self.found: list[FoundSecret] = []
        self._shown = shown
        self._known = known
        self._foreign = foreign

    def walk(self, through: CassetteWalk) -> CassetteWalk:
        """The same without its secrets; what is found is known once it was gone through."""
        self.found.clear()
        scanner = SecretScanner(through.head.run_id, self._known)
        meta = scanner.document(dict(through.head.meta))
        self._tell(("meta",), meta.replaced, REPLACED)
        self._tell(("meta",), meta.left, LEFT)
        head = replace(through.head, meta=meta.document)
        return CassetteWalk(head, through.count, self._items(scanner, through.items))

    async def _items(
        self, scanner: SecretScanner, items: AsyncIterator[AnyInteraction]
    ) -> AsyncIterator[AnyInteraction]:
        position = 0
        async for item in items:
            at = ("interactions", position)
            document = document_of(item)
            seen = scanner.interaction(item, document)
            self._tell(at, seen.replaced, REPLACED)
            self._tell(at, (*seen.left, *in_files(scanner, item)), LEFT)
            yield item if seen.document is document else self._mended(item, seen.document)
            position += 1

    def _mended(self, item: AnyInteraction, document: Document) -> AnyInteraction:
        mended = decode_redacted(item, document)
        # A key taken before would be a hash over the secret.
        return (
            with_match_key(mended) if self._foreign and isinstance(mended, Interaction) else mended
        )

    def _tell(self, at: Pointer, seen: Iterable[Finding], deed: str) -> None:
        self.found.extend(
            [
                FoundSecret(self._shown, replace(each, place=(*at, *each.place)), deed)
                for each in seen
            ]
        )


def in_files(scanner: SecretScanner, item: AnyInteraction) -> Iterator[Finding]:
    """What the large bodies of an interaction show. Raises StoreError for one that is lost."""
    if isinstance(item, Interaction):
        for name, message in (("request", item.request), ("response", item.response)):
            if message.file is not None:
                read = pieces(message.file)
                yield from scanner.body((name, "body_file"), message.headers, read)


async def examine_place(found: CassettePlace, known: KnownValues) -> Examination:
    """Look at all of it. Raises ConfigError where there is none, StoreError."""
    through = await found.walk()
    result = Examination(through.head)
    async for _ in _mended(through, known, result):
        pass
    return result


async def mend(found: CassettePlace, known: KnownValues) -> Examination:
    """The same, and put in the place of each interaction that shows something what shows nothing.

    Where the store changes single ones, others may go on recording meanwhile, and what breaks off
    has mended some of them.
    """
    if (editor := found.store.capabilities.cassette_editor) is None:
        return await _mend_at_once(found, known)
    through = await found.walk()
    result = Examination(through.head)
    async for item, mended in _mended(through, known, result):
        if mended is not item:
            await editor.edit(found.name, item.index, mended)
    if result.head != through.head:
        await editor.restate(found.name, result.head)
    return result


async def _mend_at_once(found: CassettePlace, known: KnownValues) -> Examination:
    stored = await found.load(writable=True)
    result = Examination(stored.head)
    items = [mended async for _, mended in _mended(walk_over(stored), known, result)]
    if result.replaced:
        await found.store.save(found.name, StoredCassette(result.head, tuple(items)))
    return result


async def _mended(
    through: CassetteWalk, known: KnownValues, result: Examination
) -> AsyncIterator[tuple[AnyInteraction, AnyInteraction]]:
    scanner = SecretScanner(through.head.run_id, known)
    result.head = _head(through.head, scanner, result)
    position = 0
    async for item in through.items:
        at = ("interactions", position)
        document = document_of(item)
        seen = scanner.interaction(item, document)
        result.add(seen, at)
        result.add(ScanResult(document, (), tuple(in_files(scanner, item))), at)
        yield item, item if seen.document is document else decode_redacted(item, seen.document)
        position += 1


def _head(head: CassetteHead, scanner: SecretScanner, result: Examination) -> CassetteHead:
    meta = scanner.document(dict(head.meta))
    result.add(meta, ("meta",))
    return replace(head, meta=meta.document)
