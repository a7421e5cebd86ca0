"""Finds, replaces and reports the secrets in cassettes; a report has no values.

A `CassetteScan` goes through one cassette in order, the head and then every interaction with its
large bodies. The scan returns each document without its secrets, and notes the findings. Files,
stores and conversions differ only in the source of interactions and the place of redacted
interactions.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, get_args

import click

from tapeway.body_files import body_pieces
from tapeway.cli import terminal
from tapeway.cli.cassette_arguments import (
    CassetteInStore,
    FileTarget,
    OpenStores,
    StoreTarget,
    Target,
    find_targets,
)
from tapeway.cli.options import OutputFormat
from tapeway.core.json_text import Pointer
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import BodyFile
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.findings import Finding
from tapeway.core.redaction.known_values import KnownValues
from tapeway.errors import StoreError, TapewayError
from tapeway.formats.errors import pointer_text
from tapeway.formats.fields import Document
from tapeway.formats.native.secret_scan import ScanResult, SecretScanner, decode_redacted
from tapeway.paging import walk_over
from tapeway.ports import SharedStore
from tapeway.stores.file import offline
from tapeway.stores.file.offline import OfflineCassette
from tapeway.stores.support.serialize import document_of

_PIECE = 256 * 1024
_SHOWN_COMMIT = 12
Outcome = Literal["found", "replaced", "would be replaced", "still there"]
FOUND: Final = "found"
REPLACED: Final = "replaced"
PLANNED: Final = "would be replaced"
LEFT: Final = "still there"


@dataclass(frozen=True, slots=True)
class FoundSecret:
    """A finding in the file or cassette `shown`, and what became of it."""

    shown: str
    finding: Finding
    outcome: Outcome = FOUND
    commit: str = ""
    """Of a version in git: the commit that has it."""


@dataclass(frozen=True, slots=True)
class Searched:
    """What was searched, the secrets in it, and how many cassettes or files could not be."""

    secrets: tuple[FoundSecret, ...] = ()
    cassettes: int = 0
    interactions: int = 0
    bodies: int = 0
    failed: int = 0

    def __add__(self, other: "Searched") -> "Searched":
        return Searched(
            self.secrets + other.secrets,
            self.cassettes + other.cassettes,
            self.interactions + other.interactions,
            self.bodies + other.bodies,
            self.failed + other.failed,
        )


Action = Callable[[Target, KnownValues, OpenStores], Awaitable[Searched]]


async def scan(target: Target, known: KnownValues, stores: OpenStores) -> Searched:
    """The secrets that a cassette or a large body shows. Raises StoreError, ConfigError."""
    if (scanned := await _scanned(target, known, stores)) is not None:
        return scanned.searched(scanned.found)
    return _scan_body(target, known)


async def redact(target: Target, known: KnownValues, stores: OpenStores) -> Searched:
    """Replace the secrets of a cassette in place: those replaced, then those left.

    Raises StoreError, ConfigError, CassetteLocked.
    """
    known = with_taught(known, await _scanned_once(target, known, stores))
    if isinstance(target, StoreTarget):
        scanned = await _redact_in_store(target.place, known, stores)
        return scanned.searched(scanned.outcomes_in_order())
    if target.body is not None:
        return Searched()
    done: list[Searched] = []

    def change(cassette: OfflineCassette) -> tuple[CassetteHead, Iterable[Document]] | None:
        scanned = _scan_file(cassette, target, known)
        done.append(scanned.searched(scanned.outcomes_in_order()))
        if not scanned.replaced:
            return None
        # Scanned a second time: the documents are never in memory together.
        return scanned.head, _redacted_documents(cassette, _scan_of(cassette, target, known))

    offline.rewrite(target.root, target.name, change)
    return sum(done, Searched())


async def plan(target: Target, known: KnownValues, stores: OpenStores) -> Searched:
    """What `redact` would do, and changes nothing. Raises StoreError, ConfigError."""
    if (scanned := await _scanned(target, known, stores)) is None:
        return Searched()
    planned: list[FoundSecret] = [
        replace(secret, outcome=PLANNED) if secret.outcome == REPLACED else secret
        for secret in scanned.outcomes_in_order()
    ]
    return scanned.searched(planned)


def for_each(
    cassettes: Sequence[str], url: str, known: KnownValues, action: Action, *, strict: bool = False
) -> tuple[Searched, int]:
    """What `scan`, `redact` or `plan` gave for all cassettes that the arguments name, without any
    for all of the store; and NOT_DONE if one of them failed. `strict` refuses other files.
    """
    return asyncio.run(_for_each(cassettes, url, known, action, strict=strict))


async def _for_each(
    cassettes: Sequence[str], url: str, known: KnownValues, action: Action, *, strict: bool
) -> tuple[Searched, int]:
    async with OpenStores() as stores:
        targets = await find_targets(cassettes, url, stores, strict=strict)
        return await _for_all(targets, known, action, stores)


async def _for_all(
    targets: Sequence[Target], known: KnownValues, action: Action, stores: OpenStores
) -> tuple[Searched, int]:
    results: list[Searched] = []
    errors: list[str] = []
    remaining = iter(targets)
    with terminal.progress_of_all("reading", [target.shown for target in targets]) as every:
        for _ in every:
            try:
                results.append(await action(next(remaining), known, stores))
            except TapewayError as exc:
                errors.append(exc.message)
    for error in errors:
        terminal.print_error(error)
    return sum(
        results, Searched(failed=len(errors))
    ), terminal.NOT_DONE if errors else terminal.DONE


class CassetteScan:
    """The findings in one cassette, and the redacted parts; findings name the cassette `shown`."""

    def __init__(
        self,
        shown: str,
        head: CassetteHead,
        known: KnownValues,
        read: Callable[[BodyFile], Iterable[bytes]] = body_pieces,
    ) -> None:
        self.found: list[FoundSecret] = []
        """The secrets in the unchanged cassette, each place once."""
        self.outcomes: list[FoundSecret] = []
        """The secrets that redaction replaced, and the secrets out of reach."""
        self._shown = shown
        self._read = read
        self._count = 0
        self._bodies = 0
        self._scanner = SecretScanner(head.run_id, known)
        meta = self._scanner.document(dict(head.meta))
        self._add(("meta",), meta)
        self.head = replace(head, meta=meta.document)

    @property
    def taught(self) -> tuple[Secret, ...]:
        """The values that the cassette showed in one place and that are secrets in every place."""
        return self._scanner.taught

    @property
    def replaced(self) -> bool:
        """Whether anything was replaced so far."""
        return any(outcome.outcome == REPLACED for outcome in self.outcomes)

    def searched(self, secrets: Iterable[FoundSecret]) -> Searched:
        """The secrets, with the counts of the search so far."""
        return Searched(tuple(secrets), 1, self._count, self._bodies)

    def outcomes_in_order(self) -> list[FoundSecret]:
        """Those replaced, then those left."""
        return sorted(self.outcomes, key=lambda secret: secret.outcome == LEFT)

    def redact(self, item: AnyInteraction, document: Document) -> Document:
        """The next interaction's document without secrets, the same object if there is no secret.

        Raises StoreError for a large body that cannot be read.
        """
        pointer = ("interactions", self._count)
        self._count += 1
        inspected = self._scanner.interaction(item, document)
        self._add(pointer, inspected)
        self._add(pointer, ScanResult(document, left=tuple(self._in_large_bodies(item))))
        return inspected.document

    def _in_large_bodies(self, item: AnyInteraction) -> Iterator[Finding]:
        if isinstance(item, Interaction):
            for name, message in (("request", item.request), ("response", item.response)):
                if message.file is not None:
                    self._bodies += 1
                    read = self._read(message.file)
                    yield from self._scanner.body((name, "body_file"), message.headers, read)

    def _add(self, pointer: Pointer, inspected: ScanResult) -> None:
        def placed(findings: Iterable[Finding], outcome: Outcome) -> list[FoundSecret]:
            return [
                FoundSecret(
                    self._shown, replace(finding, place=(*pointer, *finding.place)), outcome
                )
                for finding in findings
            ]

        self.found += placed(inspected.findings, FOUND)
        self.outcomes += placed(inspected.replaced, REPLACED) + placed(inspected.left, LEFT)


async def redacted(
    scanned: CassetteScan, items: AsyncIterator[AnyInteraction]
) -> AsyncIterator[tuple[AnyInteraction, AnyInteraction]]:
    """Each interaction and the redacted interaction, the same object if there is no secret."""
    async for item in items:
        document = document_of(item)
        without = scanned.redact(item, document)
        yield item, item if without is document else decode_redacted(item, without)


async def _scanned(target: Target, known: KnownValues, stores: OpenStores) -> CassetteScan | None:
    """A cassette's scan; None for a large body, which is no cassette.

    What an interaction teaches may stand in those before it: then the cassette is scanned again.
    """
    scanned = await _scanned_once(target, known, stores)
    if scanned is None or not scanned.taught:
        return scanned
    return await _scanned_once(target, with_taught(known, scanned), stores)


def with_taught(known: KnownValues, scanned: CassetteScan | None) -> KnownValues:
    """The known values and what a cassette has taught, for a second pass."""
    if scanned is None or not scanned.taught:
        return known
    return KnownValues([*scanned.taught, *known.secrets], known.allowed)


async def _scanned_once(
    target: Target, known: KnownValues, stores: OpenStores
) -> CassetteScan | None:
    if isinstance(target, StoreTarget):
        return await _scan_in_store(target.place, known, stores)
    if target.body is not None:
        return None
    return _scan_file(offline.read(target.root, target.name), target, known)


def _scan_body(target: Target, known: KnownValues) -> Searched:
    findings = SecretScanner("", known).body((), (), _unchecked_pieces(Path(target.shown)))
    return Searched(tuple([FoundSecret(target.shown, finding) for finding in findings]), bodies=1)


def _scan_file(cassette: OfflineCassette, target: FileTarget, known: KnownValues) -> CassetteScan:
    scanned = _scan_of(cassette, target, known)
    for _ in _redacted_documents(cassette, scanned):
        pass
    return scanned


def _scan_of(cassette: OfflineCassette, target: FileTarget, known: KnownValues) -> CassetteScan:
    """A scan of a cassette that has only begun."""
    return CassetteScan(
        target.shown, cassette.head, known, lambda file: _unchecked_pieces(Path(file.path))
    )


def _redacted_documents(cassette: OfflineCassette, scanned: CassetteScan) -> Iterator[Document]:
    return (
        scanned.redact(interaction.item, interaction.document)
        for interaction in cassette.interactions
    )


def _unchecked_pieces(path: Path) -> Iterator[bytes]:
    # A body with a wrong digest may show secrets too.
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece
    except OSError as exc:
        raise StoreError(f"{path}: cannot be read ({exc.strerror})") from exc


async def _scan_in_store(
    unopened: CassetteInStore, known: KnownValues, stores: OpenStores
) -> CassetteScan:
    async with stores.cassette(unopened) as cassette:
        walk = await cassette.walk()
        scanned = CassetteScan(cassette.shown, walk.head, known)
        async for _ in redacted(scanned, walk.items):
            pass
        return scanned


async def _redact_in_store(
    unopened: CassetteInStore, known: KnownValues, stores: OpenStores
) -> CassetteScan:
    async with stores.cassette(unopened) as cassette:
        if (shared := cassette.store.shared) is not None:
            return await _redact_one_by_one(cassette, shared, known)
        return await _redact_at_once(cassette, known)


async def _redact_one_by_one(
    cassette: CassetteInStore, shared: SharedStore, known: KnownValues
) -> CassetteScan:
    # Others may go on recording meanwhile. If this is interrupted, some interactions are redacted.
    walk = await cassette.walk()
    scanned = CassetteScan(cassette.shown, walk.head, known)
    async for item, without in redacted(scanned, walk.items):
        if without is not item:
            await shared.edit(cassette.name, item.index, without)
    if scanned.head != walk.head:
        await cassette.store.replace_head(cassette.name, scanned.head)
    return scanned


async def _redact_at_once(cassette: CassetteInStore, known: KnownValues) -> CassetteScan:
    stored = await cassette.load(writable=True)
    walk = walk_over(stored)
    scanned = CassetteScan(cassette.shown, walk.head, known)
    items: list[AnyInteraction] = []
    async for item, without in redacted(scanned, walk.items):
        # What stays as it is need not be in memory.
        items.append(stored.interactions[len(items)] if without is item else without)
    if scanned.replaced:
        await cassette.store.save(cassette.name, StoredCassette(scanned.head, tuple(items)))
    return scanned


def print_findings(secrets: Iterable[FoundSecret], output_format: OutputFormat) -> None:
    """Print the findings, one a line or as one JSON list."""
    if output_format == "json":
        click.echo(json.dumps([_as_json(secret) for secret in secrets], indent=2))
        return
    for secret in secrets:
        finding = secret.finding
        prefix = f", begins with {finding.prefix!r}" if finding.prefix else ""
        role: terminal.Role = "good" if secret.outcome == REPLACED else "note"
        parts = [
            *filter(None, [secret.commit[:_SHOWN_COMMIT]]),
            secret.shown,
            *([] if secret.outcome == FOUND else [terminal.styled(secret.outcome, role)]),
            *filter(None, [_place(finding)]),
            terminal.styled(terminal.line(finding.kind), "bad") + prefix,
        ]
        click.echo(": ".join(parts))


def print_summary(searched: Searched, output_format: OutputFormat) -> None:
    """Print the counts of the search and of the findings; a program counts its list itself."""
    if output_format == "json":
        return
    if not (searched.cassettes or searched.bodies):
        if not searched.failed:
            click.echo("nothing to search")
        return
    where = [terminal.counted(searched.cassettes, "cassette")]
    where.append(terminal.counted(searched.interactions, "interaction"))
    if searched.bodies:
        where.append(terminal.counted(searched.bodies, "large body", "large bodies"))
    if searched.failed:
        where.append(f"{searched.failed} not read")
    counts = Counter([secret.outcome for secret in searched.secrets])
    parts = [
        f"{terminal.counted(counts[outcome], 'secret')} {outcome}"
        for outcome in get_args(Outcome)
        if counts[outcome]
    ]
    secrets = ", ".join(parts) if parts else terminal.styled("no secret", "good")
    click.echo(f"{', '.join(where)}: {secrets}")


def _as_json(secret: FoundSecret) -> dict[str, str | int | None]:
    pointer = secret.finding.place
    index = pointer[1] if len(pointer) > 1 and pointer[0] == "interactions" else None
    return {
        **({"commit": secret.commit} if secret.commit else {}),
        "file": secret.shown,
        "interaction": index,
        "place": _place(secret.finding),
        "kind": secret.finding.kind,
        "prefix": secret.finding.prefix,
        "deed": secret.outcome,
    }


def _place(finding: Finding) -> str:
    # Names of fields in a cassette are anybody's.
    return terminal.line(pointer_text(finding.place))
