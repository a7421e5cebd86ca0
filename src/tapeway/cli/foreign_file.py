"""A file in another tool's format: read whole, and put in its place whole or not at all."""

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.errors import CassetteCorrupt, ConfigError, StoreError
from tapeway.formats import registry
from tapeway.formats.conversion_loss import ExportedCassette, ImportedCassette
from tapeway.formats.errors import FormatFault
from tapeway.formats.registry import Kind
from tapeway.stores.shared.durable_files import FILE_MODE, store_error


def content(path: Path) -> bytes:
    """Its bytes. Raises ConfigError."""
    try:
        return path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read ({exc.strerror})") from exc


def kind_of(path: Path) -> Kind | None:
    """The format its text is in. Raises ConfigError, CassetteCorrupt for a broken text in YAML."""
    try:
        return registry.of_text(content(path), path.suffix)
    except FormatFault as fault:
        raise _corrupt(path, fault) from fault


def read(path: Path, text: bytes, kind: Kind, fresh: CassetteHead) -> ImportedCassette:
    """What a file's text says. Raises CassetteCorrupt with file, line, place and reason."""
    try:
        return kind.load(text, fresh)
    except FormatFault as fault:
        raise _corrupt(path, fault) from fault


def saved(kind: Kind, cassette: StoredCassette) -> ExportedCassette:
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
