"""Libraries are used by their public names; `tests/private_names.py` holds the exceptions.

A name is private if it begins with an underscore, unless its library documents it. What the source
itself defines is its own. ruff's SLF001 sees no imports, no names that are texts, and nothing that a
class takes or overrides of its base.
"""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from aiohttp.client_proto import ResponseHandler

from tests.private_names import ALLOWED, MOST

SOURCE = Path(__file__).parents[1] / "src/tapeway"
PRIVATE = re.compile(r"_(?!_\w+__$)\w+")
DOCUMENTED = frozenset({"_replace", "_asdict", "_fields", "_make", "_exit"})
"""Of named tuples, and `os._exit`."""
SETS = frozenset({"setattr", "delattr", "__setattr__"})
BY_NAME = SETS | {"getattr", "hasattr", "__getattribute__"}
OPTIONAL = "tapeway.integrations.dspy"
"""Needs an environment of its own."""


def names(tree: ast.AST) -> Iterator[tuple[object, bool]]:
    """The names that a file uses of objects and modules, and whether it asks `self` or `cls`."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=value, attr=name):
                yield name, isinstance(value, ast.Name) and value.id in ("self", "cls")
            case ast.ImportFrom(module=str(name)) | ast.alias(name=name):
                yield from ((part, False) for part in name.split("."))
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=values):
                if name in BY_NAME:
                    # A name that is set may come from anywhere in the file.
                    text = any(isinstance(value, ast.Constant) for value in values[:2])
                    within = values if text or name not in SETS else [tree]
                    found = [part for value in within for part in ast.walk(value)]
                    yield from (
                        (part.value, False) for part in found if isinstance(part, ast.Constant)
                    )


def defined(tree: ast.AST) -> Iterator[object]:
    """What a file defines: functions, classes, variables, and attributes of its own objects."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                yield name
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=value):
                yield from (
                    part.value for part in ast.walk(value) if isinstance(part, ast.Constant)
                )


def is_private(name: object) -> bool:
    return isinstance(name, str) and bool(PRIVATE.fullmatch(name)) and name not in DOCUMENTED


def foreign(tree: ast.AST, known: frozenset[object] = frozenset()) -> set[object]:
    """The private names in a file that neither it nor, for its own objects, others (`known`) define."""
    own = {*defined(tree)}
    used = {name for name, of_own in names(tree) if not (of_own and name in known)}
    return {*filter(is_private, used - own)}


def inherited(kind: type) -> set[str]:
    """The private names of the foreign classes above a class that it uses or overrides."""
    package = kind.__module__.partition(".")[0]
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] != package]
    theirs = set[str]().union(*map(words, bases))
    return words(kind) & theirs if theirs else theirs


@cache
def words(kind: type) -> set[str]:
    """The private names in a class as it is written, or of its members if that is not in Python."""
    try:
        text = inspect.getsource(kind)
    except (OSError, TypeError):
        text = " ".join(vars(kind))
    return {*filter(is_private, re.findall(r"\b_\w+", text))}


def test_the_list_is_short_and_every_name_on_it_has_its_reason() -> None:
    assert len(ALLOWED) <= MOST
    assert all(len(reason) > 10 for reason in ALLOWED.values())


def test_the_source_uses_the_private_names_on_the_list_and_no_others() -> None:
    trees = {path: ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py")}
    known = frozenset(name for tree in trees.values() for name in defined(tree))

    found = {
        (path.relative_to(SOURCE).as_posix(), name)
        for path, tree in trees.items()
        for name in foreign(tree, known)
    }

    assert found == set(ALLOWED)


def test_no_class_uses_or_overrides_what_is_private_to_the_library_it_inherits_from() -> None:
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages([str(SOURCE)], "tapeway.")
        if not module.name.startswith(OPTIONAL)
    ]
    found = [
        (module.__name__, name, inherited(kind))
        for module in modules
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and kind.__module__ == module.__name__ and inherited(kind)
    ]

    assert found == []


@pytest.mark.parametrize(
    ("planted", "name"),
    [
        ("connector._conns = {}", "_conns"),
        ("held.protocol._parser.feed(b'')", "_parser"),
        ("super()._make_server()", "_make_server"),
        ("self._neither_here_nor_elsewhere", "_neither_here_nor_elsewhere"),
        ("request._Request__writer", "_Request__writer"),
        ("from aiohttp.helpers import _EXC_SENTINEL", "_EXC_SENTINEL"),
        ("from aiohttp._websocket import reader", "_websocket"),
        ("import aiohttp._http_parser", "_http_parser"),
        ("getattr(content, '_buffer')", "_buffer"),
        ("object.__setattr__(value, '_index', {})", "_index"),
        ("for name in ('_engine',):\n    setattr(dspy, name, None)", "_engine"),
    ],
)
def test_a_private_name_is_found(planted: str, name: str) -> None:
    assert foreign(ast.parse(planted)) == {name}


@pytest.mark.parametrize(
    "harmless",
    [
        "_mine = 1\nmodule._mine",
        "class Own:\n    __slots__ = ('_kept',)\n\ndef read(own):\n    return own._kept",
        "class Own:\n    def set(self):\n        self._kept = 1\n\ndef read(own):\n    return own._kept",
        "self._of_its_base",
        "pair._replace(a=1)",
        "kind.__dict__",
        "entry.get('_encoding')",
    ],
)
def test_what_is_our_own_or_documented_is_not(harmless: str) -> None:
    assert foreign(ast.parse(harmless), frozenset({"_of_its_base"})) == set()


def test_what_a_class_overrides_or_uses_of_its_base_is_found() -> None:
    class Handler(ResponseHandler):
        def _drop_timeout(self) -> None:
            self._own = len(self._tail)

    assert inherited(Handler) == {"_drop_timeout", "_tail"}
