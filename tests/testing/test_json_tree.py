import pytest

from tapeway.testing.request import at, int_at, list_at, objects_at, text_at

TREE = {"a": [{"b": "x"}, 7, True], "n": 3}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (("a", 0, "b"), "x"),
        (("a", -1), True),
        (("a", 3), None),
        (("a", "b"), None),
        (("n", "deeper"), None),
        ((), TREE),
    ],
)
def test_a_path_leads_to_its_value_or_to_none(path: tuple[str | int, ...], found: object) -> None:
    assert at(TREE, *path) == found


def test_a_value_of_another_type_reads_as_absent() -> None:
    assert text_at(TREE, "n") == ""
    assert int_at(TREE, "a", 2, default=9) == 9
    assert list_at(TREE, "n") == []
    assert list(objects_at(TREE, "a")) == [{"b": "x"}]
