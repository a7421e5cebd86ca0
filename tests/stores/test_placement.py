"""The order of recordings."""

from tapeway.paging import Placement


def test_what_supersedes_takes_the_first_place_it_frees() -> None:
    placement = Placement((index, f"old {index}") for index in range(5))

    placement.add(5, "new", supersedes=[3, 1])

    assert placement.items() == [(0, "old 0"), (5, "new"), (2, "old 2"), (4, "old 4")]
    assert 1 not in placement
    assert placement.next_free == 6


def test_what_supersedes_nothing_that_is_there_goes_to_the_end() -> None:
    placement = Placement([(0, "a")])

    placement.add(1, "b", supersedes=[7])

    assert placement.items() == [(0, "a"), (1, "b")]


def test_a_number_once_given_is_not_free_again() -> None:
    placement = Placement([(4, "a")])
    placement.add(2, "b", supersedes=[4])

    assert placement.next_free == 5
