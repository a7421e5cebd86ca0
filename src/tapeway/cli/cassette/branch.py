"""`tapeway cassette branch`: a new cassette on a base."""

import asyncio
from datetime import UTC, datetime

import click

from tapeway.cli import terminal
from tapeway.cli.cassette_arguments import check_persistent, existing, locate, opened
from tapeway.cli.options import cassette_command
from tapeway.core.cassette.branches import Base, body_steps, meta_with_base
from tapeway.core.cassette.cursors import REPEATS_FIELD
from tapeway.core.json_text import Json, NotJson, parse
from tapeway.core.matching.rules import RulesFault, meta_with_rules
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.errors import ConfigError
from tapeway.paging import CassetteRef, layers_of
from tapeway.settings.options import Settings
from tapeway.version import VERSION


@cassette_command(output_format=False)
@click.argument("old", metavar="FROM")
@click.argument("new", metavar="NEW")
@click.option(
    "--at",
    type=click.IntRange(min=0),
    metavar="N",
    help="Replay the first N recordings of FROM, and ask the service from there on. [all]",
)
@click.option(
    "--positional", is_flag=True, help="Give those N answers in their order, whatever is asked."
)
@click.option(
    "sets",
    "--set",
    multiple=True,
    metavar="PATH=VALUE",
    help="Set this in the body of each live request, as body.model=gpt-5. Repeatable.",
)
def branch(
    old: str, new: str, at: int | None, positional: bool, sets: tuple[str, ...], settings: Settings
) -> int:
    """Make a cassette that goes on from a point of FROM.

    NEW stands on FROM, in the same store: FROM answers where NEW has no recording. New recordings
    go into NEW alone.

    \b
        tapeway cassette branch run42 fix-a --at 7
        tapeway cassette branch run42 other-model --at 7 --set body.model=gpt-5
        tapeway run --mode auto --cassette fix-a -- python agent.py

    \b
    Exit codes:
        0  done
        2  the cassette was not made

    With --at, tapeway asks the service once the first N recordings have answered; until then any
    further request is a miss. With --positional, each request gets the next of the N answers to the
    method and the path, as after a change of a prompt. `cassette convert --flatten` makes a single
    cassette.
    """
    if positional and at is None:
        raise click.UsageError("--positional needs --at N.")
    source, target = locate(old, settings.store), locate(new, settings.store)
    if source.store.url != target.store.url:
        raise ConfigError(f"{target.shown} is in another store than {source.shown}: use one store")
    check_persistent(source.store)
    base = Base(source.name, at, positional, dict(map(_member, sets)))
    click.echo(asyncio.run(_branch(source, target, base)))
    return terminal.DONE


def _member(text: str) -> tuple[str, Json]:
    """The path and the value of `--set`; what is no JSON is a text."""
    path, sign, value = text.partition("=")
    if not sign:
        raise click.UsageError(f"--set {text}: write PATH=VALUE, as body.model=gpt-5.")
    try:
        body_steps(path)
    except RulesFault as exc:
        raise click.UsageError(f"--set {text}: {exc.what}; {exc.remedy}.") from exc
    try:
        return path, parse(value.encode())
    except NotJson:
        return path, value


async def _branch(source: CassetteRef, target: CassetteRef, base: Base) -> str:
    """Make it; returns what was made. Raises ConfigError, StoreError."""
    async with opened(existing(source.store)) as store:
        if (outline := await store.outline(source.name)) is None:
            raise await source.missing()
        if await store.stat(target.name) is not None:
            raise ConfigError(f"{target.shown} exists already: give another name")
        if base.until is not None and base.until > outline.count:
            raise ConfigError(f"{source.shown} has {outline.count} recordings: give a smaller --at")
        rules, kept = source.rules(outline.head), outline.head.meta
        meta: dict[str, Json] = {"tapeway_version": VERSION}
        if REPEATS_FIELD in kept:
            meta[REPEATS_FIELD] = kept[REPEATS_FIELD]
        meta = meta_with_base(meta_with_rules(meta, rules), base)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        # Under the same run id a secret has the same placeholder in both.
        head = CassetteHead(now, outline.head.run_id, meta)
        await layers_of(target.name, head, lambda name: store.load(name, writable=False))
        await store.save(target.name, StoredCassette(head))
        await store.release(target.name)
    first = "all" if base.until is None else f"the first {base.until}"
    shown = terminal.line(source.shown)
    return f"{terminal.line(target.shown)} stands on {first} of the {outline.count} recordings of {shown}"
