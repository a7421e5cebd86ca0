"""`tapeway cassette diff`: show where two cassettes, or two revisions of a store, differ."""

import asyncio
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import click

from tapeway.cli import terminal
from tapeway.cli.cassette_arguments import ASSETS, existing, locate, opened, with_bases
from tapeway.cli.comparison import forms
from tapeway.cli.comparison.git import Revision
from tapeway.cli.options import cassette_command
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import merged_rules
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.errors import ConfigError, TapewayError
from tapeway.formats.native import document
from tapeway.inspection.pairing import CassetteDiff, DiffSource, compare, diff_document
from tapeway.paging import CassetteRef
from tapeway.settings.options import Settings, resolve_routes
from tapeway.stores.file.paths import find_names
from tapeway.stores.file.store import FileStore
from tapeway.stores.opening import open_store

_Form = Literal["text", "json", "markdown"]
_NOTHING = document.save(StoredCassette(CassetteHead("", "")))
_NO_FILE = "/dev/null"
_DRIVER_ARGUMENTS = (7, 9)
"""PATH OLD-FILE OLD-HEX OLD-MODE NEW-FILE NEW-HEX NEW-MODE, and two more for a renamed file: git's
manual, GIT_EXTERNAL_DIFF.
"""


@cassette_command("route", "upstream", output_format=False)
@click.argument("cassettes", metavar="FIRST SECOND | REVISION", nargs=-1)
@click.option("--headers", is_flag=True, help="Compare response headers too.")
@click.option("--git-driver", is_flag=True, help="Take the arguments that git gives a diff driver.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    help="Print text, JSON or Markdown. [text]",
)
def diff(
    cassettes: tuple[str, ...], headers: bool, git_driver: bool, form: _Form, settings: Settings
) -> int:
    """Show where two cassettes differ.

    A cassette is given by its name in the store, by its file, or as STORE#NAME. A single argument is
    a revision of git: each cassette in the folder is compared with the cassette of that revision,
    also after a move. Only cassettes that differ or were moved are shown.

    \b
        tapeway cassette diff smoke smoke-new
        tapeway cassette diff smoke sqlite:./cassettes.db#smoke
        tapeway cassette diff HEAD~1

    \b
    Exit codes:
        0  no difference
        1  the cassettes differ
        2  a cassette cannot be read

    Recordings of equal requests are compared in order, under the rules of FIRST and of
    tapeway.toml, then the remaining ones of the same endpoint. Identifiers, times, padding and
    chunks are not compared. A cassette that stands on another is compared with what it has from there. A streamed answer of an LLM is compared by the assembled text, tool
    calls, model and tokens. To find matching rules, use tapeway doctor.
    """
    if git_driver:
        return _drive(settings, cassettes, headers=headers)
    if len(cassettes) == 1:
        return asyncio.run(_compare_revision(settings, cassettes[0], form, headers=headers))
    if len(cassettes) != 2:
        raise click.UsageError("give two cassettes, or a revision of git.")
    places = [locate(cassette, settings.store) for cassette in cassettes]
    diff_of_two = asyncio.run(compare_places(settings, places[0], places[1], headers=headers))
    _print([diff_of_two], form, alone=True)
    return terminal.DONE if diff_of_two.same else terminal.FOUND


async def compare_places(
    settings: Settings, first: CassetteRef, second: CassetteRef, *, headers: bool
) -> CassetteDiff:
    """Compare two cassettes whose stores are not open yet. Raises ConfigError, StoreError."""
    table = resolve_routes(settings, os.environ)
    async with opened(first.store), opened(second.store):
        first, second = await with_bases(first), await with_bases(second)
        sources = await DiffSource.open(first, table), await DiffSource.open(second, table)
        rules = merged_rules(first.rules(sources[0].head), settings.rules)
        return await compare(*sources, rules, headers=headers)


async def _compare_revision(settings: Settings, name: str, form: _Form, *, headers: bool) -> int:
    store = existing(open_store(settings.store))
    if (folder := store.facts.folder) is None:
        raise ConfigError(f"git knows no revisions of {store.url}: name two cassettes to compare")
    revision = Revision(folder, name)
    diffs: list[CassetteDiff] = []
    changed: list[CassetteDiff] = []
    errors: list[str] = []
    alike = 0
    names = revision.changed()
    with terminal.progress_of_all("comparing", [*names]) as every:
        for new in every:
            old = names[new]
            try:
                with _in_revision(revision, old) as before, _in_folder(folder, new) as after:
                    compared = await compare_places(settings, before, after, headers=headers)
            except TapewayError as exc:
                errors.append(f"{new}: {exc.message}")
                continue
            diffs.append(compared)
            if old != new or not compared.same:
                changed.append(compared)
            elif compared.alike:
                alike += 1
    _print(changed, form)
    if form == "text":
        moved = sum(old != new for new, old in names.items())
        present = {*await store.names(), *revision.files}
        unchanged = len(present) - moved - len(changed) - len(errors)
        click.echo(
            f"{terminal.counted(unchanged - alike, 'cassette')} as in {terminal.line(name)}"
            + (f", {alike} equal but for ids and times" if alike else "")
        )
    for error in errors:
        terminal.print_error(error)
    if errors:
        return terminal.NOT_DONE
    return terminal.DONE if all(cassette_diff.same for cassette_diff in diffs) else terminal.FOUND


@contextmanager
def _in_revision(revision: Revision, name: str) -> Iterator[CassetteRef]:
    """The cassette of a name in the revision, empty if there was no cassette."""
    shown = f"{revision.name}:{name}"
    if name not in revision.files:
        with _copy(_NOTHING, ".json", shown) as copied:
            yield copied
        return
    suffix = Path(revision.files[name]).suffix
    bodies: Iterator[tuple[str, bytes | Path]]
    present = _files_in(revision.root / f"{name}{ASSETS}")
    bodies = chain(present, revision.large_bodies(name))
    with _copy(revision.text(name), suffix, shown, bodies) as copied:
        yield copied


@contextmanager
def _in_folder(folder: Path, name: str) -> Iterator[CassetteRef]:
    """The cassette of a name in the folder, empty if there is no cassette."""
    if name in find_names(folder):
        yield CassetteRef(FileStore(folder), name, name)
        return
    with _copy(_NOTHING, ".json", name) as copied:
        yield copied


@contextmanager
def _copy(
    text: bytes, suffix: str, shown: str, bodies: Iterable[tuple[str, bytes | Path]] = ()
) -> Iterator[CassetteRef]:
    """A cassette of this text in a temporary folder, with these large bodies, by their files' names."""
    with TemporaryDirectory(prefix="tapeway-") as temporary:
        folder = Path(temporary)
        (folder / f"cassette{suffix}").write_bytes(text)
        assets = folder / f"cassette{ASSETS}"
        assets.mkdir()
        for name, content in bodies:
            if isinstance(content, Path):
                shutil.copyfile(content, assets / name)
            else:
                (assets / name).write_bytes(content)
        yield CassetteRef(FileStore(folder), "cassette", shown)


def _files_in(folder: Path) -> list[tuple[str, Path]]:
    return [(path.name, path) for path in folder.iterdir()] if folder.is_dir() else []


def _drive(settings: Settings, arguments: Sequence[str], *, headers: bool) -> int:
    """Print the difference of git's two files of a path. git stops if its driver does not end with 0."""
    if len(arguments) not in _DRIVER_ARGUMENTS:
        if len(arguments) == 1:
            click.echo(f"{terminal.line(arguments[0])} is not merged yet")
            return terminal.DONE
        raise click.UsageError("git gives its driver seven or nine arguments.")
    path, old, new = arguments[0], arguments[1], arguments[4]
    try:
        with _side_of_git(old, path, "a") as first, _side_of_git(new, path, "b") as second:
            diff_of_two = asyncio.run(compare_places(settings, first, second, headers=headers))
    except TapewayError as exc:
        click.echo(f"{terminal.line(path)}: {terminal.line(exc.message)}")
        return terminal.DONE
    if not diff_of_two.same:
        click.echo(terminal.styled(f"tapeway cassette diff {terminal.line(path)}", "heading"))
        _print([diff_of_two], "text", alone=True)
    return terminal.DONE


@contextmanager
def _side_of_git(file: str, path: str, side: str) -> Iterator[CassetteRef]:
    """One of git's two files, of which `path` is the place in the working tree."""
    place = Path(path)
    try:
        text = _NOTHING if file == _NO_FILE else Path(file).read_bytes()
    except OSError as exc:
        raise ConfigError(f"{file}: cannot be read ({exc.strerror})") from exc
    suffix = ".json" if file == _NO_FILE else place.suffix
    with _copy(text, suffix, f"{side}/{path}", _files_in(place.with_suffix(ASSETS))) as copy:
        yield copy


def _print(diffs: Sequence[CassetteDiff], form: _Form, *, alone: bool = False) -> None:
    """Print comparisons; a comparison `alone` is no list in JSON."""
    if form == "json":
        documents: list[Json] = [
            diff_document(compared)
            if alone
            else {"cassette": compared.names[1], **diff_document(compared)}
            for compared in diffs
        ]
        click.echo(dump(documents[0] if alone else documents, indent=True).decode())
        return
    for compared in diffs:
        for line in forms.markdown(compared) if form == "markdown" else forms.lines(compared):
            click.echo(line)
        if form == "markdown" and not alone:
            click.echo()
