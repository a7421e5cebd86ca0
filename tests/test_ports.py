"""A store says by `facts` and `shared` what it is: nothing asks by `isinstance`."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "tapeway"
PORTS = (PACKAGE / "ports.py").read_text(encoding="utf-8")


STORES = {"FileStore", "MemoryStore", "PostgresStore", "RemoteStore", "SqliteStore"}


@cache
def protocols() -> set[str]:
    """The names of all Protocols of `ports.py`, and of the stores that implement them."""
    return STORES | {
        node.name
        for node in ast.parse(PORTS).body
        if isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases)
    }


def asked_by_type(source: str) -> Iterator[tuple[int, str]]:
    """Where a module asks whether something is of a Protocol of `ports.py`."""
    tree = ast.parse(source)
    names = {protocol: protocol for protocol in protocols()}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "tapeway.ports":
            names |= {
                other_name.asname: other_name.name
                for other_name in node.names
                if other_name.asname is not None
            }
    for node in ast.walk(tree):
        asked: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            asked = node.args[1:] if node.func.id in ("isinstance", "issubclass") else []
        elif isinstance(node, ast.MatchClass):
            asked = [node.cls]
        for part in [inner for expr in asked for inner in ast.walk(expr)]:
            if isinstance(part, ast.Name | ast.Attribute):
                name = part.id if isinstance(part, ast.Name) else part.attr
                if names.get(name) in protocols():
                    yield part.lineno, names[name]


def test_nothing_asks_a_store_by_its_type() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, name in asked_by_type(path.read_text(encoding="utf-8"))
    ]

    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(store, SharedStore)",
        "isinstance(store, (int, SharedStore))",
        "isinstance(store, int | LiveResponder)",
        "isinstance(store, ports.SharedStore)",
        "issubclass(kind, CassetteStore)",
        "from tapeway.ports import CassetteStore as Store\nisinstance(store, Store)",
        "match store:\n    case SharedStore(): ...",
        "isinstance(store, FileStore)",
    ],
)
def test_a_planted_question_is_found(source: str) -> None:
    assert len(list(asked_by_type(source))) == 1


def test_a_question_about_another_type_is_none() -> None:
    assert list(asked_by_type("isinstance(item, Interaction)\nstore.shared")) == []
