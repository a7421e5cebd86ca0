"""What is in force changes by small steps, the same for one process and for many."""

import pytest

from tapeway.core.model.control import Control, with_active, with_mode, with_take

START = Control("auto", "default", takes=1, since=1)


def test_another_mode_begins_a_take_for_all() -> None:
    now = with_mode(START, "replay")

    assert (now.mode, now.takes, now.take_of("any")) == ("replay", 2, 2)


def test_the_same_mode_begins_none() -> None:
    assert with_mode(START, "auto") == START
    assert with_mode(START, "auto", "mine").takes == 1


def test_a_mode_of_its_own_begins_a_take_for_that_cassette_alone() -> None:
    now = with_mode(START, "replay", "mine")

    assert (now.mode_of("mine"), now.take_of("mine")) == ("replay", 2)
    assert (now.mode_of("other"), now.take_of("other")) == ("auto", 1)


def test_a_cassette_with_a_mode_of_its_own_goes_on_in_its_take() -> None:
    own = with_mode(START, "replay", "mine")

    now = with_mode(own, "passthrough")

    assert (now.mode_of("mine"), now.take_of("mine")) == ("replay", 2)
    assert (now.mode_of("other"), now.take_of("other"), now.takes) == ("passthrough", 3, 3)


def test_a_take_of_one_cassette_ends_with_the_next_of_all() -> None:
    one = with_take(START, "mine")
    assert (one.take_of("mine"), one.take_of("other"), one.takes) == (2, 1, 2)

    every = with_take(one)
    assert (every.take_of("mine"), every.take_of("other"), every.takes) == (3, 3, 3)


@pytest.mark.parametrize(("mode", "other"), [(None, 1), ("auto", 1), ("replay", 2)])
def test_another_active_cassette_begins_one_take_whatever_the_mode(
    mode: str | None, other: int
) -> None:
    now = with_active(START, "mine", mode)  # type: ignore[arg-type]  # a mode or None

    assert (now.active, now.takes, now.take_of("mine"), now.take_of("other")) == (
        *("mine", 2, 2),
        other,
    )


def test_inserting_with_a_mode_takes_away_the_cassettes_own() -> None:
    own = with_mode(START, "record", "mine")

    now = with_active(own, "mine", "replay")

    assert (now.modes, now.mode_of("mine"), now.mode) == ({}, "replay", "replay")
