"""Where a conversion begins or ends, and in which format.

A file in another tool's format: read whole, and put in its place whole or not at all.
"""

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tapeway.cli.places import is_address
from tapeway.core.http.routing import valid_cassette_name
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.errors import CassetteCorrupt, ConfigError, StoreError
from tapeway.formats import registry
from tapeway.formats.conversion_loss import ExportedCassette, ImportedCassette
from tapeway.formats.errors import FormatFault
from tapeway.formats.registry import TAPEWAY, Format
from tapeway.stores.shared.durable_files import FILE_MODE, store_error


def content(path: Path) -> bytes:
    """Its bytes. Raises ConfigError."""
    try:
        return path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read ({exc.strerror})") from exc


def kind_of(path: Path) -> Format | None:
    """The format its text is in. Raises ConfigError, CassetteCorrupt for a broken text in YAML."""
    try:
        return registry.detect(content(path), path.suffix)
    except FormatFault as fault:
        raise _corrupt(path, fault) from fault


def read(path: Path, text: bytes, kind: Format, fresh: CassetteHead) -> ImportedCassette:
    """What a file's text says. Raises CassetteCorrupt with file, line, place and reason."""
    try:
        return kind.load(text, fresh)
    except FormatFault as fault:
        raise _corrupt(path, fault) from fault


def saved(kind: Format, cassette: StoredCassette) -> ExportedCassette:
    """The text of a file. Raises ConfigError for a format that is only read, StoreError."""
    if kind.save is None:
        raise ConfigError(f"the format '{kind.name}' is only read: give another one with --to")
    try:
        return kind.save(cassette)
    except FormatFault as fault:
        raise StoreError(f"this cassette cannot be written as {kind.name}: {fault}") from fault


def write(path: Path, text: bytes, check: Callable[[bytes], None], *, force: bool) -> None:
    """Put a file there, for its owner alone, once `check` has seen what came back from the disk.

    Raises ConfigError where there is one and that is not forced, StoreError, and what `check` raises.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            with open(fd, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(fd)
            check(draft.read_bytes())
            _place(draft, path, force=force)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft)
    except FileExistsError:
        raise taken(str(path)) from None
    except OSError as exc:
        raise store_error(exc, str(path), "write the file") from exc


def taken(place: str) -> ConfigError:
    """The error for a place where there is something already."""
    return ConfigError(f"{place} is there already: give another name, or --force to replace it")


def _corrupt(path: Path, fault: FormatFault) -> CassetteCorrupt:
    line = "" if fault.line is None else f" line {fault.line}"
    return CassetteCorrupt(f"{path}{line}: {fault}")


def _place(draft: Path, path: Path, *, force: bool) -> None:
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


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A file of another tool, or a cassette in a store."""

    written: str
    kind: Format

    @property
    def path(self) -> Path:
        return Path(self.written)


def source(written: str, name: str | None) -> Endpoint:
    """The cassette or file to read, its format taken from its text where none is given.

    Raises ConfigError.
    """
    path = Path(written)
    if is_address(written):
        return _stored(written, name, "--from")
    if name is not None:
        return Endpoint(written, _named(name, written))
    if not path.is_file():
        return Endpoint(written, TAPEWAY)
    kind = kind_of(path)
    if kind is None and path.suffix in TAPEWAY.suffixes:
        # What is wrong with it is told by whoever reads cassettes.
        kind = TAPEWAY
    if kind is None:
        raise ConfigError(
            f"{written}: no format is known that looks like this; {_choice('--from')}"
        )
    return Endpoint(written, kind)


def target(written: str, name: str | None) -> Endpoint:
    """The cassette or file to write, its format taken from its suffix where none is given.

    Raises ConfigError.
    """
    if is_address(written):
        return _stored(written, name, "--to")
    if name is not None:
        return Endpoint(written, _named(name, written))
    kind = registry.by_suffix(Path(written).suffix)
    if kind is None and not valid_cassette_name(written):
        raise ConfigError(f"{written}: no format is known for this suffix; {_choice('--to')}")
    return Endpoint(written, kind or TAPEWAY)


def _stored(written: str, name: str | None, flag: str) -> Endpoint:
    if name not in (None, TAPEWAY.name):
        raise ConfigError(f"a store holds cassettes of tapeway's own: leave out {flag} {name}")
    return Endpoint(written, TAPEWAY)


def _named(name: str, written: str) -> Format:
    kind = registry.by_name(name, Path(written).suffix)
    if kind is None:
        raise ConfigError(f"there is no format '{name}': known are {_names()}")
    return kind


def _choice(flag: str) -> str:
    return f"give {flag} one of {_names()}"


def _names() -> str:
    return ", ".join([kind.name for kind in registry.FORMATS])
