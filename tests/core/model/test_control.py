"""What is in force changes by small steps, the same for one process and for many."""

from collections.abc import Callable

import pytest

from tapeway.core.model.control import (
    Control,
    Slot,
    with_active,
    with_mode,
    with_slot,
    with_take,
    without_modes,
    without_slot,
    without_takes,
)

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


def test_a_cassette_follows_the_mode_for_all_again_in_a_new_take() -> None:
    own = with_mode(with_mode(START, "record", "mine"), "auto", "same")

    now = without_modes(own, ["mine", "same", "never"])

    assert (now.modes, now.takes) == ({}, 3)
    assert [now.take_of(name) for name in ("mine", "same", "never", "other")] == [3, 1, 1, 1]


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


def test_a_slot_has_a_take_of_its_own_in_its_cassette() -> None:
    now = with_slot(with_slot(START, "w0", "mine"), "w1", "mine", "replay")

    assert now.slots == {"w0": Slot("mine", None, 2, 2), "w1": Slot("mine", "replay", 3, 3)}
    assert (now.take_of("mine"), now.takes_of("mine"), now.takes) == (1, (1, 2, 3), 3)


def test_what_a_slot_used_stays_used_when_it_points_elsewhere_or_is_removed() -> None:
    now = with_slot(with_slot(START, "w0", "mine"), "w0", "other")
    assert (now.takes_of("mine"), now.takes_of("other")) == ((1, 2), (1, 3))

    now = without_slot(now, "w0")
    assert (now.slots, now.takes_of("other")) == ({}, (1, 3))


@pytest.mark.parametrize(
    "change",
    [
        lambda now: with_take(now, "mine"),
        with_take,
        lambda now: with_mode(now, "replay"),
        lambda now: with_mode(now, "replay", "mine"),
        lambda now: with_active(now, "mine"),
        lambda now: with_active(now, "mine", "replay"),
    ],
)
def test_with_the_take_of_a_cassette_those_of_its_slots_begin_anew(
    change: Callable[[Control], Control],
) -> None:
    now = change(with_slot(START, "w0", "mine", "record"))

    own, of_slot = now.takes_of("mine")
    assert 2 < own < of_slot == now.slots["w0"].take <= now.takes
    assert now.slots["w0"].mode == "record"


def test_a_slot_of_a_cassette_with_a_mode_of_its_own_goes_on_in_its_take() -> None:
    before = with_slot(with_mode(START, "replay", "mine"), "w0", "mine")

    now = with_mode(before, "passthrough")

    assert now.takes_of("mine") == before.takes_of("mine") == (2, 3)


def test_the_takes_of_some_cassettes_are_forgotten_and_no_others() -> None:
    before = START
    for name in ("gone", "pointed-at", "kept"):
        before = with_take(before, name)
    for name in ("gone", "never-rewound", "pointed-at"):
        before = with_slot(before, "w0", name)

    now = without_takes(before, ["gone", "pointed-at", "unknown"])

    assert now.names == {"pointed-at", "kept", "never-rewound"}
    assert now.takes_of("gone") == (1,)
    for name in now.names:
        assert now.takes_of(name) == before.takes_of(name)
    assert without_takes(before, ["unknown"]).takes_of("gone") == before.takes_of("gone")
