"""Recordings that say when they were made are named, with the rule by which they would match later."""

from datetime import UTC, datetime

import pytest

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.matching.rules import NO_RULES, Rules, meta_with_rules
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.engine.journal import MOST_MISSES, ClientTexts, ServedAnswer, ServedRequest, Tally
from tapeway.engine.report.forms import text_report
from tapeway.engine.report.standards import NO_LIMITS
from tapeway.engine.report.summary import (
    DatedRecording,
    RecordingsInStore,
    dated_notices,
    report_of,
)
from tests.core.requests import asked, chat, recordings_of
from tests.stores.model_store import ModelPlace, ModelStore
from tests.support.reports import report_of_index

NOON = datetime(2026, 11, 25, 12, 0, 30, tzinfo=UTC)
RULE = 'rule: normalise = ["date"]'
PROMPTS = ("It is November 25, 2026. One.", "Current time: 12:00 UTC. Two.", "No date. Three.")


def recorded(index: int, at: datetime = NOON) -> ServedRequest:
    answer = ServedAnswer("recorded", 200, index)
    return ServedRequest(
        *("tw-1", at.timestamp(), "c", "openai", "POST", ClientTexts("/"), answer, 0.0, None)
    )


def take(*prompts: str, rules: Rules = NO_RULES) -> StoredCassette:
    interactions = recordings_of(*[asked(chat(prompt)) for prompt in prompts])
    return StoredCassette(CassetteHead("", "run", meta_with_rules({}, rules)), tuple(interactions))


def dated(cassette: StoredCassette, tally: Tally) -> list[tuple[int, str, str]]:
    index = CassetteIndex("c", cassette, take=1)
    found = report_of_index(index, tally, NO_LIMITS, "2026-11-25").dated
    return [(recording.index, recording.kind, recording.advice) for recording in found]


def tally_of(*indexes: int, at: datetime = NOON) -> Tally:
    tally = Tally()
    for index in indexes:
        tally.add(recorded(index, at))
    return tally


def test_what_a_run_recorded_with_the_day_or_the_time_is_named_and_nothing_else() -> None:
    cassette = take(*PROMPTS)

    assert dated(cassette, tally_of(0, 1, 2)) == [(0, "date", RULE), (1, "time", RULE)]
    assert dated(cassette, tally_of(1, 2)) == [(1, "time", RULE)]
    assert dated(cassette, tally_of(0, 1, at=NOON.replace(day=26, hour=3))) == []
    assert dated(take(*PROMPTS, rules=Rules(normalise=("date",))), tally_of(0, 1)) == []


def test_the_day_of_the_clock_here_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    try:
        found = dated(take("It is November 26, 2026."), tally_of(0))
    finally:
        monkeypatch.undo()
        time.tzset()

    assert found == [(0, "date", RULE)]


def test_no_rule_is_named_that_would_make_recordings_equal_that_differ() -> None:
    cassette = take("It is November 25, 2026.", "It is November 24, 2026.")

    ((index, kind, advice),) = dated(cassette, tally_of(0, 1))
    assert (index, kind) == (0, "date")
    assert advice == (
        'no rule is suggested: normalise = ["date"] would also make recordings #0 and #1 equal'
    )


def test_recordings_that_the_run_replaces_under_the_rule_do_not_speak_against_it() -> None:
    cassette = take("It is November 24, 2026.", "It is November 25, 2026.")

    assert dated(cassette, tally_of(1)) == [(1, "date", RULE)]


def test_a_temporary_folder_is_named_as_a_date_is() -> None:
    cassette = take("Work in /tmp/tmpa1b2c3d4.")

    rule = 'rule: normalise = ["tmp_path"]'
    assert dated(cassette, tally_of(0)) == [(0, "path", rule)]
    found = DatedRecording(0, "POST", "/v1/chat/completions", "path", rule)
    assert [*dated_notices([found])] == [
        f"1 recording contains a temporary path and will miss in the next run; {rule}"
    ]


async def test_recordings_in_a_database_are_named_too() -> None:
    store = ModelStore(ModelPlace())
    await store.open()
    try:
        cassette = take(*PROMPTS)
        for interaction in cassette.interactions:
            assert isinstance(interaction, Interaction)
            await store.append("c", cassette.head, Recording(interaction))
        tally = tally_of(0, 1, 2)
        found = await report_of(
            RecordingsInStore(store, CassetteIndex("c", cassette, take=1), (1,)),
            tally,
            NO_LIMITS,
            "2026-11-25",
        )
    finally:
        await store.close()

    assert [(recording.index, recording.kind) for recording in found.dated] == [
        (0, "date"),
        (1, "time"),
    ]


def test_the_report_says_it_in_a_line_for_each_rule() -> None:
    path = "/v1/chat/completions"
    found = [DatedRecording(number, "POST", path, "date", RULE) for number in range(3)]
    found.append(DatedRecording(3, "POST", path, "time", RULE))

    assert [*dated_notices(found)] == [
        f"3 recordings contain today's date and will miss tomorrow; {RULE}",
        f"1 recording contains the time of day and will miss later; {RULE}",
    ]
    report = report_of_index(CassetteIndex("c", take(*PROMPTS), take=1), tally_of(0))
    assert (
        f"  1 recording contains today's date and will miss tomorrow; {RULE}\n"
        f"  says when it was made: #0 POST {path}\n"
    ) in text_report([report])


def test_the_times_of_so_many_recordings_are_kept() -> None:
    tally = tally_of(*range(MOST_MISSES + 5))

    assert min(tally.recorded_at) == 5
