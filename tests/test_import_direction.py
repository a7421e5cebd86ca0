"""Who may import whom, and what stays pure. `tests/layers.py` has the table of rooms.

A rule that cannot be seen to fail guards nothing, so each has a planted violation at the end.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.layers import ROOT as ROOT_ROOMS
from tests.layers import ROWS, allowed, room_of

PACKAGE = "tapeway"
SOURCES = {
    path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
    for root in [Path(__file__).parents[1] / "src" / PACKAGE]
    for path in sorted(root.rglob("*.py"))
}
MOVABLE = ("embedded", "pytest_plugin")
"""Folders that the package tapeway-pytest has too, under its own name: their imports are relative."""

PURE = ("core", "formats", "providers", "conversations")
WAITS = "conversations/transcript.py"
"""Reads bodies from files while it puts a conversation together."""
IMPURE = frozenset({
    "aiohttp", "asyncio", "click", "concurrent", "fcntl", "fileinput", "getpass", "glob",
    "http.client", "http.server", "httpx", "importlib", "logging", "mmap", "multiprocessing",
    "os", "pathlib.Path", "pathlib.PosixPath", "platform", "prometheus_client", "random",
    "requests", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl",
    "subprocess", "sys", "tempfile", "threading", "time", "urllib.request", "uuid", "uvloop",
    "warnings", "zoneinfo",
})  # fmt: skip
IMPURE_WHOLE = frozenset({"pathlib", "http", "urllib"})
"""Whole modules that let impure members through."""
IMPURE_CALLS = frozenset({"__import__", "breakpoint", "input", "open", "print"})
CLOCK_READINGS = frozenset({"now", "utcnow", "today"})


def test_imports_go_one_way_and_what_is_pure_stays_so() -> None:
    assert {"errors.py", "core/model/messages.py", "ports.py"} <= SOURCES.keys()
    assert list(violations(SOURCES)) == []


def violations(sources: Mapping[str, str]) -> Iterator[str]:
    """Each breach in the files of the package, as one line that says where and why."""
    graph: dict[str, list[str]] = {}
    for where, text in sources.items():
        tree = ast.parse(text, where)
        found = list(_imports(where, tree))
        module = _dotted(where)
        own = [(name[8:], line) for name, line, _ in found if name.startswith(f"{PACKAGE}.")]
        graph[module] = [name for name, _ in own]
        yield from _wrong_direction(where, module, own)
        for name, line, _ in found:
            if name == PACKAGE:
                yield f"{where}:{line}: imports the package root, name the module"
        if where.startswith(MOVABLE):
            for name, line, relative in found:
                if not relative and name.partition(".")[0] == PACKAGE:
                    yield f"{where}:{line}: tapeway-pytest has this file too, import {name} relatively"
        if where.startswith(PURE) and where != WAITS:
            yield from _impurities(where, tree, found)
    yield from _cycles(graph)


def _dotted(where: str) -> str:
    return where.removesuffix(".py").removesuffix("__init__").rstrip("/").replace("/", ".")


def _imports(where: str, tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """Every imported name in full, its line, and whether the import is relative.

    An import inside a function or under `TYPE_CHECKING` is a dependency like any other.
    """
    folder = (PACKAGE, *Path(where).parent.parts)
    left: list[ast.AST] = [tree]  # statements alone: there are ten times more expressions
    while left:
        node = left.pop()
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            left.extend(getattr(node, name, ()))
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, node.lineno, False) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                above = folder[: len(folder) - level + 1] if level else ()
                start = ".".join([*above, *([module] if module else [])])
                yield from ((f"{start}.{alias.name}", node.lineno, level > 0) for alias in names)


def _wrong_direction(where: str, module: str, own: list[tuple[str, int]]) -> Iterator[str]:
    room = room_of(module)
    if room is None and module:
        yield f"{where}: '{module}' has no row in the table of rooms"
        return
    below = allowed(room) if room else ROOT_ROOMS
    for name, line in own:
        target = room_of(name)
        if target not in below:
            yield f"{where}:{line}: {room or 'the package root'} must not import {target or name}"


def _impurities(where: str, tree: ast.Module, found: list[tuple[str, int, bool]]) -> Iterator[str]:
    for name, line, _ in found:
        if name in IMPURE_WHOLE or any(f"{name}.".startswith(f"{bad}.") for bad in IMPURE):
            yield f"{where}:{line}: imports {name}, but is pure"
    for node in ast.walk(tree):
        match node:
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                yield f"{where}:{node.lineno}: is async, but pure code never waits"
            case ast.Call(func=ast.Name(id=called)) if called in IMPURE_CALLS:
                yield f"{where}:{node.lineno}: calls {called}, but is pure"
            case ast.Call(func=ast.Attribute(attr=called)) if called in CLOCK_READINGS:
                yield f"{where}:{node.lineno}: calls .{called}(), but pure code is given the time"


def _cycles(graph: Mapping[str, list[str]]) -> Iterator[str]:
    """One line for each import that closes a circle between modules."""
    done: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> Iterator[str]:
        if module in trail:
            yield "cycle: " + " -> ".join((*trail[trail.index(module) :], module))
        elif module not in done:
            targets = {name if name in graph else name.rpartition(".")[0] for name in graph[module]}
            for target in sorted((targets & graph.keys()) - {module}):
                yield from walk(target, (*trail, module))
            done.add(module)

    for module in sorted(graph):
        yield from walk(module, ())


PLANTED = [
    ("errors.py", "from tapeway.core.json_text import X", "not import core.json_text"),
    ("core/http/a.py", "from tapeway.ports import X", "core.http must not import ports"),
    ("core/http/a.py", "import tapeway.stores.file.store", "not import stores.file"),
    ("core/http/a.py", "def f():\n    from tapeway.formats.native.a import X", "formats.native"),
    (
        "engine/broker.py",
        "if TYPE_CHECKING:\n    from tapeway.upstream.client import X",
        "upstream",
    ),
    ("ports.py", "from tapeway.engine.broker import X", "not import engine.broker"),
    ("engine/broker.py", "from tapeway.stores.memory import X", "stores.memory"),
    ("stores/file/a.py", "from tapeway.stores.sqlite.a import X", "stores.sqlite"),
    ("server/a.py", "from tapeway.admin.routes import X", "must not import admin"),
    ("testing/a.py", "from tapeway.core.json_text import X", "core.json_text"),
    ("__init__.py", "from tapeway.errors import Miss", "root must not import errors"),
    ("cli/a.py", "import tapeway", "imports the package root"),
    ("cli/a.py", "from tapeway import Deck", "cli must not import Deck"),
    ("extras/a.py", "", "'extras.a' has no row"),
    ("embedded/a.py", "from tapeway.embedded.b import X", "import tapeway.embedded.b.X relatively"),
    ("embedded/a.py", "from ..cli.main import X", "embedded must not import cli"),
    ("core/http/a.py", "from time import monotonic", "imports time.monotonic, but"),
    ("core/http/a.py", "import os.path", "imports os.path, but"),
    ("core/http/a.py", "import pathlib", "imports pathlib, but"),
    ("providers/a.py", "async def f() -> None: ...", "is async, but"),
    ("providers/a.py", "open('x')", "calls open, but"),
    ("core/http/a.py", "datetime.now(UTC)", "calls .now(), but"),
]


@pytest.mark.parametrize(("where", "source", "complaint"), PLANTED)
def test_a_planted_violation_is_found(where: str, source: str, complaint: str) -> None:
    found = list(violations({where: source}))

    assert len(found) == 1
    assert found[0].startswith(where)
    assert complaint in found[0]


def test_what_is_allowed_is_not_found() -> None:
    pure = "from pathlib import PurePosixPath\nfrom tapeway.errors import Miss\n"

    assert list(violations({"core/model/a.py": pure, WAITS: "import asyncio"})) == []


def test_a_circle_of_modules_is_found() -> None:
    circle = {
        f"core/http/{one}.py": f"from tapeway.core.http.{other} import X"
        for one, other in ("ab", "bc", "ca")
    }

    line = "cycle: core.http.a -> core.http.b -> core.http.c -> core.http.a"
    assert list(violations(circle)) == [line]


def test_the_table_of_rooms_names_only_rooms_and_has_no_circle() -> None:
    settled: set[str] = set()
    while ready := {room for room, below in ROWS.items() if {*below} <= settled} - settled:
        settled |= ready

    assert settled == set(ROWS)
