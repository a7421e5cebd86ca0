"""What markers ask for a test, and which are refused."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from tapeway.pytest_plugin.markers import RecordedTest, recorded_as


def item(*markers: pytest.MarkDecorator) -> pytest.Item:
    """A test with these markers, the nearest first."""

    def iter_markers(name: str) -> Iterator[pytest.Mark]:
        return (marker.mark for marker in markers if marker.mark.name == name)

    found = SimpleNamespace(nodeid="tests/test_a.py::test_x[1]", iter_markers=iter_markers)
    return cast("pytest.Item", found)


mark = pytest.mark.tapeway


def test_a_test_without_markers_has_its_own_cassette() -> None:
    assert recorded_as(item()) == RecordedTest("tests/test_a/test_x-1", False, None, None)


def test_the_nearest_marker_counts_for_each_argument() -> None:
    found = recorded_as(
        item(mark(mode="record"), mark(mode="replay", cassette="x", rules={"ignore": ["body.a"]}))
    )

    assert found == RecordedTest("x", True, "record", {"ignore": ["body.a"]})


def test_a_marker_lays_faults() -> None:
    fault = {"name": "busy", "do": "429"}

    assert recorded_as(item(mark(faults=[fault]))).faults == (fault,)


def test_a_template_leaves_the_parameters_out() -> None:
    assert recorded_as(item(mark(cassette="runs/{test}"))).cassette == "runs/tests/test_a/test_x"


@pytest.mark.parametrize(("mode", "seen"), [("auto", "replay"), ("record", "record")])
def test_in_ci_auto_is_replay(mode: str, seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")

    assert recorded_as(item(mark(mode=mode))).mode == seen


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        (mark(casette="x"), "takes cassette, mode, rules, faults by name, and no casette"),
        (mark("x"), "takes cassette, mode, rules, faults by name, and no 'x'"),
        (mark(mode="off"), "there is no mode 'off': use replay, record, auto, passthrough"),
        (mark(rules=["x"]), "rules must be a dict"),
        (mark(cassette="{name}"), "may hold {test} and no other braces"),
        (mark(cassette="{"), "may hold {test} and no other braces"),
        (mark(cassette="{test.x}"), "may hold {test} and no other braces"),
        (mark(rules={1: []}), "rules must be a dict"),
        (mark(faults={"name": "a"}), "faults must be a list of dicts"),
        (mark(faults=["429"]), "faults must be a list of dicts"),
    ],
)
def test_what_is_unknown_is_refused(marker: pytest.MarkDecorator, said: str) -> None:
    with pytest.raises(pytest.UsageError) as caught:
        recorded_as(item(marker))

    assert said in str(caught.value)
    assert "tests/test_a.py::test_x[1]" in str(caught.value)
