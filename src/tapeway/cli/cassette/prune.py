"""`tapeway cassette prune`: drop the recordings that a run did not use, or earlier answers."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from pydantic import BaseModel, Field, ValidationError

from tapeway.cli import changes, terminal
from tapeway.cli.cassette_arguments import OpenStores, check_persistent, locate
from tapeway.cli.changes import CassetteContents
from tapeway.cli.options import OutputFormat, cassette_command
from tapeway.cli.transfer import endpoints
from tapeway.core.agenttape import lookup
from tapeway.core.http.location import origin
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.key import key_digest, request_key
from tapeway.core.matching.rules import Rules, merged_rules
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction, Interaction, fingerprint
from tapeway.core.text import escape_surrogates
from tapeway.errors import ConfigError, TapewayError
from tapeway.inspection.summary import NamedRecording, listed, named
from tapeway.paging import CassetteRef
from tapeway.settings.options import Settings

_NEW_REPORT = "make a new report with tapeway run --report FILE.json"


@cassette_command()
@click.argument("names", metavar="[NAME|FILE|STORE#NAME]...", nargs=-1)
@click.option("--report", metavar="FILE", help="Drop what this report (.json) calls unused.")
@click.option(
    "--keep-last",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep the last N recordings of each request.",
)
@click.option("--dry-run", is_flag=True, help="Only list what would be dropped.")
def prune(
    names: tuple[str, ...],
    report: str | None,
    keep_last: int | None,
    dry_run: bool,
    output_format: OutputFormat,
    settings: Settings,
) -> int:
    """Drop recordings that a run did not use, or all but the last answers.

    \b
        tapeway run --mode replay --report run.json -- pytest -q
        tapeway cassette prune --report run.json --dry-run
        tapeway cassette prune --report run.json
        tapeway cassette prune smoke --keep-last 1

    \b
    Exit codes:
        0  done
        2  a cassette could not be pruned and is unchanged

    Without a name, it prunes all cassettes in the report that hold unused recordings. Recordings are
    found by their content: if a cassette has lost some of them since the report, nothing is dropped.
    Recordings of other kinds than HTTP always stay.
    """
    if report is None and keep_last is None:
        raise click.UsageError("say what to drop: --report FILE or --keep-last N.")
    unused = None
    if report is not None:
        unused = read_report(endpoints.read_file(Path(report)), report)
    if not names:
        if unused is None:
            raise click.UsageError("name the cassettes, or give a --report that does.")
        names = tuple([name for name, recordings in unused.items() if recordings])
    options = _PruneOptions(unused, keep_last, dry_run, settings.rules)
    return asyncio.run(_prune(names, settings.store, options, output_format))


class ReportedRecording(BaseModel):
    """A recording that a report names."""

    index: int
    method: str
    path: str
    fingerprint: str | None = Field(default=None, alias="mark")


class CassetteUse(BaseModel):
    """The part of a report about one cassette."""

    name: str
    unused: list[ReportedRecording]


class UseReport(BaseModel):
    """The part of a report that lists unused recordings."""

    cassettes: list[CassetteUse]


def read_report(text: bytes, shown: str) -> dict[str, list[ReportedRecording]]:
    """The unused recordings of each cassette by its name. Raises ConfigError for another text."""
    try:
        report = UseReport.model_validate_json(text)
    except ValidationError:
        raise ConfigError(
            f"{shown} is no report: give the JSON that tapeway run --report FILE.json wrote, or "
            "that GET /api/v1/report answered"
        ) from None
    return {cassette.name: cassette.unused for cassette in report.cassettes}


@dataclass(frozen=True, slots=True)
class _PruneOptions:
    unused: Mapping[str, Sequence[ReportedRecording]] | None
    keep_last: int | None
    dry_run: bool
    rules: Rules


@dataclass(frozen=True, slots=True)
class PruneResult:
    """What is dropped from a cassette, in order, and of how many interactions."""

    shown: str
    dropped: tuple[NamedRecording, ...]
    total: int

    @property
    def left(self) -> int:
        return self.total - len(self.dropped)


async def _prune(
    names: Sequence[str], store: str, options: _PruneOptions, output_format: OutputFormat
) -> int:
    code = terminal.DONE
    results: list[PruneResult] = []
    async with OpenStores() as stores:
        for name in names:
            try:
                async with stores.cassette(locate(name, store)) as cassette:
                    results.append(await _prune_one(cassette, options))
            except TapewayError as exc:
                terminal.print_error(exc.message)
                code = terminal.NOT_DONE
    if output_format == "json":
        documents: list[Json] = [_as_json(result, dry_run=options.dry_run) for result in results]
        click.echo(dump(documents, indent=True).decode())
    else:
        for result in results:
            _print(result, dry_run=options.dry_run)
    return code


async def _prune_one(cassette: CassetteRef, options: _PruneOptions) -> PruneResult:
    check_persistent(cassette.store)
    if options.dry_run:
        return await _select(cassette, await changes.read(cassette), options)
    # The cassette is claimed before reading: no process may change it meanwhile.
    async with changes.claimed(cassette) as claimed:
        result = await _select(cassette, claimed, options)
        if dropped := {recording.index for recording in result.dropped}:
            await claimed.change(
                lambda item, document: None if item.index in dropped else document, claimed.head
            )
        return result


async def _select(
    cassette: CassetteRef, contents: CassetteContents, options: _PruneOptions
) -> PruneResult:
    """What to drop by either option. Raises ConfigError, StoreError."""
    unused = _unused(cassette, options)
    earlier = _earlier(cassette, contents.head, options)
    dropped: dict[int, NamedRecording] = {}
    total = 0
    async for item, _ in contents.found():
        total += 1
        if unused is not None:
            unused.add(item)
        if earlier is not None and (superfluous := earlier.add(item)) is not None:
            dropped[superfluous.index] = superfluous
    if unused is not None:
        dropped |= {recording.index: recording for recording in unused.found()}
    in_order = tuple([dropped[index] for index in sorted(dropped)])
    return PruneResult(cassette.shown, in_order, total)


def _unused(cassette: CassetteRef, options: _PruneOptions) -> "UnusedRecordings | None":
    if options.unused is None:
        return None
    if cassette.name not in options.unused:
        raise ConfigError(f"the report does not list {cassette.shown}: it was not used in that run")
    return UnusedRecordings(
        options.unused[cassette.name],
        cassette.shown,
        permanent_indexes=cassette.store.shared is not None,
    )


def _earlier(
    cassette: CassetteRef, head: CassetteHead, options: _PruneOptions
) -> "EarlierAnswers | None":
    if options.keep_last is None:
        return None
    return EarlierAnswers(options.keep_last, merged_rules(cassette.rules(head), options.rules))


class UnusedRecordings:
    """Finds the recordings that a report names, in a file also under other indexes.

    With `permanent_indexes`, as in a database, an index never comes to mean a different recording:
    a report without fingerprints is enough, and a recording that is missing was removed since.
    """

    def __init__(
        self, reported: Sequence[ReportedRecording], shown: str, *, permanent_indexes: bool
    ) -> None:
        self._shown = shown
        self._by_index = {
            recording.index: recording for recording in reported if recording.fingerprint is None
        }
        if self._by_index and not permanent_indexes:
            raise ConfigError(f"the report does not say which recordings of {shown}: {_NEW_REPORT}")
        self._by_fingerprint: dict[str, list[ReportedRecording]] = defaultdict(list)
        for recording in reported:
            if recording.fingerprint is not None:
                self._by_fingerprint[recording.fingerprint].append(recording)
        self._found_by_index: list[NamedRecording] = []
        self._found_by_fingerprint: dict[str, list[NamedRecording]] = defaultdict(list)

    def add(self, item: AnyInteraction) -> None:
        """Compare the next interaction. Raises ConfigError if the index has a new meaning."""
        if not isinstance(item, Interaction):
            return
        if self._by_fingerprint and (digest := fingerprint(item)) in self._by_fingerprint:
            self._found_by_fingerprint[digest].append(named(item))
        if (reported := self._by_index.get(item.index)) is not None:
            request = item.request.method, escape_surrogates(item.request.target)
            if request != (reported.method, reported.path):
                raise self._changed(reported)
            self._found_by_index.append(named(item))

    def found(self) -> list[NamedRecording]:
        """Those to drop, after all interactions. Raises ConfigError if some are missing."""
        recordings = [*self._found_by_index]
        for digest, reported in self._by_fingerprint.items():
            indexes = {recording.index for recording in reported}
            same = self._found_by_fingerprint.get(digest, [])
            if len(same) < len(reported):
                raise self._changed(reported[0])
            # Of several equal recordings the run did not reach the last.
            same.sort(key=lambda recording: (recording.index not in indexes, -recording.index))
            recordings += same[: len(reported)]
        return recordings

    def _changed(self, reported: ReportedRecording) -> ConfigError:
        return ConfigError(
            f"{self._shown} has changed since the report, where #{reported.index} was "
            f"{reported.method} {reported.path}: {_NEW_REPORT}"
        )


class EarlierAnswers:
    """Finds all but the last `keep` recordings of each request."""

    def __init__(self, keep: int, rules: Rules) -> None:
        self._keep = keep
        self._rules = rules
        self._last: dict[tuple[str, bytes], deque[NamedRecording]] = defaultdict(deque)

    def add(self, item: AnyInteraction) -> NamedRecording | None:
        """The earlier recording that the next interaction makes superfluous."""
        # A recording that answers by position repeats no recording.
        if not isinstance(item, Interaction) or lookup.answers_in_order(item):
            return None
        request = item.request
        route = request.route or origin(request.base)
        last = self._last[route, key_digest(request_key(request, self._rules))]
        last.append(named(item))
        return last.popleft() if len(last) > self._keep else None


def _print(result: PruneResult, *, dry_run: bool) -> None:
    shown = terminal.line(result.shown)
    verb = "would go" if dry_run else "dropped"
    for recording in result.dropped:
        click.echo(f"{shown}: {verb}: {recording.summary}")
    total = terminal.counted(result.total, "interaction")
    click.echo(f"{shown}: {len(result.dropped)} of {total} {verb}, {result.left} left")


def _as_json(result: PruneResult, *, dry_run: bool) -> Json:
    return {
        "name": result.shown,
        "interactions": result.total,
        "left": result.left,
        "dropped": listed(result.dropped),
        "dry_run": dry_run,
    }
