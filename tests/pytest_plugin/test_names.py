"""A test's cassette has the same name everywhere, and no other test has it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.http.routing import valid_cassette_name
from tapeway.pytest_plugin.names import cassette_name, distinct_names, scope_name


@pytest.mark.parametrize(
    ("node_id", "name"),
    [
        ("test_a.py::test_x", "test_a/test_x"),
        (
            "tests/api/test_a.py::TestTools::test_add[2-3]",
            "tests/api/test_a/TestTools.test_add-2-3",
        ),
        ("test_a.py::TestA::TestB::test_x", "test_a/TestA.TestB.test_x"),
        ("test_a.py::test_x[a b]", "test_a/test_x-a_b-186556"),
        ("test_a.py::test_x[a.]", "test_a/test_x-a_-345196"),
        ("a/b/c/d/e/f/g/h/test_a.py::test_x", "a/b/c/d/e/f/g.h.test_a/test_x-499366"),
        ("_private/con.py::nul", "x_private/xcon/xnul-763873"),
    ],
)
def test_a_name_is_path_module_class_test_and_parameters(node_id: str, name: str) -> None:
    assert cassette_name(node_id) == name
    assert valid_cassette_name(name)


def test_without_parameters_all_of_a_test_share_one() -> None:
    names = {cassette_name(f"test_a.py::test_x[{text}]", params=False) for text in ("1", "a b")}

    assert names == {"test_a/test_x"}


def test_a_name_that_was_cut_has_120_characters_and_stays_distinct() -> None:
    names = [cassette_name(f"test_a.py::test_{'x' * 200}[{character}]") for character in "ab"]

    assert [len(name.partition("/")[2]) for name in names] == [120, 120]
    assert names[0] != names[1]


def test_names_that_differ_in_case_alone_get_digits() -> None:
    names = {text: cassette_name(text) for text in ("a.py::test_X", "a.py::test_x", "a.py::test_y")}

    found = distinct_names(names)

    assert found["a.py::test_y"] == "a/test_y"
    assert len({name.lower() for name in found.values()}) == 3
    assert distinct_names({"a.py::test_x[1]": "shared", "a.py::test_x[2]": "shared"}) == {
        "a.py::test_x[1]": "shared",
        "a.py::test_x[2]": "shared",
    }


@pytest.mark.parametrize(
    ("scope", "node_id", "name"),
    [
        ("session", "", "fixtures.session"),
        ("package", "tests/api/__init__.py", "tests/api/fixtures.package"),
        ("package", "tests/api", "tests/api/fixtures.package"),
        ("module", "tests/test_a.py", "tests/test_a/fixtures.module"),
        ("class", "tests/test_a.py::TestX", "tests/test_a/fixtures.TestX"),
    ],
)
def test_a_wider_scope_has_a_cassette_of_its_own(scope: str, node_id: str, name: str) -> None:
    assert scope_name(scope, node_id) == name
    assert valid_cassette_name(name)


_DEVICES = {"con", "prn", "aux", "nul", "com1", "lpt9"}


@given(
    st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=12),
    st.text(min_size=1, max_size=150),
    st.text(max_size=150),
)
def test_any_node_has_a_name_that_every_disk_can_hold(
    folders: list[str], test: str, params: str
) -> None:
    path = "/".join(folder.replace("/", "_").replace(":", "_") for folder in folders)
    name = cassette_name(f"{path}.py::{test.replace('::', '_')}[{params}]")

    assert valid_cassette_name(name)
    for segment in name.split("/"):
        assert not segment.endswith(".")
        assert segment.partition(".")[0].lower() not in _DEVICES
