"""`tapeway cassette mv`: give a cassette another name."""

import asyncio
from contextlib import suppress
from pathlib import Path

import click

from tapeway.cli import terminal
from tapeway.cli.cassette_arguments import check_persistent, existing, files_of, locate, opened
from tapeway.cli.comparison.git import rename_in_index
from tapeway.cli.options import cassette_command
from tapeway.cli.transfer import conversion
from tapeway.errors import ConfigError
from tapeway.formats.cassette_file import SERIALIZER_BY_SUFFIX
from tapeway.paging import CassetteRef
from tapeway.ports import CassetteStore
from tapeway.settings.options import Settings
from tapeway.stores.file import offline


@cassette_command(output_format=False)
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
def mv(old: str, new: str, settings: Settings) -> int:
    """Give a cassette another name, or move it to another store.

    \b
        tapeway cassette mv test_chat/test_old test_chat/test_new
        tapeway cassette mv smoke sqlite:./cassettes.db#smoke

    \b
    Exit codes:
        0  done
        2  the cassette was not moved, and is unchanged

    In a folder, mv renames the file and the folder of large bodies, and changes no content: version
    control finds the history. If git tracks the files, mv renames them in the index too, as git mv
    does. An existing cassette is never replaced.
    """
    source, target = locate(old, settings.store), locate(new, settings.store)
    for end in (source, target):
        check_persistent(end.store)
    asyncio.run(_move(source, target))
    click.echo(f"{terminal.line(source.shown)} is now {terminal.line(target.shown)}")
    return terminal.DONE


async def _move(source: CassetteRef, target: CassetteRef) -> None:
    """Raises ConfigError, StoreError."""
    async with opened(existing(source.store)) as store:
        if await store.stat(source.name) is None:
            raise await source.missing()
        if (folder := _folder(store)) is not None and folder == _folder(target.store):
            if source.name == target.name:
                raise _name_taken(target)
            _check_suffix(source, target, folder)
            offline.rename(folder, source.name, target.name)
            with suppress(ConfigError):
                rename_in_index(folder, source.name, target.name)
            return
        async with opened(target.store):
            if await target.store.stat(target.name) is not None:
                raise _name_taken(target)
            if source.store.url != target.store.url:
                await _copy_and_remove(source, target)
            elif (shared := store.shared) is not None:
                await shared.replace_cassette(target.name, source.name)
            else:
                await _copy_and_remove(source, CassetteRef(store, target.name, target.shown))


def _name_taken(target: CassetteRef) -> ConfigError:
    return ConfigError(f"{target.shown} exists already: give another name")


def _folder(store: CassetteStore) -> Path | None:
    return None if (folder := store.facts.folder) is None else folder.resolve()


def _check_suffix(source: CassetteRef, target: CassetteRef, folder: Path) -> None:
    """Raise ConfigError where a file is named that would have to be written anew."""
    asked = Path(target.shown).suffix
    for file in files_of(folder, source.name):
        if asked in SERIALIZER_BY_SUFFIX and asked != file.suffix:
            raise ConfigError(
                f"{target.shown}: {file} keeps its format; `tapeway cassette convert` changes it"
            )


async def _copy_and_remove(source: CassetteRef, target: CassetteRef) -> None:
    result = await conversion.copy(source, target, None, force=False)
    if not result.complete:
        raise ConfigError(
            f"{target.shown} could not take all of {source.shown}, which stays as it is"
        )
    await target.store.release(target.name)
    await source.store.remove(source.name)
