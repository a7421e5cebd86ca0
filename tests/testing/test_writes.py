from hypothesis import given
from hypothesis import strategies as st

from tapeway.testing.answer import awkward_writes

PLAIN = [b"data: %d\n\n" % number for number in range(8)]


def test_every_second_of_four_events_shares_a_write_with_its_follower() -> None:
    assert awkward_writes(PLAIN)[1] == PLAIN[1] + PLAIN[2]


def test_every_last_of_four_events_is_cut_in_its_middle() -> None:
    assert awkward_writes(PLAIN)[2:4] == (b"data", b": 3\n\n")


def test_a_character_outside_ascii_is_cut_in_two() -> None:
    event = "data: né\n\n".encode()

    assert awkward_writes([event]) == (b"data: n\xc3", b"\xa9\n\n")


def test_a_last_event_that_waits_for_a_follower_is_sent_all_the_same() -> None:
    assert awkward_writes(PLAIN[:2]) == tuple(PLAIN[:2])


@given(st.lists(st.text(min_size=1).map(str.encode)))
def test_no_byte_is_lost_and_no_write_is_empty(events: list[bytes]) -> None:
    writes = awkward_writes(events)

    assert b"".join(writes) == b"".join(events)
    assert all(writes)
