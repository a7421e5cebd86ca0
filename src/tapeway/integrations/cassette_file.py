"""A cassette by the path of its file."""

from dataclasses import replace
from pathlib import Path

from tapeway.errors import ConfigError
from tapeway.formats.cassette_file import ENDINGS
from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore


def store_of_file(path: Path) -> tuple[CassetteStore, str]:
    """The store that a cassette's file is in, not yet open, and its name there.

    Raises ConfigError for a file that is none, or has another ending than what is there.
    """
    if path.suffix not in ENDINGS:
        raise ConfigError(
            f"'{path}' is no cassette file: it ends in {', '.join(ENDINGS)}; for a cassette of a "
            "store, name that with store="
        )
    beside = [path.with_suffix(each) for each in ENDINGS if each != path.suffix]
    if not path.exists() and (others := [each for each in beside if each.exists()]):
        raise ConfigError(
            f"'{path}' is not there, but '{others[0]}' is, and a cassette is one file: name that "
            "one, or convert it with: tapeway cassette convert"
        )
    notation = ENDINGS[path.suffix]
    # A new one is called as it is asked for.
    endings = (path.suffix, *[each for each in notation.endings if each != path.suffix])
    if endings != notation.endings:
        notation = replace(notation, endings=endings)
    return FileStore(path.parent, notation), path.stem
