"""What is known by index is kept as in a dictionary, however the indexes follow each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.cassette.by_index import ByIndex

INDEXES = st.one_of(st.integers(0, 12), st.integers(0, 200), st.integers(0, 2**53))
STEPS = st.lists(st.tuples(st.sampled_from(["set", "remove"]), INDEXES), max_size=60)


@given(STEPS)
def test_it_holds_what_a_dictionary_holds(steps: list[tuple[str, int]]) -> None:
    expected: dict[int, str] = {}
    found: ByIndex[str] = ByIndex()
    for number, (step, index) in enumerate(steps):
        if step == "set":
            expected[index] = found[index] = str(number)
        else:
            assert found.pop(index, None) == expected.pop(index, None)
        assert len(found) == len(expected)
        assert (index in found) == (index in expected)
        assert found.get(index) == expected.get(index)
    assert dict(found) == expected
    assert sorted(found.to_list()) == sorted(expected.values())
    assert found.keys() == expected.keys()


def test_what_is_not_there_is_missing() -> None:
    found: ByIndex[str] = ByIndex()
    found[2] = "c"
    for index in (0, 1, 3, 10**6, -1):
        with pytest.raises(KeyError):
            found[index]
        with pytest.raises(KeyError):
            del found[index]
