"""Libraries are used by their public names; the exceptions stand in `tests/private_names.py`.

A name is private if it begins with an underscore, unless its library documents it. What the source
itself defines is its own.
"""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler

from tests.private_names import ALLOWED, MOST

SOURCE = Path(__file__).parents[1] / "src/tapeway"
DOCUMENTED = frozenset({"_replace", "_asdict", "_fields", "_make", "_exit"})
"""Of named tuples, and `os._exit`."""
BY_NAME = frozenset({"getattr", "setattr", "hasattr", "delattr", "__setattr__", "__getattribute__"})
OPTIONAL = "tapeway.integrations.dspy"
"""Needs an environment of its own."""


def is_private(name: str) -> bool:
    dunder = name.startswith("__") and name.endswith("__")
    return name.startswith("_") and name != "_" and not dunder and name not in DOCUMENTED


def own_names(tree: ast.AST) -> set[str]:
    """What a file defines: functions, classes, variables, and attributes of its own objects."""
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=value):
                found |= set(texts_of(value))
    return found


def texts_of(tree: ast.AST) -> list[str]:
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def foreign_names(tree: ast.AST, known: frozenset[str] = frozenset()) -> Iterator[tuple[int, str]]:
    """The lines and private names in a file that neither it nor, for its own objects, others define.

    `known` are the names that any file of the source defines.
    """
    own = own_names(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=value, attr=name) if is_private(name):
                is_self = isinstance(value, ast.Name) and value.id in ("self", "cls")
                if name not in own and not (is_self and name in known):
                    yield node.lineno, name
            case ast.Import(names=names):
                for imported in names:
                    yield from ((node.lineno, part) for part in private_parts(imported.name))
            case ast.ImportFrom(module=module, names=names):
                for name in (module or "", *[imported.name for imported in names]):
                    yield from ((node.lineno, part) for part in private_parts(name))
    yield from ((line, name) for line, name in names_as_text(tree) if name not in own)


def private_parts(dotted: str) -> list[str]:
    return [part for part in dotted.split(".") if is_private(part)]


def names_as_text(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Private names given to `getattr` and the like; all texts, where one is given a variable."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    by_name = [call for call in calls if called(call) in BY_NAME and len(call.args) > 1]
    at = {id(call): 1 if called(call) != "__getattribute__" else 0 for call in by_name}
    dynamic = any(not is_text(call.args[at[id(call)]]) for call in by_name if called(call) in SETS)
    texts = [*ast.walk(tree)] if dynamic else [call.args[at[id(call)]] for call in by_name]
    for node in texts:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value
            if name.isidentifier() and is_private(name):
                yield node.lineno, name


SETS = frozenset({"setattr", "__setattr__", "delattr"})


def called(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def inherited_names(kind: type) -> set[str]:
    """The private names of foreign classes above a class that it uses or overrides."""
    theirs = {
        name
        for base in kind.__mro__
        if not base.__module__.startswith(kind.__module__.partition(".")[0])
        for name in names_of(base)
    }
    tree = class_tree(kind)
    used = own_names(tree)
    used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return {name for name in used & theirs if is_private(name)}


@cache
def names_of(kind: type) -> frozenset[str]:
    names = {*vars(kind), *own_names(class_tree(kind))}
    return frozenset(filter(is_private, names))


def class_tree(kind: type) -> ast.AST:
    """The class as it is written; nothing where it is not written in Python."""
    try:
        classes = classes_of_file(inspect.getfile(kind))
    except (OSError, TypeError):
        return ast.Module([], [])
    return classes.get(kind.__name__, ast.Module([], []))


@cache
def classes_of_file(path: str) -> dict[str, ast.AST]:
    """The classes in a file by their names. (`inspect.getsource` would read the file for each.)"""
    if not path.endswith(".py"):
        return {}
    tree = ast.parse(Path(path).read_text("utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def classes_of_the_source() -> Iterator[tuple[str, type]]:
    for found in pkgutil.walk_packages([str(SOURCE)], "tapeway."):
        if found.name.startswith(OPTIONAL):
            continue
        module = importlib.import_module(found.name)
        for kind in vars(module).values():
            if inspect.isclass(kind) and kind.__module__ == found.name:
                file = Path(inspect.getfile(kind)).relative_to(SOURCE)
                yield file.as_posix(), kind


def test_the_list_is_short_and_every_name_on_it_has_its_reason() -> None:
    assert len(ALLOWED) <= MOST
    assert all(len(reason) > 10 for reason in ALLOWED.values())


def test_the_source_uses_the_private_names_on_the_list_and_no_others() -> None:
    files = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}
    trees = {name: ast.parse(file.read_text("utf-8")) for name, file in files.items()}
    known = frozenset[str]().union(*map(own_names, trees.values()))

    found = {(file, name) for file, tree in trees.items() for _, name in foreign_names(tree, known)}

    assert found == set(ALLOWED)


def test_no_class_uses_or_overrides_what_is_private_to_the_library_it_inherits_from() -> None:
    found = [
        (file, kind.__name__, name)
        for file, kind in classes_of_the_source()
        for name in inherited_names(kind)
    ]

    assert found == []


@pytest.mark.parametrize(
    ("planted", "name"),
    [
        ("connector._conns", "_conns"),
        ("connector._conns = {}", "_conns"),
        ("held.protocol._parser.feed(b'')", "_parser"),
        ("make()._private", "_private"),
        ("super()._make_server()", "_make_server"),
        ("self._neither_here_nor_elsewhere", "_neither_here_nor_elsewhere"),
        ("request._Request__writer", "_Request__writer"),
        ("from aiohttp.helpers import _EXC_SENTINEL", "_EXC_SENTINEL"),
        ("from aiohttp._websocket import reader", "_websocket"),
        ("import aiohttp._http_parser", "_http_parser"),
        ("getattr(content, '_buffer')", "_buffer"),
        ("setattr(content, '_buffer', 1)", "_buffer"),
        ("object.__setattr__(value, '_index', {})", "_index"),
        ("for name in ('_engine',):\n    setattr(dspy, name, None)", "_engine"),
    ],
)
def test_a_private_name_is_found(planted: str, name: str) -> None:
    assert [found for _, found in foreign_names(ast.parse(planted))] == [name]


@pytest.mark.parametrize(
    "harmless",
    [
        "_mine = 1\nmodule._mine",
        "class Own:\n    __slots__ = ('_kept',)\n\ndef read(own):\n    return own._kept",
        "class Own:\n    def set(self):\n        self._kept = 1\n\ndef read(own):\n    return own._kept",
        "self._of_its_base",
        "pair._replace(a=1)",
        "os._exit(1)",
        "kind.__dict__",
        "entry.get('_encoding')",
        "getattr(value, 'public', None)",
    ],
)
def test_what_is_our_own_or_documented_is_not(harmless: str) -> None:
    assert [*foreign_names(ast.parse(harmless), frozenset({"_of_its_base"}))] == []


def test_what_a_class_overrides_or_uses_of_its_base_is_found() -> None:
    class Connector(aiohttp.TCPConnector):
        def _create_connection(self, *_: object) -> None:  # type: ignore[override]
            self._own = 1

    class Handler(ResponseHandler):
        def size(self) -> int:
            return len(self._tail)

    assert inherited_names(Connector) == {"_create_connection"}
    assert inherited_names(Handler) == {"_tail"}
