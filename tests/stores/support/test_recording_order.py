"""The order of interactions while recordings come in."""

from tapeway.stores.support.recording_order import RecordingOrder


def test_what_supersedes_takes_the_first_place_it_frees() -> None:
    order = RecordingOrder((index, f"old {index}") for index in range(5))

    order.add(5, "new", supersedes=[3, 1])

    assert order.items() == [(0, "old 0"), (5, "new"), (2, "old 2"), (4, "old 4")]
    assert 1 not in order
    assert order.next_free == 6


def test_what_supersedes_nothing_that_is_there_goes_to_the_end() -> None:
    order = RecordingOrder([(0, "a")])

    order.add(1, "b", supersedes=[7])

    assert order.items() == [(0, "a"), (1, "b")]


def test_of_two_at_the_same_time_the_one_with_the_earlier_index_is_first() -> None:
    order = RecordingOrder([(7, "a"), (2, "b")])

    order.add(9, "second")
    order.add(8, "first")
    order.add(10, "instead of second", supersedes=[9, 9])

    assert [item for _, item in order.items()] == ["a", "b", "first", "instead of second"]


def test_two_writers_that_gave_the_same_index_lose_nothing() -> None:
    order = RecordingOrder([(0, "a")])

    order.add(1, "b")
    order.add(1, "c")

    assert [item for _, item in order.items()] == ["a", "b", "c"]


def test_what_is_added_comes_after_what_was_there_whatever_its_index() -> None:
    order = RecordingOrder([(100, "a"), (101, "b"), (102, "c")])

    order.add(1, "new")

    assert [item for _, item in order.items()] == ["a", "b", "c", "new"]


def test_a_number_once_given_is_not_free_again() -> None:
    order = RecordingOrder([(4, "a")])
    order.add(2, "b", supersedes=[4])

    assert order.next_free == 5
