"""The shape of the code: who may import whom, what stays pure, how many modules a folder holds.

The ladder of imports stands in `tests/layers.py`, room by room. A rule that cannot be seen to fail
guards nothing, so each one has a planted violation at the end of this file.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.layers import ROOT as ROOT_ROOMS
from tests.layers import ROWS, allowed, room_of

ROOT = Path(__file__).parents[1]
PACKAGE = "tapeway"
JS_CLASS = re.compile(r"^(?:export )?class (\w+)", re.MULTILINE)
FULL_FOLDER = 15
"""Modules that a folder of sources holds at most, besides its `__init__.py`."""

MOVABLE = ("embedded", "pytest_plugin")
"""Folders that the package tapeway-pytest has too, under its own name: their imports are relative."""

PURE = ("core", "formats", "providers", "conversations")
WAITS = frozenset({"conversations.transcript"})
"""Reads bodies from files while it puts a conversation together."""
ASYNC = "decides, never waits"
CLOCK = "takes the time as an argument"
IO = "takes and gives values, others do the reading and writing"
RANDOM = "takes identifiers as arguments: the same input gives the same output"
IMPURE_IMPORTS: dict[str, str] = {
    "aiohttp": IO,
    "asyncio": ASYNC,
    "click": IO,
    "concurrent": ASYNC,
    "fcntl": IO,
    "fileinput": IO,
    "getpass": IO,
    "glob": IO,
    "http.client": IO,
    "http.server": IO,
    "httpx": IO,
    "importlib": "imports what it needs by name, where this test sees it",
    "logging": "raises or returns what there is to say",
    "mmap": IO,
    "multiprocessing": ASYNC,
    "os": IO,
    "pathlib.Path": IO,
    "pathlib.PosixPath": IO,
    "platform": "does not know on which machine it runs",
    "prometheus_client": "returns counts, others publish them",
    "random": RANDOM,
    "requests": IO,
    "secrets": RANDOM,
    "select": IO,
    "selectors": IO,
    "shutil": IO,
    "signal": ASYNC,
    "socket": IO,
    "sqlite3": IO,
    "ssl": IO,
    "subprocess": IO,
    "sys": "does not know in which process it runs",
    "tempfile": IO,
    "threading": ASYNC,
    "time": CLOCK,
    "urllib.request": IO,
    "uuid": RANDOM,
    "uvloop": ASYNC,
    "warnings": "raises or returns what there is to say",
    "zoneinfo": IO,
}
# Members that `import pathlib` alone would let through.
IMPURE_WHOLE_MODULES = frozenset({"pathlib", "http", "urllib"})
IMPURE_CALLS: dict[str, str] = {
    "__import__": IMPURE_IMPORTS["importlib"],
    "breakpoint": IO,
    "input": IO,
    "open": IO,
    "print": IO,
}
CLOCK_READINGS = frozenset({"now", "utcnow", "today"})

# Names that say where code was put and not what it is.
SHAPELESS = frozenset({"util", "helper", "common", "base", "manager", "service", "misc"})


def test_the_code_keeps_its_shape() -> None:
    assert list(violations(ROOT)) == []


def test_the_checker_sees_the_code() -> None:
    modules = {module for module, _ in _modules(ROOT)}

    assert {"errors", "core.model.messages", "ports"} <= modules


def violations(root: Path) -> Iterator[str]:
    """Each breach of the shape in the tree below `root`, as one line that says where and why."""
    trees: dict[Path, ast.Module] = {}
    for path in _python_files(root, "src", "tests", "bench", "examples"):
        where = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        tree = trees[path] = ast.parse(text, where)
        if where.startswith(tuple(f"src/{PACKAGE}/{folder}/" for folder in MOVABLE)):
            yield from _named_in_full(where, tree)
            _resolve(where, tree)
        yield from _shapeless_names(where)
        yield from _root_imports(where, tree)
    imports: dict[str, set[str]] = {}
    for module, path in _modules(root):
        where = path.relative_to(root).as_posix()
        tree = trees[path]
        imports[module] = {target for target, _ in _own_imports(tree)}
        yield from _wrong_direction(where, module, tree)
        if module.partition(".")[0] in PURE and module not in WAITS:
            yield from _impurities(where, tree)
    yield from _cycles(imports)
    yield from _full_folders(root)
    yield from _names_twice(root, trees)


def _full_folders(root: Path) -> Iterator[str]:
    counts = Counter(path.parent for path in _python_files(root, "src") if path.stem[0] != "_")
    for folder, count in counts.items():
        if count > FULL_FOLDER:
            where = folder.relative_to(root).as_posix()
            yield f"{where}: {count} modules, {FULL_FOLDER} are the most: make a folder of a subject"


def _names_twice(root: Path, trees: Mapping[Path, ast.Module]) -> Iterator[str]:
    places: dict[str, list[str]] = {}
    for path in _python_files(root, "src"):
        for node in trees[path].body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(path.relative_to(root).as_posix())
    for path in sorted((root / "src").rglob("*.js")):
        for name in JS_CLASS.findall(path.read_text(encoding="utf-8")):
            places.setdefault(name, []).append(path.relative_to(root).as_posix())
    for name, files in places.items():
        if len(files) > 1:
            yield f"{files[0]}: the class {name} is also in {files[1]}: each name stands for one thing"


def _python_files(root: Path, *folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((root / folder).rglob("*.py"))


def _modules(root: Path) -> Iterator[tuple[str, Path]]:
    package = root / "src" / PACKAGE
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _shapeless_names(where: str) -> Iterator[str]:
    for part in Path(where).with_suffix("").parts:
        name = part.strip("_").lower()
        if name in SHAPELESS or name.removesuffix("s") in SHAPELESS:
            yield f"{where}: '{part}' names no noun of the domain"


def _import_statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """The imports, wherever they stand; without the expressions, of which there are ten times more."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            left.extend(getattr(node, name, ()))
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def _root_imports(where: str, tree: ast.Module) -> Iterator[str]:
    for node in _import_statements(tree):
        match node:
            case ast.Import(names=names) if any(alias.name == PACKAGE for alias in names):
                yield f"{where}:{node.lineno}: imports the package root, name the module"
            case ast.ImportFrom(module=module, level=0) if module == PACKAGE:
                yield f"{where}:{node.lineno}: imports the package root, name the module"
            case ast.ImportFrom(level=level) if level > 0:
                yield f"{where}:{node.lineno}: relative import, name the module in full"


def _named_in_full(where: str, tree: ast.Module) -> Iterator[str]:
    for target, line in _all_imports(tree):
        if target == PACKAGE or target.startswith(f"{PACKAGE}."):
            yield f"{where}:{line}: tapeway-pytest has this file too, import {target} relatively"


def _resolve(where: str, tree: ast.Module) -> None:
    """Name the modules of relative imports in full."""
    package = Path(where).relative_to("src").parent.parts
    for node in _import_statements(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            parts = package[: len(package) - node.level + 1]
            node.module = ".".join([*parts, *([node.module] if node.module else [])])
            node.level = 0


def _all_imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every imported name with its line, wherever the import stands.

    An import inside a function or under `TYPE_CHECKING` is a dependency like any other.
    """
    for node in _import_statements(tree):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, node.lineno) for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from ((f"{module}.{alias.name}", node.lineno) for alias in names)


def _own_imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for name, line in _all_imports(tree):
        package, _, rest = name.partition(".")
        if package == PACKAGE and rest:
            yield rest, line


def _wrong_direction(where: str, module: str, tree: ast.Module) -> Iterator[str]:
    room = room_of(module)
    if room is None and module:
        yield f"{where}: '{module}' has no row in the table of rooms"
        return
    below = allowed(room) if room else ROOT_ROOMS
    for name, line in _own_imports(tree):
        target = room_of(name)
        if target not in below:
            yield f"{where}:{line}: {room or 'the package root'} must not import {target or name}"


def _impurities(where: str, tree: ast.Module) -> Iterator[str]:
    for name, line in _all_imports(tree):
        for denied, reason in IMPURE_IMPORTS.items():
            if name == denied or name.startswith(f"{denied}."):
                yield f"{where}:{line}: imports {denied}, but pure code {reason}"
        if name in IMPURE_WHOLE_MODULES:
            yield f"{where}:{line}: imports all of {name}, name the pure part"
    for node in ast.walk(tree):
        match node:
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                yield f"{where}:{node.lineno}: is async, but pure code {ASYNC}"
            case ast.Call(func=ast.Name(id=called)) if called in IMPURE_CALLS:
                yield f"{where}:{node.lineno}: calls {called}, but pure code {IMPURE_CALLS[called]}"
            case ast.Call(func=ast.Attribute(attr=called)) if called in CLOCK_READINGS:
                yield f"{where}:{node.lineno}: calls .{called}(), but pure code {CLOCK}"


def _cycles(imports: dict[str, set[str]]) -> Iterator[str]:
    """One line for each import that closes a circle between modules."""
    edges = {
        module: {found for target in targets if (found := _module_of(target, imports)) != module}
        for module, targets in imports.items()
    }
    done: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> Iterator[str]:
        if module in trail:
            yield "cycle: " + " -> ".join((*trail[trail.index(module) :], module))
        elif module not in done:
            for target in sorted(edges.get(module, ())):
                yield from walk(target, (*trail, module))
            done.add(module)

    for module in sorted(edges):
        yield from walk(module, ())


def _module_of(target: str, modules: dict[str, set[str]]) -> str:
    return target if target in modules else target.rpartition(".")[0]


CLEAN: dict[str, str] = {
    "src/tapeway/__init__.py": '__version__ = "0"\n',
    "src/tapeway/errors.py": "class Miss(Exception): ...\n",
    "src/tapeway/core/model/messages.py": (
        "from datetime import datetime\n"
        "from pathlib import PurePosixPath\n"
        "from urllib.parse import urlsplit\n"
        "from tapeway.errors import Miss\n"
    ),
    "src/tapeway/stores/memory.py": (
        "import asyncio, os, time\nfrom tapeway.core.model.messages import X\n"
    ),
    "src/tapeway/server/wiring.py": (
        "from tapeway.admin.routes import R\nfrom tapeway.stores.memory import M\n"
        "from tapeway.upstream.client import U\n"
    ),
    "src/tapeway/cli/serve.py": "from tapeway.server.lifecycle import serve\n",
    "src/tapeway/__main__.py": "from tapeway.cli.main import main\n",
}

PLANTED: list[tuple[str, str, str]] = [
    ("src/tapeway/errors.py", "from tapeway.core.json_text import X", "not import core.json_text"),
    (
        "src/tapeway/core/http/a.py",
        "from tapeway.ports import X",
        "core.http must not import ports",
    ),
    ("src/tapeway/core/http/a.py", "import tapeway.stores.file.store", "not import stores.file"),
    ("src/tapeway/core/http/a.py", "from tapeway.core.misses.a import X", "import core.misses"),
    (
        "src/tapeway/core/http/a.py",
        "def f() -> None:\n    from tapeway.formats.native.a import X\n",
        "core.http must not import formats.native",
    ),
    (
        "src/tapeway/engine/broker.py",
        "if TYPE_CHECKING:\n    from tapeway.upstream.client import X\n",
        "engine.broker must not import upstream",
    ),
    ("src/tapeway/formats/yaml/a.py", "from tapeway.formats.native.a import X", "formats.native"),
    ("src/tapeway/formats/errors.py", "from tapeway.stores.memory import X", "stores.memory"),
    ("src/tapeway/providers/a.py", "from tapeway.formats.errors import X", "formats.errors"),
    ("src/tapeway/ports.py", "from tapeway.engine.broker import X", "not import engine.broker"),
    ("src/tapeway/engine/journal.py", "from tapeway.engine.broker import X", "engine.broker"),
    ("src/tapeway/engine/recorder.py", "from tapeway.engine.broker import X", "engine.broker"),
    ("src/tapeway/engine/broker.py", "from tapeway.stores.memory import X", "stores.memory"),
    ("src/tapeway/settings/options.py", "from tapeway.cli.main import X", "must not import cli"),
    ("src/tapeway/upstream/a.py", "from tapeway.engine.broker import X", "engine.broker"),
    ("src/tapeway/stores/file/a.py", "from tapeway.engine.broker import X", "engine.broker"),
    ("src/tapeway/stores/file/a.py", "from tapeway.stores.sqlite.a import X", "stores.sqlite"),
    ("src/tapeway/admin/a.py", "from tapeway.server.proxy import X", "must not import server"),
    ("src/tapeway/server/a.py", "from tapeway.admin.routes import X", "must not import admin"),
    ("src/tapeway/server/a.py", "from tapeway.stores.memory import X", "stores.memory"),
    ("src/tapeway/server/a.py", "from tapeway.cli.main import X", "must not import cli"),
    ("src/tapeway/testing/a.py", "from tapeway.core.json_text import X", "core.json_text"),
    ("src/tapeway/__init__.py", "from tapeway.errors import Miss", "root must not import errors"),
    ("src/tapeway/extras/a.py", "", "'extras.a' has no row"),
    ("src/tapeway/cli/a.py", "from tapeway import errors", "imports the package root"),
    ("src/tapeway/cli/a.py", "import tapeway", "imports the package root"),
    ("tests/test_a.py", "from tapeway import errors", "imports the package root"),
    ("src/tapeway/cli/a.py", "from . import b", "relative import"),
    (
        "src/tapeway/embedded/a.py",
        "from tapeway.embedded.b import X",
        "import tapeway.embedded.b.X relatively",
    ),
    ("src/tapeway/embedded/a.py", "from ..cli.main import X", "embedded must not import cli"),
    ("src/tapeway/core/http/a.py", "import asyncio", "imports asyncio, but pure code decides"),
    ("src/tapeway/core/http/a.py", "from time import monotonic", "imports time, but"),
    ("src/tapeway/core/http/a.py", "import os.path", "imports os, but"),
    ("src/tapeway/core/http/a.py", "from pathlib import Path", "imports pathlib.Path, but"),
    ("src/tapeway/core/http/a.py", "import pathlib", "imports all of pathlib"),
    ("src/tapeway/core/http/a.py", "from urllib.request import urlopen", "urllib.request, but"),
    ("src/tapeway/formats/yaml/a.py", "import random", "imports random, but"),
    ("src/tapeway/formats/yaml/a.py", "from uuid import uuid4", "imports uuid, but"),
    ("src/tapeway/formats/yaml/a.py", "import socket", "imports socket, but"),
    ("src/tapeway/conversations/model.py", "import logging", "imports logging, but"),
    ("src/tapeway/providers/a.py", "async def f() -> None: ...", "is async, but"),
    ("src/tapeway/providers/a.py", "open('x')", "calls open, but"),
    ("src/tapeway/core/http/a.py", "datetime.now(UTC)", "calls .now(), but"),
    ("src/tapeway/server/utils.py", "", "'utils' names no noun"),
    ("src/tapeway/core/http/_base.py", "", "'_base' names no noun"),
    ("tests/helpers/peer.py", "", "'helpers' names no noun"),
    ("src/tapeway/core/http/a.py", "class Miss: ...", "class Miss is also in src/tapeway/errors"),
    ("src/tapeway/web/a.js", "class A {}\nclass A {}", "class A is also in src/tapeway/web/a.js"),
]


@pytest.mark.parametrize(
    ("path", "source", "complaint"), PLANTED, ids=[f"{path}: {why}" for path, _, why in PLANTED]
)
def test_a_planted_violation_is_found(
    tmp_path: Path, path: str, source: str, complaint: str
) -> None:
    _plant(tmp_path, CLEAN | {path: source})

    found = list(violations(tmp_path))

    assert any(complaint in line and line.startswith(path) for line in found), found


def test_a_module_that_is_exempt_from_purity_may_wait(tmp_path: Path) -> None:
    _plant(tmp_path, CLEAN | {"src/tapeway/conversations/transcript.py": "import asyncio\n"})

    assert list(violations(tmp_path)) == []


def test_a_circle_of_modules_is_found(tmp_path: Path) -> None:
    circle = {
        "src/tapeway/core/http/a.py": "from tapeway.core.http.b import X",
        "src/tapeway/core/http/b.py": "from tapeway.core.http.c import X",
        "src/tapeway/core/http/c.py": "from tapeway.core.http import a",
    }
    _plant(tmp_path, CLEAN | circle)

    line = "cycle: core.http.a -> core.http.b -> core.http.c -> core.http.a"
    assert list(violations(tmp_path)) == [line]


def test_a_folder_with_too_many_modules_is_found(tmp_path: Path) -> None:
    full = {f"src/tapeway/upstream/m{number}.py": "" for number in range(FULL_FOLDER)}
    _plant(tmp_path, CLEAN | full | {"src/tapeway/upstream/__init__.py": ""})
    assert list(violations(tmp_path)) == []

    _plant(tmp_path, {"src/tapeway/upstream/one_more.py": ""})

    assert [line[:31] for line in violations(tmp_path)] == ["src/tapeway/upstream: 16 module"]


def test_a_clean_tree_has_no_violations(tmp_path: Path) -> None:
    _plant(tmp_path, CLEAN)

    assert list(violations(tmp_path)) == []


def test_the_table_of_rooms_names_only_rooms_and_has_no_circle() -> None:
    settled: set[str] = set()
    while ready := {room for room, below in ROWS.items() if {*below} <= settled} - settled:
        settled |= ready

    assert settled == set(ROWS)


def _plant(root: Path, files: dict[str, str]) -> None:
    for name, source in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
