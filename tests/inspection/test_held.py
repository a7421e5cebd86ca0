"""The recordings of a cassette, kept for looking at."""

from tapeway.inspection.held import HeldRecordings
from tests.support.exchanges import interaction


def test_recordings_are_found_by_index() -> None:
    held = HeldRecordings([interaction(index=3), interaction(index=5)])

    assert [held.get(at) is None for at in (3, 4, 5)] == [False, True, False]
    assert held.size > 2 * len(interaction().response.body)


def test_of_a_cassette_beyond_the_bound_nothing_is_kept() -> None:
    held = HeldRecordings([interaction(index=3), interaction(index=5)], most=1500)

    assert (held.get(3), held.size) == (None, 0)
