"""A folder of VCR.py's cassettes: its files, and the cassettes that tapeway's pytest plugin asks for.

pytest-recording keeps `cassettes/MODULE/CLASS.TEST[PARAMETERS].yaml` beside the file of the test, so
that the path says which test a cassette belongs to.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tapeway.cli.transfer import endpoints
from tapeway.cli.transfer.endpoints import Endpoint
from tapeway.errors import ConfigError
from tapeway.formats.registry import TAPEWAY, VCR, VCR_JSON
from tapeway.pytest_plugin.names import cassette_name, distinct_names

_ENDINGS = (".yaml", ".yml", ".json", ".yaml.gz", ".yml.gz", ".json.gz")
_FOLDER = "cassettes"


@dataclass(frozen=True, slots=True)
class VcrFile:
    """A file, and the cassette that it becomes."""

    source: Endpoint
    name: str


def find(folder: Path) -> list[Path]:
    """The files below a folder that may be cassettes, sorted. Raises ConfigError."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder")
    return sorted(_below(folder))


def source_of(file: Path) -> Endpoint | None:
    """The file as VCR.py's, None for a cassette of tapeway's own.

    Raises ConfigError for any other file, CassetteCorrupt for one that cannot be read.
    """
    found = endpoints.source(str(file), None)
    if found.format is TAPEWAY:
        return None
    if found.format not in (VCR, VCR_JSON):
        raise ConfigError(f"{file} is of the format '{found.format.name}': convert it by itself")
    return found


def named(sources: Sequence[Endpoint], folder: Path, root: Path) -> list[VcrFile]:
    """Each file with its name; `root` is the folder that pytest runs in."""
    node_ids = {each: _node_id(each.path, folder, root) for each in sources}
    names = distinct_names({each: cassette_name(each) for each in node_ids.values()})
    return [VcrFile(each, names[node_id]) for each, node_id in node_ids.items()]


def _below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(".")]
        for each in files:
            if each.endswith(_ENDINGS) and not each.startswith("."):
                yield Path(parent, each)


def _node_id(file: Path, folder: Path, root: Path) -> str:
    """What pytest calls the test of a file."""
    before, after = _around_folder(file.parent, folder, root)
    test, bracket, parameters = _stem(file).partition("[")
    inner = test.replace(".", "::") + bracket + parameters
    if not after:
        return "::".join(["/".join(before), inner]) if before else inner
    module = "/".join(after) + ".py"
    return f"{'/'.join([*_folder_of_module(before, module, root), module])}::{inner}"


def _around_folder(parent: Path, folder: Path, root: Path) -> tuple[list[str], list[str]]:
    """The folders before `cassettes`, and those after it; or around the given folder."""
    if not parent.resolve().is_relative_to(root.resolve()):
        root = folder.parent
    parts = parent.resolve().relative_to(root.resolve()).parts
    if _FOLDER in parts:
        at = len(parts) - 1 - parts[::-1].index(_FOLDER)
    else:
        at = len(folder.resolve().relative_to(root.resolve()).parts) - 1
    return [*parts[: max(at, 0)]], [*parts[at + 1 :]]


def _folder_of_module(before: Sequence[str], module: str, root: Path) -> Sequence[str]:
    # Some projects keep all cassettes in one folder above their tests.
    for count in range(len(before), -1, -1):
        if root.joinpath(*before[:count], module).is_file():
            return before[:count]
    return before


def _stem(file: Path) -> str:
    ending = max((each for each in _ENDINGS if file.name.endswith(each)), key=len)
    return file.name.removesuffix(ending)
