"""Secrets taken out of a cassette on its way, and what was found of them."""

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace

from tapeway.body_files import pieces
from tapeway.cli.findings import Found
from tapeway.core.model.cassette import Held
from tapeway.core.model.interaction import Interaction
from tapeway.core.redaction.findings import Finding
from tapeway.core.redaction.known_values import KnownValues
from tapeway.core.redaction.leak_guard import Place
from tapeway.formats.native.document import Document
from tapeway.formats.native.secret_scan import Inspector, mended_as
from tapeway.formats.other_tools.http_call import keyed
from tapeway.paging import CassetteWalk
from tapeway.stores.shared.serialize import document_of

REPLACED, LEFT = "replaced", "still there"


class Cleansing:
    """What one cassette shows; `foreign` for another tool's, which says nothing of keys."""

    def __init__(self, shown: str, known: KnownValues, *, foreign: bool) -> None:
        self.found: list[Found] = []
        self._shown = shown
        self._known = known
        self._foreign = foreign

    def walk(self, through: CassetteWalk) -> CassetteWalk:
        """The same without its secrets; what is found is known once it was gone through."""
        self.found.clear()
        inspector = Inspector(through.head.run_id, self._known)
        meta = inspector.document(dict(through.head.meta))
        self._tell(("meta",), meta.replaced, REPLACED)
        self._tell(("meta",), meta.left, LEFT)
        head = replace(through.head, meta=meta.document)
        return CassetteWalk(head, through.count, self._items(inspector, through.items))

    async def _items(self, inspector: Inspector, items: AsyncIterator[Held]) -> AsyncIterator[Held]:
        position = 0
        async for item in items:
            at = ("interactions", position)
            document = document_of(item)
            seen = inspector.interaction(item, document)
            self._tell(at, seen.replaced, REPLACED)
            self._tell(at, (*seen.left, *in_files(inspector, item)), LEFT)
            yield item if seen.document is document else self._mended(item, seen.document)
            position += 1

    def _mended(self, item: Held, document: Document) -> Held:
        mended = mended_as(item, document)
        # A key taken before would be a hash over the secret.
        return keyed(mended) if self._foreign and isinstance(mended, Interaction) else mended

    def _tell(self, at: Place, seen: Iterable[Finding], deed: str) -> None:
        self.found.extend(
            [Found(self._shown, replace(each, place=(*at, *each.place)), deed) for each in seen]
        )


def in_files(inspector: Inspector, item: Held) -> Iterator[Finding]:
    """What the large bodies of an interaction show. Raises StoreError for one that is lost."""
    if isinstance(item, Interaction):
        for name, message in (("request", item.request), ("response", item.response)):
            if message.file is not None:
                read = pieces(message.file)
                yield from inspector.body((name, "body_file"), message.headers, read)
