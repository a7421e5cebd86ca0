"""The few recordings that a missed request is compared with, among however many there are."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.json_text import Json
from tapeway.core.matching.key import request_key
from tapeway.core.matching.rules import NO_RULES
from tapeway.core.misses.nearest import nearest
from tapeway.core.misses.neighbours import (
    MOST_NEWEST,
    MOST_SIMILAR,
    NEIGHBOURS,
    Neighbours,
    order_keys,
    sought,
    within_budget,
)
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import BodyFile, Request
from tests.core.requests import asked, chat, recordings_of

MANY = 2000
PARTS = ("lo", "ri", "ma", "tes", "kun", "wal", "pi", "ze", "od", "gra", "nel", "shu", "ba")
SYSTEM = "You are a helpful assistant who answers briefly and never guesses. " * 5
WORDS = [f"{one}{other}" for one in PARTS for other in PARTS]


def text(number: int, words: int = 30) -> str:
    return " ".join(random.Random(number).choices(WORDS, k=words))


def looked_at(missed: Request, recordings: Sequence[Interaction]) -> list[Interaction]:
    items = {recording.index: recording for recording in recordings}
    found = Neighbours(recordings).near(sought(missed, missed.target), items.get)
    return [interaction for interaction in found if isinstance(interaction, Interaction)]


def first(missed: Request, recordings: Sequence[Interaction]) -> int:
    few = looked_at(missed, recordings)
    assert len(few) <= MOST_NEWEST + 4 * NEIGHBOURS
    return nearest(missed, few, NO_RULES)[0].index


@pytest.mark.parametrize(
    ("recorded", "missed"),
    [
        (lambda n: chat(SYSTEM, text(n)), lambda n: chat(SYSTEM, f"{text(n)} please")),
        (lambda n: chat(SYSTEM, text(n)), lambda n: chat(SYSTEM, f"Well: {text(n)}")),
        (lambda n: chat(SYSTEM, text(n)), lambda n: chat(SYSTEM, text(n), seed=7)),
        (lambda n: chat(SYSTEM, text(n)), lambda n: chat("Be brief, and polite.", text(n))),
        (
            lambda n: chat(f"It is 2026-01-{n % 28:02}. {SYSTEM}", text(n), user=f"id-{n}"),
            lambda n: chat(f"It is 2027-05-07. {SYSTEM}", text(n), user="id-x9"),
        ),
        (
            lambda n: chat(f"{SYSTEM} {text(n, 400)}", tools=SYSTEM),
            lambda n: chat(f"{SYSTEM} {text(n, 400)[:900]} and {text(n, 400)[900:]}", tools=SYSTEM),
        ),
    ],
)
def test_a_request_that_differs_a_little_finds_its_recording_among_thousands(
    recorded: object, missed: object
) -> None:
    assert callable(recorded)
    assert callable(missed)
    recordings = recordings_of(*(asked(recorded(number)) for number in range(MANY)))

    for number in (17, 1234):
        assert first(asked(missed(number)), recordings) == number


def test_a_call_of_an_agent_finds_its_recording_among_longer_calls_with_the_same_ends() -> None:
    def call(number: int, day: int) -> dict[str, Json]:
        task = f"{SYSTEM} Find the fault, and mend it. Today is 2026-01-{day:02}. {SYSTEM}"
        answers = [f"Step {position}: {text(position, 9)}" for position in range(number)]
        tools: list[Json] = [{"name": word, "about": SYSTEM} for word in WORDS[:3]]
        return chat(SYSTEM, task, *answers, tools=tools)

    recordings = recordings_of(*(asked(call(number, 1)) for number in range(200)))

    for number in (0, 7, 100):
        assert first(asked(call(number, 2)), recordings) == number


def test_a_short_request_with_a_number_is_looked_at_beside_its_recording() -> None:
    recordings = recordings_of(*(asked(chat(f"question {number}")) for number in range(MANY)))

    for number in (17, 1234):
        missed = asked(chat(f"question {number} please"))
        assert recordings[number] in looked_at(missed, recordings)


def test_a_parameter_of_a_query_or_a_form_finds_its_recording() -> None:
    targets = recordings_of(
        *(asked(method="GET", target=f"/v1/files?page={at}&size=20") for at in range(MANY))
    )
    assert first(asked(method="GET", target="/v1/files?page=1777&size=30"), targets) == 1777

    def form(number: int, size: int) -> Request:
        return replace(asked({}), headers=(), body=b"page=%d&size=%d" % (number, size))

    forms = recordings_of(*(form(at, 20) for at in range(MANY)))
    assert first(form(1777, 30), forms) == 1777


def test_with_few_recordings_of_a_path_all_are_looked_at() -> None:
    recordings = recordings_of(*(asked(chat(text(number))) for number in range(MOST_NEWEST)))

    assert looked_at(asked(chat("else")), recordings) == recordings


def test_what_was_added_and_removed_since_is_taken_into_account() -> None:
    recordings = recordings_of(*(asked(chat(text(number))) for number in range(100)))
    neighbours, items = (
        Neighbours(recordings[:60]),
        {recording.index: recording for recording in recordings},
    )
    missed = sought(recordings[50].request, "/v1/chat/completions")
    assert 50 in neighbours.indexes(missed)

    for recording in recordings[60:]:
        neighbours.add(recording)
    neighbours.remove(recordings[50])
    neighbours.remove(recordings[99])
    neighbours.add(recordings[50])
    neighbours.remove(recordings[50])

    left = [recording for recording in recordings if recording.index not in (50, 99)]
    again = Neighbours(left)
    for sample in range(0, 100, 7):
        request = sought(recordings[sample].request, "/v1/chat/completions")
        assert neighbours.indexes(request) == again.indexes(request)
    assert 50 not in [recording.index for recording in neighbours.near(missed, items.get)]


def test_others_may_run_after_each_recording_that_is_put_in_order() -> None:
    recordings = recordings_of(*(asked(chat(text(number))) for number in range(100)))
    neighbours, steps = Neighbours(recordings), list[int]()
    missed = sought(recordings[50].request, "/v1/chat/completions")

    for _ in range(2):
        neighbours.indexes(missed, lambda: steps.append(1))

    assert len(steps) == len(recordings)


def test_what_no_request_is_and_what_has_a_large_body_is_left_out() -> None:
    (small, large) = recordings_of(asked(chat("a")), asked(chat("b")))
    body = BodyFile("/nowhere", 3_000_000, "0" * 64)
    large = replace(large, request=replace(large.request, body=b"", file=body))
    held: dict[int, AnyInteraction] = {0: small, 1: large, 2: ForeignInteraction(2, {})}

    neighbours = Neighbours(held.values())

    assert neighbours.near(sought(small.request, small.request.target), held.get) == [small]


def test_where_no_recording_has_the_path_the_newest_of_similar_paths_are_looked_at() -> None:
    recordings = recordings_of(
        *(asked(method="GET", target=f"/v1/files/{number}") for number in range(200)),
        *(asked(method="GET", target="/v1/models") for _ in range(200)),
    )
    found = looked_at(asked(method="GET", target="/v1/files/999"), recordings)

    assert [recording.index for recording in found] == list(range(200 - MOST_SIMILAR, 200))


def test_only_what_fits_into_the_bound_is_looked_at() -> None:
    mib = 1024 * 1024

    assert within_budget([(1, 7 * mib), (2, 2 * mib), (1, 7 * mib), (3, mib)]) == [1, 3]


def test_keys_are_short_and_differ_by_method_and_path() -> None:
    requests = [asked(chat(SYSTEM * 100, text(1))), asked(chat("a"), target="/é\udcff?q=1")]
    keys = [key for request in requests for key in order_keys(request)]

    assert all(len(key) <= 104 for key in keys)
    assert keys[0][:8] == keys[1][:8] != keys[2][:8]


def test_a_loaded_cassette_keeps_up_with_its_neighbours() -> None:
    made = recordings_of(*(asked(chat(text(number))) for number in range(3)))
    cassette = CassetteIndex("c", StoredCassette(CassetteHead("", "run"), tuple(made[:2])), take=1)
    missed = sought(made[0].request, made[0].request.target)
    assert sorted(cassette.neighbours().indexes(missed)) == sorted([0, 1] * 2 + [0, 1])

    cassette.add(Recording(made[2], (0,)), request_key(made[2].request), cassette.take)

    assert set(cassette.neighbours().indexes(missed)) == {1, 2}
