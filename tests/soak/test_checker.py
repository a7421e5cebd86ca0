"""Each rule of the checker is seen to fail, and each exception to it to hold."""

import base64
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from soak.checker import secrets_seen, violations
from soak.history import (
    Asked,
    Called,
    Edited,
    Fault,
    FaultKind,
    History,
    Kind,
    Mode,
    Recovered,
    Steered,
    What,
    load,
)
from tests.support.canary import canary

NAME = "misses"
QUESTION = "misses/1"


def asked(
    id: str,
    began: float,
    ended: float,
    outcome: str,
    answer: str = "",
    *,
    cassette: str = NAME,
    question: str = QUESTION,
    instance: int = 0,
) -> Asked:
    status = {"miss": 400, "error": 503, "none": 0}.get(outcome, 200)
    served = cassette if status else ""
    return Asked(
        *(id, instance, cassette, question, began, ended, outcome, status, "", answer, served)
    )


def called(asked: str, answer: str, began: float, question: str = QUESTION) -> Called:
    return Called(asked, question, answer, began)


def steered(
    what: What,
    began: float,
    ended: float,
    mode: Mode | None = None,
    *,
    cassette: str = NAME,
    status: int = 200,
) -> Steered:
    return Steered(what, cassette, mode, began, ended, status)


def fault(kind: FaultKind, began: float, ended: float, instance: int | None = None) -> Fault:
    return Fault(kind, instance, began, ended)


def recorded_and_replayed() -> History:
    """One question that two clients ask in turn."""
    return History(
        asked=[asked("a", 1, 2, "recorded", "answer-1"), asked("b", 3, 4, "replayed", "answer-1")],
        called=[called("a", "answer-1", 1.5)],
        recovered=[Recovered(NAME, QUESTION, "answer-1")],
    )


def repeated(store: Kind = "postgres") -> History:
    """One question that is recorded three times, and replayed in a take of its own."""
    name, answers = "repeats-0", ("answer-1", "answer-2", "answer-3")
    history = History(store=store)
    history.steered = [
        steered("mode", 0, 1, "record", cassette=name),
        steered("mode", 10, 11, "replay", cassette=name),
    ]
    for at, answer in enumerate(answers):
        for began, outcome in ((2.0 + at, "recorded"), (12.0 + at, "replayed")):
            history.asked.append(
                asked(f"{outcome}-{at}", began, began + 0.5, outcome, answer, cassette=name)
            )
        history.called.append(called(f"recorded-{at}", answer, 2.2 + at))
        history.recovered.append(Recovered(name, QUESTION, answer))
    return history


def edited() -> History:
    """A recording that is edited once, and read before and after."""
    return History(
        asked=[
            asked("a", 1, 2, "recorded", "answer-1"),
            asked("b", 7, 8, "replayed", "edit-1"),
        ],
        called=[called("a", "answer-1", 1.5)],
        edited=[Edited(NAME, "answer-1", "edit-1", 5, 6, 200)],
        recovered=[Recovered(NAME, QUESTION, "edit-1")],
    )


def broken(history: History) -> list[str]:
    """The names of the rules that are broken."""
    return [violation.partition(":")[0] for violation in violations(history)]


@pytest.mark.parametrize("made", [recorded_and_replayed, repeated, edited])
def test_a_good_history_breaks_no_rule(made: type[History]) -> None:
    assert violations(made()) == []


def test_an_acknowledged_recording_that_is_gone_is_lost() -> None:
    history = recorded_and_replayed()
    history.recovered = []

    assert set(broken(history)) == {"lost"}


def test_an_acknowledged_recording_that_is_a_miss_is_lost() -> None:
    history = recorded_and_replayed()
    history.steered = [steered("mode", 5, 6, "replay")]
    history.asked.append(asked("c", 7, 8, "miss"))

    assert broken(history) == ["lost"]


def test_a_recording_is_lost_that_a_straggler_of_its_own_take_replaced() -> None:
    history = repeated()
    history.recovered = history.recovered[1:]

    assert set(broken(history)) == {"lost"}


def test_a_later_take_of_mode_record_may_replace_a_recording() -> None:
    history = repeated()
    name = history.recovered[0].cassette
    history.steered.append(steered("mode", 20, 21, "record", cassette=name))
    history.asked.append(asked("anew", 22, 23, "recorded", "answer-4", cassette=name))
    history.recovered = [Recovered(name, QUESTION, "answer-4")]

    assert broken(history) == []


def test_a_straggler_of_mode_record_may_replace_what_an_earlier_take_recorded() -> None:
    history = repeated()
    name = history.recovered[0].cassette
    history.asked.append(asked("before", -2, -1, "recorded", "answer-0", cassette=name))
    history.asked.append(asked("after", 11.2, 11.4, "replayed", "answer-0", cassette=name))

    assert broken(history) == []


def test_a_second_call_for_an_equal_miss_is_one_too_many() -> None:
    history = recorded_and_replayed()
    history.asked.append(asked("c", 1.2, 4, "replayed", "answer-1", instance=1))
    history.called.append(called("c", "answer-2", 1.7))

    assert broken(history) == ["asked twice"]


@pytest.mark.parametrize("kind", ["kill", "stop", "drop", "crash", "starved"])
def test_the_call_of_a_process_that_failed_may_be_made_again(kind: FaultKind) -> None:
    history = recorded_and_replayed()
    history.asked[0] = replace(history.asked[0], ended=2.5)
    history.asked.append(asked("c", 1.2, 2.4, "replayed", "answer-1", instance=1))
    history.called.append(called("c", "answer-2", 1.7))
    history.faults = [fault(kind, 1.55, 1.6, instance=0)]

    assert broken(history) == []


@pytest.mark.parametrize(
    "given",
    [
        fault("kill", 1.55, 1.6, instance=2),
        fault("kill", 1.8, 1.9, instance=0),
        fault("clock", 1.55, 1.6, instance=0),
        fault("terminate", 1.55, 1.6),
    ],
)
def test_another_failure_is_no_reason_to_ask_twice(given: Fault) -> None:
    history = recorded_and_replayed()
    history.asked.append(asked("c", 1.2, 4, "replayed", "answer-1", instance=1))
    history.called.append(called("c", "answer-2", 1.7))
    history.faults = [given]

    assert broken(history) == ["asked twice"]


@pytest.mark.parametrize(("kind", "found"), [("full", []), ("delay", ["asked twice"])])
def test_a_full_disk_excuses_a_second_call_after_a_client_that_has_left(
    kind: FaultKind, found: list[str]
) -> None:
    history = recorded_and_replayed()
    history.asked.append(asked("c", 0.5, math.inf, "left", instance=1))
    history.called.insert(0, called("c", "answer-0", 0.8))
    history.faults = [fault(kind, 0.7, 2, instance=None)]

    assert broken(history) == found


def test_nothing_excuses_a_call_for_what_was_acknowledged() -> None:
    history = recorded_and_replayed()
    history.asked.append(asked("c", 5, 6, "replayed", "answer-1", instance=1))
    history.called.append(called("c", "answer-2", 5.5))
    history.faults = [fault("crash", 0, 9)]

    assert broken(history) == ["asked twice"]


def test_two_clients_that_got_different_answers_are_told_of() -> None:
    history = recorded_and_replayed()
    history.asked[1] = replace(history.asked[1], answer="answer-2")
    history.recovered.append(Recovered(NAME, QUESTION, "answer-2"))

    assert set(broken(history)) == {"two answers"}


def swapped(history: History, first: str, second: str) -> History:
    """The same, with the answers of two requests exchanged."""
    by_id = {request.id: request for request in history.asked}
    one, other = by_id[first], by_id[second]
    history.asked.remove(one)
    history.asked.remove(other)
    history.asked += [replace(one, answer=other.answer), replace(other, answer=one.answer)]
    return history


def test_a_repeat_out_of_order_is_told_of() -> None:
    assert broken(swapped(repeated(), "replayed-0", "replayed-1")) == ["out of turn"]


def test_requests_at_the_same_time_have_no_order() -> None:
    history = swapped(repeated(), "replayed-0", "replayed-1")
    history.asked = [
        replace(request, began=12, ended=13.8) if request.id.startswith("replayed") else request
        for request in history.asked
    ]

    assert broken(history) == []


def test_a_repeat_that_is_given_out_twice_is_told_of() -> None:
    history = repeated()
    history.asked = [
        replace(request, answer="answer-1") if request.id == "replayed-1" else request
        for request in history.asked
    ]

    assert broken(history) == ["out of turn"]


@pytest.mark.parametrize(("stored_at", "found"), [(15.0, []), (9.0, ["out of turn"])])
def test_a_straggler_that_is_stored_during_a_take_moves_the_turns_after_it_on(
    stored_at: float, found: list[str]
) -> None:
    history = repeated()
    history.asked = [
        replace(request, answer="answer-2") if request.id == "replayed-2" else request
        for request in history.asked
    ]
    recorded = next(
        answer
        for answer in history.asked
        if answer.answer == "answer-1" and answer.outcome == "recorded"
    )
    history.asked.remove(recorded)
    history.asked.append(replace(recorded, ended=stored_at))

    assert broken(history) == found


def test_the_last_repeat_may_be_given_out_again() -> None:
    history = repeated()
    last = asked("more", 20, 21, "replayed", "answer-3", cassette="repeats-0")
    history.asked.append(last)

    assert broken(history) == []


def test_a_repeat_that_is_skipped_is_told_of() -> None:
    history = repeated()
    history.asked = [request for request in history.asked if request.id != "replayed-1"]

    assert broken(history) == ["out of turn"]


def test_a_request_that_broke_may_have_used_a_repeat() -> None:
    history = repeated()
    history.asked = [
        replace(request, outcome="none", answer="") if request.id == "replayed-1" else request
        for request in history.asked
    ]
    history.faults = [fault("kill", 13, 13.2)]

    assert broken(history) == []


def test_a_crash_of_the_database_may_take_turns_back() -> None:
    history = repeated()
    history.asked = [
        replace(request, answer="answer-1") if request.id == "replayed-2" else request
        for request in history.asked
    ]
    history.faults = [fault("crash", 13.6, 13.9)]

    assert broken(history) == []
    assert broken(replace_faults(history, fault("terminate", 13.6, 13.9))) == ["out of turn"] * 2


def replace_faults(history: History, *faults: Fault) -> History:
    """The same with other faults."""
    history.faults = [*faults]
    return history


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_with_a_full_disk_replays_keep_their_turns(store: Kind) -> None:
    history = swapped(repeated(store), "replayed-0", "replayed-1")

    assert broken(replace_faults(history, fault("full", 11.5, 11.9))) == ["out of turn"]


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [("replay", "recorded"), ("replay", "live"), ("passthrough", "replayed"), ("auto", "live")],
)
def test_an_answer_from_the_wrong_mode_is_told_of(mode: Mode, outcome: str) -> None:
    history = recorded_and_replayed()
    history.steered = [steered("mode", 5, 6, mode)]
    history.asked.append(asked("c", 7, 8, outcome, "answer-1"))

    assert broken(history) == ["wrong mode"]


def test_while_a_mode_changes_both_may_be_in_force() -> None:
    history = recorded_and_replayed()
    history.steered = [steered("mode", 3.5, 6, "passthrough")]
    history.asked.append(asked("c", 5, 8, "live", "answer-7"))

    assert broken(history) == []


def test_a_change_that_was_not_confirmed_may_come_later() -> None:
    history = recorded_and_replayed()
    history.steered = [steered("mode", 5, 6, "passthrough", status=503)]
    history.asked.append(asked("c", 7, 8, "live", "answer-7"))
    history.faults = [fault("stop", 5, 6)]

    assert broken(history) == []
    history.steered.append(steered("mode", 9, 10, "replay"))
    history.asked.append(asked("d", 11, 12, "live", "answer-8"))
    assert broken(history) == ["wrong mode"]


def test_an_answer_from_another_cassette_is_told_of() -> None:
    history = recorded_and_replayed()
    history.asked[1] = replace(history.asked[1], served_from="other")
    history.recovered.append(Recovered("other", QUESTION, "answer-1"))

    assert "wrong mode" in broken(history)


def test_an_answer_from_a_cassette_that_is_no_longer_active_is_told_of() -> None:
    one = replace(asked("c", 7, 8, "recorded", "answer-3", cassette=""), served_from="first")
    history = History(
        asked=[one],
        steered=[
            steered("insert", 1, 2, cassette="first"),
            steered("insert", 5, 6, cassette="second"),
        ],
        recovered=[Recovered("first", QUESTION, "answer-3")],
    )

    assert broken(history) == ["wrong mode"]
    history.asked = [replace(one, began=5.5)]
    assert broken(history) == []


def test_of_two_edits_of_one_version_only_one_succeeds() -> None:
    history = edited()
    history.edited.append(Edited(NAME, "answer-1", "edit-2", 5, 6, 200))
    history.recovered.append(Recovered(NAME, QUESTION, "edit-2"))

    assert "edit" in broken(history)


def test_what_was_edited_is_not_replayed_any_more() -> None:
    history = edited()
    history.asked.append(asked("c", 9, 10, "replayed", "answer-1"))

    assert broken(history) == ["edit"]


def test_an_edit_that_is_gone_is_lost() -> None:
    history = edited()
    history.asked.pop()
    history.recovered = [Recovered(NAME, QUESTION, "answer-1")]

    assert set(broken(history)) == {"edit", "lost"}


def test_an_error_needs_a_fault() -> None:
    history = recorded_and_replayed()
    history.asked.append(asked("c", 7, 8, "error"))

    assert broken(history) == ["trouble"]
    assert broken(replace_faults(history, fault("delay", 7.5, 9))) == []
    assert broken(replace_faults(history, fault("clock", 7.5, 9))) == ["trouble"]


def test_a_defect_and_a_request_that_is_forgotten_have_no_excuse() -> None:
    history = recorded_and_replayed()
    history.asked.append(replace(asked("c", 7, 8, "error"), code="internal"))
    history.asked.append(asked("d", 7, 60, "none"))
    history.faults = [fault("crash", 0, 90)]

    assert broken(history) == ["trouble", "trouble"]


def test_steering_and_edits_need_a_fault_to_fail() -> None:
    history = edited()
    history.steered = [steered("mode", 7, 8, "auto", status=503)]
    history.edited.append(Edited(NAME, "edit-1", "edit-2", 9, 10, 503))

    assert broken(history) == ["trouble", "trouble"]
    assert broken(replace_faults(history, fault("crash", 7, 10))) == []


def test_a_secret_is_found_wherever_it_stands() -> None:
    key = canary()
    far = b"x" * (2**20 - 10)
    places = {
        "log": b"GET / 200",
        "table": far + key.encode() + far,
        "file": json.dumps({"k": base64.b64encode(key.encode()).decode()}).encode(),
    }

    found = secrets_seen({"the key": key}, places)

    assert {text.partition(" in ")[2].partition(" ")[0].strip(",") for text in found} == {
        "table",
        "file",
    }
    history = recorded_and_replayed()
    history.complaints = found
    assert set(broken(history)) == {"secret"}


def test_a_history_that_was_saved_is_checked_alike(tmp_path: Path) -> None:
    history = repeated("sqlite")
    history.faults = [fault("full", 1, 2), fault("kill", 3, 4, instance=1)]
    history.edited = edited().edited
    history.complaints = ["verify: damaged"]
    history.save(tmp_path / "history")

    assert load(tmp_path / "history") == history
