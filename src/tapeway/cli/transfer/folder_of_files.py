"""A folder of other tools' recordings, and the cassettes for them.

pytest-recording keeps `cassettes/MODULE/CLASS.TEST[PARAMETERS].yaml` beside the file of the test. Such
a file becomes the cassette that tapeway's pytest plugin asks for. Any other file becomes the cassette
with its path below the folder.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tapeway.cli.transfer import endpoints
from tapeway.cli.transfer.collected_tests import CollectedTest, collect, stem_of
from tapeway.cli.transfer.endpoints import FormatFile
from tapeway.errors import ConfigError
from tapeway.formats.registry import FORMATS, TAPEWAY, VCR
from tapeway.pytest_plugin.names import cassette_name, distinct_names, path_name

_DOCUMENTS = (".yaml", ".yml", ".json", ".har", ".httprr", ".mitm", ".flow", ".flows")
_ENDINGS = (*_DOCUMENTS, *[f"{ending}.gz" for ending in _DOCUMENTS])
_FOLDER = "cassettes"
_POLLY = "recording"
"""How Polly.JS calls each file, in a folder for each recording."""
_LONGEST_BEGINNING = 64
_NAMES = re.compile(rb"""default_cassette|\bvcr\(\s*["']""")
_BINARY = [known.beginning for known in FORMATS if known.beginning is not None]


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """A cassette's name, and its files: mostly one."""

    sources: tuple[FormatFile, ...]
    name: str

    @property
    def shown(self) -> str:
        """The files for messages."""
        return ", ".join([source.shown for source in self.sources])


def find(folder: Path) -> list[Path]:
    """The files below a folder that may be recordings, sorted. Raises ConfigError."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder")
    return sorted(_files_below(folder))


def source_of(file: Path) -> FormatFile | None:
    """The file as another tool's, None for a cassette of tapeway.

    Raises ConfigError for any other file, CassetteCorrupt for an unreadable file.
    """
    source = FormatFile(str(file), endpoints.format_of(file))
    if source.format is TAPEWAY:
        endpoints.check_is_cassette(file)
        return None
    if not source.format.tool:
        raise ConfigError(f"{file} is of the format '{source.format.name}': convert it by itself")
    return source


def named(sources: Sequence[FormatFile], folder: Path, root: Path) -> list[NamedFiles]:
    """The cassettes that the files become; `root` is the folder that pytest runs in.

    A file of several tests becomes a cassette for each. The files that a test's markers name become
    one cassette.
    """
    of_vcr = [source for source in sources if source.format is VCR]
    places = {file: _place(file.path, folder, root) for file in of_vcr}
    tests = collect(root) if any(_is_ambiguous(place, root) for place in places.values()) else []
    files: list[tuple[tuple[FormatFile, ...], str]] = []
    for test in tests:
        own = [file for file, place in places.items() if _is_own(file.path, place, test, root)]
        more = [
            file
            for path in test.more
            for file, place in places.items()
            if _is_named(file.path, place, test, root, path)
        ]
        if files_of_test := tuple(dict.fromkeys([*own[:1], *more])):
            files.append((files_of_test, test.node_id))
        # Two files of one test: who converts them is told so.
        files += [((file,), test.node_id) for file in own[1:]]
    given = {file for files_of_test, _ in files for file in files_of_test}
    others = {file: _node_id(place, root) for file, place in places.items()}
    others |= {
        source: _path_below(folder, source.path) for source in sources if source not in places
    }
    files += [((file,), node_id) for file, node_id in others.items() if file not in given]
    every = {*[node_id for _, node_id in files], *[test.node_id for test in tests]}
    names = distinct_names({node_id: _name(node_id) for node_id in sorted(every)})
    return [NamedFiles(files_of_test, names[node_id]) for files_of_test, node_id in files]


def _name(node_id: str) -> str:
    return cassette_name(node_id) if "::" in node_id else path_name(node_id)


def _path_below(folder: Path, file: Path) -> str:
    parts = [*file.relative_to(folder).parts[:-1], _stem(file)]
    return "/".join(parts[:-1] if len(parts) > 1 and parts[-1] == _POLLY else parts)


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a file: the folders before `cassettes`, the folders after, and the name."""

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
        return next((folder / ending for folder in folders if (folder / ending).is_file()), None)


def _is_ambiguous(place: _Place, root: Path) -> bool:
    """Whether its name may be that of several tests, and there are tests to look at."""
    before = root.joinpath(*place.before)
    if _names_cassettes(before):
        return True
    if not place.after:
        return any(before.glob("*.py"))
    return any(separator in place.stem for separator in "-.") and place.module(root) is not None


@lru_cache(maxsize=64)
def _names_cassettes(folder: Path) -> bool:
    """Whether a test below a folder may name its cassette itself."""
    return any(_NAMES.search(path.read_bytes()) for path in folder.rglob("*.py") if path.is_file())


def _is_own(file: Path, place: _Place, test: CollectedTest, root: Path) -> bool:
    """Whether a file is the cassette of a test, by the test's name or its marker."""
    if test.named:
        return _is_named(file, place, test, root, test.named)
    return stem_of(place.stem) == test.stem and _is_of(place, test, root)


def _is_named(file: Path, place: _Place, test: CollectedTest, root: Path, path: str) -> bool:
    """Whether this path, in a marker of the test, names the file."""
    beside = (test.file.parent / _FOLDER / test.file.stem / path).resolve()
    if file.resolve() in {beside, *[Path(f"{beside}{ending}") for ending in _ENDINGS]}:
        return True
    return "/" not in path and _stem(Path(path)) == place.stem and _is_of(place, test, root)


def _is_of(place: _Place, test: CollectedTest, root: Path) -> bool:
    """Whether a place is the one for cassettes of the test's module."""
    module = place.module(root)
    if module is None:
        return test.file.parent == root.joinpath(*place.before).resolve()
    return test.file == module.resolve()


def _files_below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for file in files:
            if file.startswith("."):
                continue
            path = Path(parent, file)
            if file.endswith(_ENDINGS) or _begins_like_recordings(path):
                yield path


def _begins_like_recordings(path: Path) -> bool:
    """Whether a file of any name begins as httprr's or mitmproxy's do."""
    try:
        with path.open("rb") as file:
            beginning = file.read(_LONGEST_BEGINNING)
    except OSError:
        return False
    return any(known.match(beginning) for known in _BINARY)


def _node_id(place: _Place, root: Path) -> str:
    """The id that pytest gives to the test of a file, as far as the path tells."""
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
    endings = [ending for ending in _ENDINGS if file.name.endswith(ending)]
    return file.name.removesuffix(max(endings, key=len)) if endings else file.stem
