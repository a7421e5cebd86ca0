"""The journal keeps the newest requests, sends new ones to followers, and recognises retries."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.matching.key import key_text
from tapeway.core.model.messages import Request
from tapeway.engine.journal import (
    MOST_ATTEMPTS,
    Attempts,
    ClientTexts,
    EntryQueue,
    RequestJournal,
    SentRequests,
    SentThroughSlot,
    ServedAnswer,
    ServedRequest,
    Tally,
)


def make_entry(number: int) -> ServedRequest:
    return ServedRequest(
        id=f"tw-{number}",
        at=float(number),
        cassette="c",
        route="openai",
        method="GET",
        texts=ClientTexts(f"/{number}"),
        answer=ServedAnswer("miss", 400),
        duration_ms=0.5,
        key=b"openai\0" + bytes(32),
    )


def ids(entries: RequestJournal | list[ServedRequest]) -> list[int]:
    return [int(entry.id.removeprefix("tw-")) for entry in entries]


def unread(queue: EntryQueue) -> list[ServedRequest | None]:
    found = []
    while not queue.empty():
        found.append(queue.get_nowait())
    return found


def test_the_newest_entries_are_kept_and_come_first() -> None:
    journal = RequestJournal(3)
    for number in range(5):
        journal.add(make_entry(number))

    assert ids(journal) == [4, 3, 2]
    assert len(journal) == 3
    journal.clear()
    assert (ids(journal), len(journal)) == ([], 0)


def test_a_journal_of_size_0_keeps_nothing_and_still_has_followers() -> None:
    journal = RequestJournal(0)
    with journal.follow() as follower:
        journal.add(make_entry(1))

        assert unread(follower) == [make_entry(1)]
    assert len(journal) == 0


def test_an_entry_shows_its_key_without_the_route() -> None:
    entry = make_entry(0)

    assert entry.match_key == key_text(entry.key or b"")
    assert (entry.message, entry.nearest, entry.suggestion) == (None, (), None)


async def test_followers_get_what_comes_from_now_on_in_order() -> None:
    journal = RequestJournal(10)
    journal.add(make_entry(0))
    with journal.follow() as first:
        journal.add(make_entry(1))
        with journal.follow() as second:
            waiting = asyncio.get_running_loop().create_task(second.get())
            await asyncio.sleep(0)
            journal.add(make_entry(2))

            assert await waiting == make_entry(2)
        assert unread(first) == [make_entry(1), make_entry(2)]


def test_a_follower_that_left_receives_nothing_more() -> None:
    journal = RequestJournal(10)
    with pytest.raises(LookupError), journal.follow() as follower:
        raise LookupError
    journal.add(make_entry(1))

    assert unread(follower) == []
    # A follower that stayed would fill up unread.
    assert journal._followers == set()


def test_a_follower_that_lags_too_far_behind_is_cut_off_and_the_others_are_not() -> None:
    journal = RequestJournal(10)
    with journal.follow() as slow, journal.follow() as fast:
        received: list[ServedRequest | None] = []
        for number in range(5_000):
            journal.add(make_entry(number))
            received += unread(fast)
        late = unread(slow)

        assert ids([entry for entry in received if entry is not None]) == list(range(5_000))
        assert late[-1] is None
        assert len(late) <= 1_000
        assert None not in late[:-1]


async def test_closing_ends_present_and_later_followers() -> None:
    journal = RequestJournal(10)
    with journal.follow() as waiting:
        journal.add(make_entry(1))
        journal.close()

        assert await waiting.get() == make_entry(1)
        assert await waiting.get() is None
    with journal.follow() as late:
        assert await late.get() is None
    journal.add(make_entry(2))
    assert ids(journal) == [2, 1]


def test_a_follower_with_a_full_queue_is_ended_all_the_same() -> None:
    journal = RequestJournal(10)
    with journal.follow() as follower:
        for number in range(follower.maxsize):
            journal.add(make_entry(number))
        journal.close()

        assert unread(follower)[-1] is None


def test_two_equal_entries_are_both_kept() -> None:
    journal = RequestJournal(10)
    for _ in range(2):
        journal.add(make_entry(1))

    assert ids(journal) == [1, 1]


def test_an_attempt_retries_the_one_before_it_of_the_same_request() -> None:
    attempts = Attempts()

    assert attempts.add(b"a", 1, "live") is None
    assert attempts.add(b"b", 2, "recorded") is None
    assert attempts.add(b"a", 2, "error", "upstream_reset") == ("live", "")
    assert attempts.add(b"a", 3, "recorded") == ("error", "upstream_reset")
    assert attempts.add(b"a", 1, "replayed") is None


def test_a_tally_counts_failed_calls_by_code_and_a_retried_call_by_its_last_attempt() -> None:
    tally = Tally()
    down = make_entry(1)._replace(
        answer=ServedAnswer("error", 502),
        key=b"a",
        message="upstream_unreachable: it cannot be reached",
    )
    tally.add(down)
    tally.add(down._replace(key=b"b"))
    tally.add(
        down._replace(key=b"b", attempt=2, answer=ServedAnswer("recorded", 200), message=None)
    )
    tally.add(down._replace(key=b"a", attempt=2, message="upstream_timeout: it did not respond"))

    assert +tally.failed == {"upstream_timeout": 1}
    assert tally.outcomes["error"] == 1


def test_equal_calls_at_the_same_time_are_each_retried_once() -> None:
    attempts = Attempts()
    for _ in range(2):
        attempts.add(b"a", 1, "live")

    assert [attempts.add(b"a", 2, "replayed") for _ in range(3)] == [
        ("live", ""),
        ("live", ""),
        None,
    ]


def test_calls_that_are_never_retried_do_not_pile_up() -> None:
    attempts = Attempts()
    for at in range(3 * MOST_ATTEMPTS):
        attempts.add(b"%d" % at, 1, "replayed")
        attempts.add(b"same", 1, "replayed")

    # What is forgotten shows below; that nothing else stays shows here alone.
    assert len(attempts._ended) == MOST_ATTEMPTS
    assert attempts.add(b"0", 2, "replayed") is None
    assert attempts.add(b"same", 2, "replayed") == ("replayed", "")


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.integers(1, 4)), max_size=14))
def test_an_attempt_is_retried_at_most_once(tries: list[tuple[bytes, int]]) -> None:
    attempts = Attempts()
    repeats = [attempts.add(*attempt, "live") is not None for attempt in tries]

    for key in (b"a", b"b"):
        for tried in range(2, 5):
            found = [
                repeat
                for repeat, attempt in zip(repeats, tries, strict=True)
                if attempt == (key, tried)
            ]
            assert sum(found) <= tries.count((key, tried - 1))
            assert sum(found) <= len(found)


def test_sent_requests_make_room_for_newer_ones() -> None:
    sent = SentRequests(5000)
    for number in range(10):
        request = Request("r", "POST", f"/{number}", body=b"x" * 500)
        sent.add(SentThroughSlot("ab"[number % 2], number, f"tw-{number}", request))

    assert [entry.id for entry in sent.of_slot("a")] == ["tw-8"]
    assert [entry.id for entry in sent.of_slot("b")] == ["tw-7", "tw-9"]


def test_a_journal_of_no_entries_keeps_no_sent_requests() -> None:
    sent = RequestJournal(0).sent
    sent.add(SentThroughSlot("a", 1, "tw-1", Request("r", "GET", "/")))

    assert [*sent.of_slot("a")] == []


def later(journal: RequestJournal, *numbers: int) -> None:
    """Add replays of cassette `c`."""
    for number in numbers:
        journal.add(make_entry(number)._replace(answer=ServedAnswer("replayed", 200, sent=number)))


LOOKS: dict[str, Callable[[RequestJournal], object]] = {
    "entries": lambda journal: [entry.answer.sent for entry in journal] == [2, 1],
    "length": lambda journal: len(journal) == 2,
    "counts": lambda journal: journal.counts["replayed"] == 2,
    "measures": lambda journal: [measure.sent for measure in journal.measures.values()] == [3],
    "tallies": lambda journal: journal.tallies["c"].outcomes["replayed"] == 2,
}


@pytest.mark.parametrize("look", LOOKS)
def test_who_looks_sees_all_that_came_before(look: str) -> None:
    journal = RequestJournal(10)
    journal.tallies["c"] = Tally()
    later(journal, 1, 2)

    assert LOOKS[look](journal)


def test_what_a_client_wrote_is_redacted_when_somebody_looks_at_it() -> None:
    asked: list[str] = []

    def redacted() -> ClientTexts:
        asked.append("looked")
        return ClientTexts("/redacted", "id", "trace")

    journal = RequestJournal(10)
    journal.add(make_entry(1)._replace(texts=redacted))
    (entry,) = journal
    assert asked == []

    assert entry.path == "/redacted"
    assert (entry.request_id, entry.trace_id) == ("id", "trace")
    assert entry.written().texts == ClientTexts("/redacted", "id", "trace")


def test_replays_that_are_noted_later_are_in_order_with_everything_else() -> None:
    journal = RequestJournal(10)
    later(journal, 1, 2)
    journal.add(make_entry(3))
    later(journal, 4)

    assert ids(journal) == [4, 3, 2, 1]


def test_clearing_counts_what_was_not_noted_yet() -> None:
    journal = RequestJournal(10)
    later(journal, 1)
    journal.clear()

    assert ids(journal) == []
    assert journal.counts["replayed"] == 1


def test_a_follower_gets_replays_at_once_and_none_from_before() -> None:
    journal = RequestJournal(10)
    later(journal, 1)
    with journal.follow() as entries:
        later(journal, 2)
        found = unread(entries)

    assert ids([entry for entry in found if entry is not None]) == [2]


def test_a_replay_counts_for_the_cassette_that_was_loaded_when_it_came() -> None:
    journal = RequestJournal(10)
    first = journal.tallies["c"] = Tally()
    later(journal, 1)
    del journal.tallies["c"]
    second = journal.tallies["c"] = Tally()
    later(journal, 2, 3)

    assert (first.outcomes["replayed"], journal.tallies["c"].outcomes["replayed"]) == (1, 2)
    assert second is journal.tallies["c"]
