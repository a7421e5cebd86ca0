"""Where a key stands in a take can be put into words, and gone on from by another process."""

from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.cassette.cursors import Take

KEY, OTHER = b"openai\0" + b"k" * 32, b"openai\0" + b"o" * 32
MARKS = st.binary(max_size=20)
STEPS = st.lists(st.tuples(st.sampled_from([KEY, OTHER]), MARKS, st.integers(0, 9), st.booleans()))


@given(STEPS)
def test_a_key_goes_on_elsewhere_where_it_stood(
    steps: list[tuple[bytes, bytes, int, bool]],
) -> None:
    take, own = Take(3), set[int]()
    for key, mark, index, recorded in steps:
        index = index * 2 + (key == KEY)
        if recorded:
            take.note_recorded(key, key + mark, mark, index)
        else:
            take.ask(key + mark, mark)
            take.touched.add(index)
            take.again[index] += 1
        if key == KEY:
            own.add(index)

    elsewhere = Take(3)
    elsewhere.restore(KEY, take.state(KEY, own))

    assert elsewhere.state(KEY, own) == take.state(KEY, own)
    assert elsewhere.touched == take.touched & own
    assert elsewhere.cursors == {at: n for at, n in take.cursors.items() if at.startswith(KEY)}
    assert elsewhere.recorded == {pair for pair in take.recorded if pair[0] == KEY}
    assert all(elsewhere.again[each] == take.again[each] for each in own)
    for _, mark, _, _ in steps:
        assert elsewhere.asked_with(KEY + mark) == take.asked_with(KEY + mark)


def test_a_key_nothing_was_asked_of_says_nothing() -> None:
    take = Take(1)

    take.restore(KEY, Take(1).state(KEY, ()))

    assert (take.cursors, take.touched, take.again) == ({}, set(), {})
    assert (take.recorded, take.marks) == (set(), {})
