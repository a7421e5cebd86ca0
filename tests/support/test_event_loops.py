"""Which cases are taken on which event loop."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from tests.support import event_loops

FOLDER = Path("/tests/server")


def item(path: Path, test: str, case: int, loop: Callable[[], object] | None) -> Any:
    params = {} if loop is None else {"case": case, "loop": loop}
    nodeid = f"{path}::{test}[{case}]"
    return SimpleNamespace(path=path, nodeid=nodeid, callspec=SimpleNamespace(params=params))


@pytest.mark.parametrize(("nth", "cases"), [(4, [0, 4, 8]), (1, list(range(9)))])
def test_every_case_is_taken_on_uvloop_and_every_fourth_of_each_test_on_the_standard_one(
    nth: int, cases: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loops, "step", lambda _: nth)
    here, elsewhere = FOLDER / "test_x.py", Path("/tests/other/test_y.py")
    both = (uvloop.new_event_loop, asyncio.new_event_loop)
    inside = [item(here, test, n, loop) for test in "ab" for n in range(9) for loop in both]
    outside = [item(elsewhere, "c", n, asyncio.new_event_loop) for n in range(9)]
    items = [*inside, *outside, item(here, "d", 0, None)]
    left_out: list[Any] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items))

    before = list(items)
    event_loops.sample(cast("pytest.Config", SimpleNamespace(hook=hook)), items, FOLDER)

    standard = [
        element for element in items if asyncio.new_event_loop in element.callspec.params.values()
    ]
    taken = [(test.nodeid[-4], test.callspec.params["case"]) for test in standard]
    assert taken[: 2 * len(cases)] == [(test, case) for test in "ab" for case in cases]
    assert [element for element in items if element not in standard] == [
        test for test in before if asyncio.new_event_loop not in test.callspec.params.values()
    ]
    assert [element for element in items if element in outside] == outside
    assert sorted(map(id, [*items, *left_out])) == sorted(map(id, before))
