"""Where a conversion begins or ends, and in which format."""

from dataclasses import dataclass
from pathlib import Path

from tapeway.cli import foreign_file
from tapeway.cli.places import is_address
from tapeway.core.http.routing import valid_cassette_name
from tapeway.errors import ConfigError
from tapeway.formats import registry
from tapeway.formats.registry import TAPEWAY, Kind


@dataclass(frozen=True, slots=True)
class End:
    """A file of another tool, or a cassette in a store."""

    written: str
    kind: Kind

    @property
    def path(self) -> Path:
        return Path(self.written)


def source(written: str, name: str | None) -> End:
    """The cassette or file to read, its format taken from its text where none is given.

    Raises ConfigError.
    """
    path = Path(written)
    if is_address(written):
        return _stored(written, name, "--from")
    if name is not None:
        return End(written, _named(name, written))
    if not path.is_file():
        return End(written, TAPEWAY)
    kind = foreign_file.kind_of(path)
    if kind is None and path.suffix in TAPEWAY.suffixes:
        # What is wrong with it is told by whoever reads cassettes.
        kind = TAPEWAY
    if kind is None:
        raise ConfigError(
            f"{written}: no format is known that looks like this; {_choice('--from')}"
        )
    return End(written, kind)


def target(written: str, name: str | None) -> End:
    """The cassette or file to write, its format taken from its suffix where none is given.

    Raises ConfigError.
    """
    if is_address(written):
        return _stored(written, name, "--to")
    if name is not None:
        return End(written, _named(name, written))
    kind = registry.of_suffix(Path(written).suffix)
    if kind is None and not valid_cassette_name(written):
        raise ConfigError(f"{written}: no format is known for this suffix; {_choice('--to')}")
    return End(written, kind or TAPEWAY)


def _stored(written: str, name: str | None, flag: str) -> End:
    if name not in (None, TAPEWAY.name):
        raise ConfigError(f"a store holds cassettes of tapeway's own: leave out {flag} {name}")
    return End(written, TAPEWAY)


def _named(name: str, written: str) -> Kind:
    kind = registry.named(name, Path(written).suffix)
    if kind is None:
        raise ConfigError(f"there is no format '{name}': known are {_names()}")
    return kind


def _choice(flag: str) -> str:
    return f"give {flag} one of {_names()}"


def _names() -> str:
    return ", ".join([kind.name for kind in registry.KINDS])
