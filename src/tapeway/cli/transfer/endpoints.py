"""The two ends of a conversion: a cassette in a store, or a file of another tool, and its format.

A file is read as a whole, and written completely or not at all.
"""

import gzip
import os
import secrets
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tapeway.cli import cassette_arguments
from tapeway.cli.cassette_arguments import is_address, locate, real_file
from tapeway.core.http.routing import valid_cassette_name
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.errors import CassetteCorrupt, ConfigError, StoreError
from tapeway.formats import registry
from tapeway.formats.cassette_file import begins_like_cassette
from tapeway.formats.conversion_loss import ExportedCassette, ImportedCassette
from tapeway.formats.errors import FormatFault
from tapeway.formats.registry import TAPEWAY, Format
from tapeway.formats.yaml.parser import MAX_SIZE
from tapeway.paging import CassetteRef
from tapeway.stores.support.durable_files import FILE_MODE, FileText, store_error


@dataclass(frozen=True, slots=True)
class FormatFile:
    """A file that no store holds: in a format of another tool, or compressed."""

    shown: str
    format: Format

    @property
    def path(self) -> Path:
        return Path(self.shown)


def source(argument: str, format_name: str | None, store: str) -> CassetteRef | FormatFile:
    """The cassette or file to read, its format detected from its text if none is given.

    Raises ConfigError.
    """
    if is_address(argument):
        return _at_address(argument, format_name, "--from", store)
    if format_name is not None:
        return _end(argument, _named(format_name, registry.FORMATS), store)
    path = Path(argument)
    return _end(argument, format_of(path) if path.is_file() else TAPEWAY, store)


def target(argument: str, format_name: str | None, store: str) -> CassetteRef | FormatFile:
    """The cassette or file to write, its format taken from its suffix if none is given.

    Raises ConfigError.
    """
    if is_address(argument):
        return _at_address(argument, format_name, "--to", store)
    path = Path(argument)
    by_suffix = registry.by_suffix(_suffix(path))
    file_format = by_suffix if format_name is None else _named(format_name, registry.WRITTEN)
    if file_format is None and (_is_compressed(path) or not valid_cassette_name(argument)):
        choice = _choice("--to", registry.WRITTEN)
        raise ConfigError(f"{argument}: no format is known for this suffix; {choice}")
    file_format = file_format or TAPEWAY
    _save_of(file_format)
    return _end(argument, file_format, store)


def _end(argument: str, file_format: Format, store: str) -> CassetteRef | FormatFile:
    # Stores hold no compressed cassettes.
    if file_format is TAPEWAY and not _is_compressed(Path(argument)):
        return locate(argument, store)
    return FormatFile(argument, file_format)


def is_in_store(argument: str) -> bool:
    """Whether this end is a cassette's name in the store from `--store`, and no file."""
    path = Path(argument)
    return (
        cassette_arguments.is_in_store(argument)
        and not path.is_file()
        and not _is_compressed(path)
        and registry.by_suffix(path.suffix) is None
    )


def read_file(path: Path) -> bytes:
    """The bytes of a file, decompressed if its name ends in .gz. Raises ConfigError."""
    try:
        if not _is_compressed(path):
            return path.read_bytes()
        with gzip.open(path) as file:
            text = file.read(MAX_SIZE + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
        raise ConfigError(f"{path}: cannot be decompressed ({exc})") from exc
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read ({exc.strerror})") from exc
    if len(text) > MAX_SIZE:
        raise ConfigError(f"{path}: has more than {MAX_SIZE >> 20} MiB when decompressed")
    return text


def parse(path: Path, text: bytes, file_format: Format, fresh: CassetteHead) -> ImportedCassette:
    """The cassette in a file's text. Raises CassetteCorrupt with file, line, place and reason."""
    try:
        return file_format.load(text, fresh)
    except FormatFault as fault:
        raise corrupt_file(path, fault) from fault


def check_is_cassette(path: Path) -> None:
    """Raise CassetteCorrupt for a file that is to be a cassette of tapeway's, and is none."""
    if not _is_compressed(path):
        with path.open("rb") as file:
            if begins_like_cassette(file):
                return
    parse(path, read_file(path), TAPEWAY, CassetteHead("", "", {}))


def serialize(file_format: Format, cassette: StoredCassette) -> ExportedCassette:
    """The text of a cassette. Raises ConfigError for a format that is only read, StoreError."""
    save = _save_of(file_format)
    try:
        return save(cassette)
    except FormatFault as fault:
        raise StoreError(
            f"this cassette cannot be written as {file_format.name}: {fault}"
        ) from fault


def write_file(path: Path, text: bytes, check: Callable[[bytes], None], *, force: bool) -> None:
    """Write a file for the owner alone, after `check` has accepted the text that was read back.

    The file is compressed if its name ends in .gz.

    Raises ConfigError if it exists and `force` is not set, StoreError, and what `check` raises.
    """
    path = real_file(path)
    compressed = _is_compressed(path)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            with open(fd, "wb") as file:
                # Without a time in it: equal input gives equal bytes.
                file.write(gzip.compress(text, mtime=0) if compressed else text)
                file.flush()
                os.fsync(fd)
            written = draft.read_bytes()
            check(gzip.decompress(written) if compressed else written)
            _move(draft, path, force=force)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft)
    except FileExistsError:
        raise already_exists(str(path)) from None
    except OSError as exc:
        raise store_error(exc, str(path), "write the file") from exc


def already_exists(place: str) -> ConfigError:
    """The error for a target that exists."""
    return ConfigError(f"{place} already exists: give another name, or --force to replace it")


def format_of(path: Path) -> Format:
    """The format of a file by its text. Raises ConfigError, CassetteCorrupt."""
    try:
        if _is_compressed(path):
            found = registry.detect(read_file(path), _suffix(path))
        else:
            file = FileText(os.open(path, os.O_RDONLY | os.O_CLOEXEC), str(path))
            found = registry.detect(file, path.suffix)
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read ({exc.strerror})") from exc
    except FormatFault as fault:
        raise corrupt_file(path, fault) from fault
    if found is None:
        raise ConfigError(
            f"{path}: its format is not recognised; {_choice('--from', registry.FORMATS)}"
        )
    return found


def _is_compressed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _suffix(path: Path) -> str:
    """The suffix of a file, or of what a file holds compressed."""
    return Path(path.stem).suffix if _is_compressed(path) else path.suffix


def corrupt_file(shown: str | Path, fault: FormatFault) -> CassetteCorrupt:
    """The error for a file whose text cannot be read."""
    line = "" if fault.line is None else f" line {fault.line}"
    return CassetteCorrupt(f"{shown}{line}: {fault}")


def _move(draft: Path, path: Path, *, force: bool) -> None:
    if not force:
        try:
            os.link(draft, path)
            return
        except FileExistsError:
            raise
        except OSError:
            # Not every file system has hard links.
            if path.exists():
                raise FileExistsError from None
    os.replace(draft, path)


def _at_address(argument: str, format_name: str | None, flag: str, store: str) -> CassetteRef:
    if format_name not in (None, TAPEWAY.name):
        raise ConfigError(
            f"a store holds cassettes of tapeway's own: leave out {flag} {format_name}"
        )
    return locate(argument, store)


def _named(format_name: str, known: Iterable[Format]) -> Format:
    file_format = registry.by_name(format_name)
    if file_format is None:
        raise ConfigError(f"there is no format '{format_name}': known are {_names(known)}")
    return file_format


def _save_of(file_format: Format) -> Callable[[StoredCassette], ExportedCassette]:
    if file_format.save is None:
        choice = _choice("--to", registry.WRITTEN)
        raise ConfigError(
            f"tapeway reads the format '{file_format.name}' and does not write it; {choice}"
        )
    return file_format.save


def _choice(flag: str, formats: Iterable[Format]) -> str:
    return f"give {flag} one of {_names(formats)}"


def _names(formats: Iterable[Format]) -> str:
    return ", ".join([known.name for known in formats])
