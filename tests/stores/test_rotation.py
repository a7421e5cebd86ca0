"""By default tests of every store take every second one, and all stores are used all the same."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.stores import rotation
from tests.stores.contract.kinds import KINDS
from tests.stores.contract.matrix import FOLDER


@pytest.fixture(autouse=True)
def by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every second store, also where this file itself is run under `--all`."""
    monkeypatch.setattr(rotation, "step", lambda nth: nth)


def item(test: str, path: Path = Path("/tests/test_x.py"), **params: Any) -> Any:
    value = next(iter(params.values()))
    call = SimpleNamespace(params=params)
    return SimpleNamespace(path=path, nodeid=f"{path}::{test}[{value}]", callspec=call)


def taken(items: list[Any]) -> list[tuple[str, str]]:
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    rotation.sample(cast("pytest.Config", SimpleNamespace(hook=hook)), items)
    return [tuple(element.nodeid.partition("::")[2].rstrip("]").split("[")) for element in items]


def test_every_second_store_is_taken_and_another_test_takes_the_others() -> None:
    found = taken([item(test, kind=kind) for test in "ab" for kind in KINDS])

    names = [kind.name for kind in KINDS]
    assert found == [("a", name) for name in names[::2]] + [("b", name) for name in names[1::2]]


def test_a_store_may_be_named_by_a_text() -> None:
    found = taken([item("a", store=name) for name in ("one", "two", "three", "four")])

    assert found == [("a", "one"), ("a", "three")]


def test_a_test_of_some_stores_and_one_of_none_is_run_on_all_it_names() -> None:
    items = [*[item("a", store=name) for name in "xyz"], *[item("b", size=n) for n in range(9)]]

    assert len(taken(items)) == 12


def test_what_stores_promise_is_shown_on_each() -> None:
    path = FOLDER / "test_order.py"

    assert len(taken([item("a", path, kind=kind) for kind in KINDS])) == len(KINDS)


def test_all_of_them_are_taken_under_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "step", lambda nth: 1)

    assert len(taken([item("a", kind=kind) for kind in KINDS])) == len(KINDS)
