"""Finds, replaces and reports the secrets in cassettes; a report has no values.

A `CassetteScan` goes through one cassette in order, the head and then every interaction with its
large bodies. The scan returns each document without its secrets, and notes the findings. Commands
and conversions differ only in the source of interactions and the place of redacted interactions.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

import click

from tapeway.body_files import unchecked_pieces
from tapeway.cli import changes, terminal
from tapeway.cli.cassette_arguments import OpenStores, Target, find_targets
from tapeway.cli.changes import CassetteContents
from tapeway.cli.options import OutputFormat
from tapeway.core.json_text import Pointer
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import BodyFile
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.findings import Finding
from tapeway.core.redaction.known_values import KnownValues
from tapeway.errors import TapewayError
from tapeway.formats.errors import pointer_text
from tapeway.formats.fields import Document
from tapeway.formats.native.secret_scan import ScanResult, SecretScanner, decode_changed
from tapeway.stores.support.serialize import document_of

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
    if isinstance(target, BodyFile):
        findings = SecretScanner("", known).body((), (), unchecked_pieces(target))
        return Searched(tuple([FoundSecret(target.path, found) for found in findings]), bodies=1)
    async with stores.cassette(target) as cassette:
        scanned = await _scan(cassette.shown, await changes.read(cassette), known)
        return scanned.searched(scanned.found)


async def redact(target: Target, known: KnownValues, stores: OpenStores) -> Searched:
    """Replace the secrets of a cassette in place: those replaced, then those left.

    Raises StoreError, ConfigError, CassetteLocked.
    """
    if isinstance(target, BodyFile):
        return Searched()
    async with stores.cassette(target) as cassette, changes.claimed(cassette) as claimed:
        scanned = await _scan(cassette.shown, claimed, known)
        if scanned.replaced:
            scanner = SecretScanner(claimed.head.run_id, scanned.known)
            await claimed.change(
                lambda item, document: scanner.interaction(item, document).document, scanned.head
            )
        return scanned.searched(scanned.outcomes_in_order())


async def plan(target: Target, known: KnownValues, stores: OpenStores) -> Searched:
    """What `redact` would do, and changes nothing. Raises StoreError, ConfigError."""
    if isinstance(target, BodyFile):
        return Searched()
    async with stores.cassette(target) as cassette:
        scanned = await _scan(cassette.shown, await changes.read(cassette), known)
    planned: list[FoundSecret] = [
        replace(secret, outcome=PLANNED) if secret.outcome == REPLACED else secret
        for secret in scanned.outcomes_in_order()
    ]
    return scanned.searched(planned)


async def _scan(shown: str, contents: CassetteContents, known: KnownValues) -> "CassetteScan":
    """The scan of a whole cassette.

    What an interaction teaches may stand in those before it: then the cassette is scanned again.
    """
    scanned = await _scan_once(shown, contents, known)
    if not scanned.taught:
        return scanned
    return await _scan_once(shown, contents, with_taught(known, scanned))


async def _scan_once(shown: str, contents: CassetteContents, known: KnownValues) -> "CassetteScan":
    scanned = CassetteScan(shown, contents.head, known)
    async for item, document in contents.found():
        scanned.redact(item, document)
    return scanned


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
    with terminal.progress_of_all("reading", [*map(_shown, targets)]) as every:
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
        read: Callable[[BodyFile], Iterable[bytes]] = unchecked_pieces,
    ) -> None:
        self.found: list[FoundSecret] = []
        """The secrets in the unchanged cassette, each place once."""
        self.outcomes: list[FoundSecret] = []
        """The secrets that redaction replaced, and the secrets out of reach."""
        self.known = known
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
        yield item, item if without is document else decode_changed(item, without)


def with_taught(known: KnownValues, scanned: CassetteScan) -> KnownValues:
    """The known values and what a cassette has taught, for a second pass."""
    return KnownValues([*scanned.taught, *known.secrets], known.allowed)


def _shown(target: Target) -> str:
    return target.path if isinstance(target, BodyFile) else target.shown


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
