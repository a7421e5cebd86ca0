"""`tapeway cassette merge`: what two branches recorded, in one cassette."""

from pathlib import Path
from typing import NamedTuple

import click

from tapeway.cli import terminal
from tapeway.cli.cassette_arguments import ASSETS
from tapeway.cli.comparison import three_way
from tapeway.cli.comparison.git import stages
from tapeway.cli.comparison.three_way import Version
from tapeway.cli.options import cassette_command
from tapeway.cli.transfer.endpoints import corrupt_file, read_file, write_file
from tapeway.errors import ConfigError
from tapeway.formats import conflict_markers
from tapeway.formats.cassette_file import JSON, SERIALIZER_BY_SUFFIX, YAML, Serializer
from tapeway.formats.errors import FormatFault
from tapeway.formats.native.assets import AbsentAsset
from tapeway.settings.options import Settings
from tapeway.stores.support.serialize import serialize_cassette

_ARGUMENTS = (1, 3, 4)


class _Side(NamedTuple):
    """The text of a version, and how it is named in errors."""

    shown: str
    text: bytes


@cassette_command(output_format=False, has_store=False)
@click.argument("files", metavar="BASE OURS THEIRS [PATH] | FILE", nargs=-1)
def merge(files: tuple[str, ...], settings: Settings) -> int:
    """Merge what two branches recorded into one cassette.

    OURS and THEIRS are two versions of a cassette's file, and BASE is their common version. The
    result is written over OURS, the recordings numbered anew. PATH is the cassette's path in the
    working tree: git calls its merge driver with temporary files. A single FILE is a file in which
    git left conflict markers.

    \b
        git config merge.tapeway.driver 'tapeway cassette merge %O %A %B %P'
        tapeway cassette merge cassettes/smoke.json

    \b
    Exit codes:
        0  merged
        1  merged, but with conflicts: ours is kept, standard error says where
        2  not merged, and nothing is written

    Recordings correspond if their match keys are equal, under the rules of the cassette and of
    tapeway.toml. The result has the recordings added by either side, ours first, without duplicates.
    A change or a removal on one side is kept. Two new recordings of one call that differ only in
    identifiers and times are no conflict: ours is kept.
    """
    if len(files) not in _ARGUMENTS:
        raise click.UsageError("give BASE, OURS and THEIRS, or a file with conflict markers.")
    if len(files) == 1:
        path = Path(files[0])
        base, ours, theirs = _in_conflict(path)
        merged = _merge(base, ours, theirs, path, path, settings)
        if not merged.conflicts:
            held = terminal.counted(len(merged.documents), "interaction")
            click.echo(f"{terminal.line(str(path))}: merged, {held}; tell git by `git add`")
        return _exit_code(merged)
    base, ours, theirs = [_Side(file, read_file(Path(file))) for file in files[:3]]
    target = Path(files[1])
    path = Path(files[-1]) if files[3:] else target
    return _exit_code(_merge(base, ours, theirs, target, path, settings))


def _merge(
    base: _Side, ours: _Side, theirs: _Side, target: Path, path: Path, settings: Settings
) -> three_way.Merged:
    serializer = SERIALIZER_BY_SUFFIX.get(path.suffix) or _syntax_of(ours.text)
    assets = path.with_suffix(ASSETS)
    # For a file that both sides added git has no base.
    before = _read(base, serializer, assets) if base.text.strip() else three_way.EMPTY
    sides = [_read(side, serializer, assets) for side in (ours, theirs)]
    merged = three_way.merge(before, sides[0], sides[1], settings.rules)
    text = serialize_cassette(serializer, merged.head, merged.documents)
    write_file(target, text, lambda written: _check(serializer, written), force=True)
    for conflict in merged.conflicts:
        terminal.print_error(f"{path}: conflict: {conflict}")
    return merged


def _exit_code(merged: three_way.Merged) -> int:
    return terminal.FOUND if merged.conflicts else terminal.DONE


def _in_conflict(path: Path) -> tuple[_Side, _Side, _Side]:
    """The versions from git's index, or else from the markers. Raises ConfigError, CassetteCorrupt."""
    text = read_file(path)
    if conflict_markers.first_line(text) is None:
        raise ConfigError(f"{path} has no conflict markers: give BASE, OURS and THEIRS")
    names = [f"{path}, {side}" for side in ("base", "ours", "theirs")]
    texts_by_stage = stages(path)
    if 2 in texts_by_stage and 3 in texts_by_stage:
        texts = [texts_by_stage.get(1, b""), texts_by_stage[2], texts_by_stage[3]]
    else:
        try:
            sides = conflict_markers.sides(text)
        except FormatFault as fault:
            raise corrupt_file(str(path), fault) from fault
        texts = [sides.base or b"", sides.ours, sides.theirs]
    base, ours, theirs = map(_Side, names, texts)
    return base, ours, theirs


def _syntax_of(text: bytes) -> Serializer:
    return JSON if text.lstrip()[:1] == b"{" else YAML


def _read(side: _Side, serializer: Serializer, assets: Path) -> Version:
    def fetch(digest: str) -> bytes:
        # When git calls its merge driver, the files that only their side has are not there yet.
        file = assets / digest.replace(":", "-")
        return file.read_bytes() if file.is_file() else AbsentAsset.of(digest)

    try:
        parsed = serializer.read(side.text)
        items = serializer.decode_all(side.text, parsed, fetch)
    except FormatFault as fault:
        raise corrupt_file(side.shown, fault) from fault
    documents = [document for _, document in parsed.documents]
    return Version(parsed.head, list(zip(documents, items, strict=True)))


def _check(serializer: Serializer, text: bytes) -> None:
    serializer.read(text)
