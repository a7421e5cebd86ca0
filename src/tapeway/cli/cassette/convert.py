"""`tapeway cassette convert`: copy cassettes to another format or store, and name every loss."""

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import click

from tapeway.cli import terminal
from tapeway.cli.cassette_arguments import existing, opened
from tapeway.cli.options import cassette_command
from tapeway.cli.secrets import print_findings
from tapeway.cli.transfer import conversion, endpoints, folder_of_files
from tapeway.cli.transfer.conversion import ConversionResult
from tapeway.cli.transfer.endpoints import FormatFile
from tapeway.cli.transfer.folder_of_files import NamedFiles
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.redaction.known_values import KnownValues
from tapeway.errors import CassetteCorrupt, ConfigError, TapewayError
from tapeway.formats import registry
from tapeway.paging import CassetteRef
from tapeway.ports import CassetteStore
from tapeway.settings.options import Settings, known_values
from tapeway.stores.opening import open_store
from tapeway.version import VERSION

_READABLE = click.Choice([kind.name for kind in registry.FORMATS])
_WRITTEN = "|".join([kind.name for kind in registry.WRITTEN])


@cassette_command(output_format=False, in_store=endpoints.is_in_store)
@click.argument("source", metavar="A")
@click.argument("target", metavar="B", required=False)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Convert all cassettes of store A to B, or without B other tools' recordings in folder A.",
)
@click.option("--from", "from_format", type=_READABLE, help="The format of A. [by its content]")
@click.option("--to", "to_format", metavar=f"[{_WRITTEN}]", help="The format of B. [by its suffix]")
@click.option("--force", is_flag=True, help="Replace B if it exists.")
@click.option("--flatten", is_flag=True, help="Write what A has from its bases into B too.")
@click.option("--no-redact", is_flag=True, help="Keep secrets as they are.")
def convert(
    source: str,
    target: str | None,
    every: bool,
    from_format: str | None,
    to_format: str | None,
    force: bool,
    flatten: bool,
    no_redact: bool,
    settings: Settings,
) -> int:
    """Copy a cassette to another format or store.

    A is written as B. A and B are names of cassettes in the store, files, or STORE#NAME. If A is a
    folder of other tools' recordings, all recordings go into the cassette B.

    \b
        tapeway cassette convert session.har smoke
        tapeway cassette convert smoke smoke.har
        tapeway cassette convert smoke sqlite:./cassettes.db#smoke
        tapeway cassette convert --all ./cassettes sqlite:./cassettes.db
        tapeway cassette convert --all tests/cassettes

    With --all and no B, A is a folder of other tools' recordings. Each file becomes a cassette in
    --store. A file of VCR.py or pytest-recording becomes the cassette that the pytest plugin uses for
    the test; the name of any other cassette is the path below A. The old files stay.

    \b
    Exit codes:
        0  converted
        1  converted, but interactions were left out or secrets remain
        2  something was not converted

    Standard error names what the other format cannot hold. Secrets are replaced as by cassette
    redact. B is read back and compared with A. A cassette that --force replaces stays until then.
    After an interruption, run the command again: it begins anew. --all passes over each cassette
    that B holds already. Files whose names end in .gz are read and written compressed.
    """
    if every and (from_format or to_format):
        raise click.UsageError("--all converts stores and folders: leave out --from and --to.")
    if every and target and click.get_current_context().params["store"] is not None:
        raise click.UsageError("--all takes both stores as arguments: leave out --store.")
    if every and flatten:
        raise click.UsageError("--flatten takes one cassette: leave out --all.")
    if target is None and not every:
        raise click.UsageError("Missing argument 'B'.")
    known = None if no_redact else known_values(settings, os.environ)
    try:
        if target is None:
            return asyncio.run(_convert_folder(Path(source), settings.store, known, force=force))
        if every:
            return asyncio.run(_convert_store(source, target, known, force=force))
        code, files = terminal.DONE, list[FormatFile]()
        if Path(source).is_dir() and from_format is None:
            files, code = _sources(folder_of_files.find(Path(source)))
        end = files or endpoints.source(source, from_format, settings.store)
        to = endpoints.target(target, to_format, settings.store)
        done = conversion.convert(end, to, known, _new_head(), force=force, flatten=flatten)
        return max(code, _print(asyncio.run(done)))
    except KeyboardInterrupt:
        terminal.print_error("interrupted: run this again")
        return terminal.NOT_DONE


async def _convert_store(
    source: str, target: str, known: KnownValues | None, *, force: bool
) -> int:
    code = terminal.DONE
    async with opened(existing(open_store(source))) as one, opened(open_store(target)) as other:
        names = await one.names()
        if not names:
            raise ConfigError(f"there is no cassette in {one.url}")
        with terminal.progress_of_all("copying", names) as every:
            results = [await _convert_one(one, other, name, known, force=force) for name in every]
    for result in results:
        if isinstance(result, TapewayError):
            terminal.print_error(result.message)
            code = terminal.NOT_DONE
        else:
            code = max(code, _print(result))
    return code


async def _convert_one(
    one: CassetteStore, other: CassetteStore, name: str, known: KnownValues | None, *, force: bool
) -> ConversionResult | TapewayError:
    """The result, or the error that prevented the copy."""
    ends = CassetteRef.of(one, name), CassetteRef.of(other, name)
    try:
        return await conversion.copy(*ends, known, force=force)
    except TapewayError as exc:
        return exc
    finally:
        await one.release(name)
        await other.release(name)


async def _convert_folder(
    folder: Path, store: str, known: KnownValues | None, *, force: bool
) -> int:
    sources, code = _sources(folder_of_files.find(folder))
    if not sources and code == terminal.DONE:
        raise ConfigError(f"{folder}: there is no recording of another tool in this folder")
    files = folder_of_files.named(sources, folder, Path())
    taken: dict[str, str] = {}
    async with opened(open_store(store)) as to:
        for file in files:
            if (other := taken.setdefault(file.name, file.shown)) != file.shown:
                terminal.print_error(
                    f"{file.shown}: {other} became the cassette {file.name} already: "
                    "convert one of them by itself, under another name"
                )
                code = terminal.NOT_DONE
                continue
            code = max(code, await _bring_over(file, to, known, force=force))
    return code


def _sources(files: Sequence[Path]) -> tuple[list[FormatFile], int]:
    """The files of other tools, and the exit code for unreadable files."""
    readable: list[FormatFile] = []
    code = terminal.DONE
    for file in files:
        try:
            if (source := folder_of_files.source_of(file)) is not None:
                readable.append(source)
        except CassetteCorrupt as exc:
            terminal.print_error(exc.message)
            code = terminal.NOT_DONE
        except ConfigError as exc:
            terminal.print_error(f"{exc.message}: passed over")
    return readable, code


async def _bring_over(
    files: NamedFiles, to: CassetteStore, known: KnownValues | None, *, force: bool
) -> int:
    cassette = CassetteRef.of(to, files.name)
    try:
        result = await conversion.import_files(
            files.sources, cassette, known, _new_head(), force=force
        )
    except TapewayError as exc:
        terminal.print_error(exc.message)
        return terminal.NOT_DONE
    finally:
        await to.release(files.name)
    return _print(result, f"{files.shown}: ")


def _print(result: ConversionResult, of: str = "") -> int:
    for loss in result.losses:
        terminal.print_error(f"{of}{loss}")
    print_findings(result.secrets, "text")
    count = f"{result.written} of {result.total} interactions"
    click.echo(f"{result.shown}: {count}, sha256:{result.digest}")
    return terminal.DONE if result.complete else terminal.FOUND


def _new_head() -> CassetteHead:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return CassetteHead(now, str(uuid4()), {"tapeway_version": VERSION})
