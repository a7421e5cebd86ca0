"""A folder of VCR.py's cassettes: its files, and the cassettes that tapeway's pytest plugin asks for.

pytest-recording keeps `cassettes/MODULE/CLASS.TEST[PARAMETERS].yaml` beside the file of the test, so
that the path says which test a cassette belongs to.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tapeway.cli.transfer import endpoints
from tapeway.cli.transfer.collected_tests import CollectedTest, collect, stem_of
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
    """Each file with its name; `root` is the folder that pytest runs in.

    A file that several tests share becomes a cassette of each.
    """
    places = {each: _place(each.path, folder, root) for each in sources}
    tests = collect(root) if any(_is_ambiguous(each, root) for each in places.values()) else []
    node_ids = [
        (source, node_id)
        for source, place in places.items()
        for node_id in _tests_of(place, tests, root) or [_node_id(place, root)]
    ]
    all_tests = {*[node_id for _, node_id in node_ids], *[each.node_id for each in tests]}
    names = distinct_names({each: cassette_name(each) for each in sorted(all_tests)})
    return [VcrFile(source, names[node_id]) for source, node_id in node_ids]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a file is: the folders before `cassettes`, those after it, and its name."""

    before: Sequence[str]
    after: Sequence[str]
    stem: str

    def module(self, root: Path) -> Path | None:
        """The module of the test, if it is there.

        Some projects keep all cassettes in one folder above their tests.
        """
        if not self.after:
            return None
        ending = "/".join(self.after) + ".py"
        folders = [root.joinpath(*self.before[:count]) for count in range(len(self.before), -1, -1)]
        return next((each / ending for each in folders if (each / ending).is_file()), None)


def _is_ambiguous(place: _Place, root: Path) -> bool:
    """Whether its name may be that of several tests, and there are tests to look at."""
    if not place.after:
        return any(root.joinpath(*place.before).glob("*.py"))
    return any(each in place.stem for each in "-.") and place.module(root) is not None


def _tests_of(place: _Place, tests: Sequence[CollectedTest], root: Path) -> list[str]:
    stem, module = stem_of(place.stem), place.module(root)
    folder = root.joinpath(*place.before).resolve()
    return [
        each.node_id
        for each in tests
        if each.stem == stem
        and (each.file.parent == folder if module is None else each.file == module.resolve())
    ]


def _below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(".")]
        for each in files:
            if each.endswith(_ENDINGS) and not each.startswith("."):
                yield Path(parent, each)


def _node_id(place: _Place, root: Path) -> str:
    """What pytest calls the test of a file, as far as its path says so."""
    test, bracket, parameters = place.stem.partition("[")
    inner = test.replace(".", "::") + bracket + parameters
    if not place.after:
        return "::".join(["/".join(place.before), inner]) if place.before else inner
    module = place.module(root)
    if module is not None:
        return f"{module.relative_to(root).as_posix()}::{inner}"
    return f"{'/'.join([*place.before, *place.after])}.py::{inner}"


def _place(file: Path, folder: Path, root: Path) -> _Place:
    parent = file.parent.resolve()
    if not parent.is_relative_to(root.resolve()):
        root = folder.parent
    parts = parent.relative_to(root.resolve()).parts
    if _FOLDER in parts:
        at = len(parts) - 1 - parts[::-1].index(_FOLDER)
    else:
        at = len(folder.resolve().relative_to(root.resolve()).parts) - 1
    return _Place(parts[: max(at, 0)], parts[at + 1 :], _stem(file))


def _stem(file: Path) -> str:
    ending = max((each for each in _ENDINGS if file.name.endswith(each)), key=len)
    return file.name.removesuffix(ending)
