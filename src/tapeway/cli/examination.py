"""A cassette looked at for secrets, all of it: head, interactions and large bodies."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import Interaction
from tapeway.core.redaction.findings import Finding
from tapeway.core.redaction.known_values import KnownValues
from tapeway.core.redaction.leak_guard import Place
from tapeway.errors import StoreError
from tapeway.formats.native.document import Document
from tapeway.formats.native.secret_scan import Inspected, Inspector
from tapeway.stores.file.offline import Page, Pages

_PIECE = 256 * 1024


@dataclass(slots=True)
class Examination:
    """What a cassette shows, and what it would be without that."""

    head: CassetteHead
    documents: list[Document] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    replaced: list[Finding] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)

    def add(self, seen: Inspected, place: Place) -> None:
        self.findings += _within(place, seen.findings)
        self.replaced += _within(place, seen.replaced)
        self.left += _within(place, seen.left)


def examine(cassette: Pages, known: KnownValues) -> Examination:
    """Look at all of it. Raises StoreError for a large body that cannot be read."""
    inspector = Inspector(cassette.head.run_id, known)
    meta = inspector.document(dict(cassette.head.meta))
    result = Examination(replace(cassette.head, meta=meta.document))
    result.add(meta, ("meta",))
    for number, page in enumerate(cassette.pages):
        seen = inspector.interaction(page.item, page.document)
        result.documents.append(seen.document)
        result.add(seen, ("interactions", number))
        large = Inspected(seen.document, (), tuple(_in_files(inspector, page)))
        result.add(large, ("interactions", number))
    return result


def examine_file(path: Path, known: KnownValues) -> list[Finding]:
    """What a large body shows that lies beside a cassette."""
    return list(Inspector("", known).body((), (), _pieces(path)))


def _in_files(inspector: Inspector, page: Page) -> Iterator[Finding]:
    if isinstance(page.item, Interaction):
        for name, message in (("request", page.item.request), ("response", page.item.response)):
            if message.file is not None:
                pieces = _pieces(Path(message.file.path))
                yield from inspector.body((name, "body_file"), message.headers, pieces)


def _within(place: Place, findings: Iterable[Finding]) -> list[Finding]:
    return [replace(each, place=(*place, *each.place)) for each in findings]


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece
    except OSError as exc:
        raise StoreError(f"{path}: cannot be read ({exc.strerror})") from exc
