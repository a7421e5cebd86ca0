"""The nearest recordings: those a person would compare with, in the order they would."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.misses.nearest import LARGEST, nearest, request_differences
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import Request
from tests.core.requests import asked, chat, recordings_of

PROSE = " ".join(f"word{number}" for number in range(400))


def found(missed: Request, recordings: list[Interaction], rules: Rules = NO_RULES) -> list[int]:
    return [recording.index for recording in nearest(missed, recordings, rules)]


def paths(recorded: Request, missed: Request, rules: Rules = NO_RULES) -> list[str]:
    return [difference.path for difference in request_differences(recorded, missed, rules)]


def test_the_one_with_the_fewest_differences_comes_first() -> None:
    recordings = recordings_of(
        asked(chat("be brief", "one", "two")),
        asked(chat("be brief", "hello", temperature=1)),
        asked(chat("be brief", "hello there")),
        asked(chat("something else", "entirely", temperature=2)),
    )

    assert found(asked(chat("be brief", "hello")), recordings) == [2, 1, 0]


def test_of_two_with_one_difference_the_one_that_differs_less_comes_first() -> None:
    recordings = recordings_of(
        asked(chat("write a poem about the sea")), asked(chat("add two and three"))
    )

    assert found(asked(chat("add two and four")), recordings) == [1, 0]


def test_a_word_in_a_long_text_is_found_among_texts_of_the_same_length() -> None:
    words = PROSE.split()
    texts = [" ".join(random.Random(seed).sample(words, len(words))) for seed in range(300)]
    recordings = recordings_of(*(asked(chat(text)) for text in texts))

    assert found(asked(chat(texts[211].replace("word7 ", "WORD7 "))), recordings)[0] == 211


def test_a_word_inserted_behind_a_common_beginning_is_found_among_thousands() -> None:
    texts = [f"{PROSE} {'lorem ipsum dolor ' * 40}{number:05d}" for number in range(2000)]
    recordings = recordings_of(*(asked(chat(text)) for text in texts))

    missed = asked(chat(texts[1777].replace("word399 ", "word399 in between ")))

    assert found(missed, recordings)[0] == 1777


def test_one_parameter_is_found_among_thousands_without_a_body() -> None:
    targets = [f"/v1/files?page={number}&size=20" for number in range(3000)]
    recordings = recordings_of(*(asked(method="GET", target=target) for target in targets))

    missed = asked(method="GET", target="/v1/files?page=2777&size=30")

    assert found(missed, recordings)[0] == 2777


def test_recordings_of_the_same_endpoint_are_preferred() -> None:
    missed = asked(chat("hello"))
    recordings = recordings_of(
        asked(chat("hello"), route="groq"),
        asked(chat("hello"), target="/v1/responses"),
        asked(chat("quite another")),
    )

    assert found(missed, recordings) == [2]
    assert found(missed, recordings[:2]) == [0]
    assert found(missed, recordings[1:2]) == []


@pytest.mark.parametrize(
    ("method", "recorded", "near"),
    [
        ("POST", "/v1/threads/thread_1/runs", True),
        ("POST", "/v1/threads/thread_1/runs?x=1", True),
        ("POST", "/v2/threads/thread_9/runs", True),
        ("POST", "/threads/thread_9/runs", True),
        ("POST", "/v1/threads/runs", True),
        ("POST", "/api/v1/threads/thread_9/runs", False),
        ("GET", "/v1/threads/thread_1/runs", False),
        ("POST", "/v1/threads/thread_9/messages", False),
        ("POST", "/v1/threads/thread_9", False),
        ("POST", "/v2/threads/thread_1/runs", False),
        ("POST", "/", False),
    ],
)
def test_of_other_paths_those_with_another_identifier_or_version_are_near(
    method: str, recorded: str, near: bool
) -> None:
    missed = asked({}, target="/v1/threads/thread_9/runs")
    recordings = recordings_of(asked({}, method=method, target=recorded))

    assert found(missed, recordings) == ([0] if near else [])


def test_a_query_does_not_make_another_endpoint() -> None:
    recordings = recordings_of(
        asked(method="GET", target="/v1/files?page=1&size=10"),
        asked(method="GET", target="/v1/files?page=2&size=20"),
        asked(method="GET", target="/v1/models"),
    )
    missed = asked(method="GET", target="/v1/files?page=9&size=20")

    assert found(missed, recordings) == [1, 0]
    assert paths(recordings[1].request, missed) == ["query.page"]


def test_a_rewritten_path_is_the_same_endpoint() -> None:
    rules = Rules(rewrite=(("/v1beta/", "/v1/"),))
    recordings = recordings_of(asked(chat("a"), target="/v1/x"), asked(chat("b"), target="/v1/y"))

    assert found(asked(chat("c"), target="/v1beta/y"), recordings, rules) == [1]


def test_another_route_is_named_as_a_difference() -> None:
    assert paths(asked(chat("a"), route="groq"), asked(chat("a"))) == ["route"]


def test_what_rules_ignore_is_no_difference() -> None:
    recorded, missed = asked(chat("a", user="1")), asked(chat("b", user="2"))

    assert paths(recorded, missed) == ["body.messages[0].content", "body.user"]
    assert paths(recorded, missed, Rules(ignore=("body.user",))) == ["body.messages[0].content"]


def test_an_empty_cassette_and_foreign_interactions_have_no_nearest_recording() -> None:
    assert nearest(asked(chat("a")), [], NO_RULES) == ()
    assert nearest(asked(chat("a")), [ForeignInteraction(0, {})], NO_RULES) == ()


def test_bodies_too_large_to_be_read_are_not_compared() -> None:
    large = asked("x" * (LARGEST + 1))

    assert found(asked(chat("a")), recordings_of(large)) == []
    assert found(large, recordings_of(asked(chat("a")))) == []


def test_large_bodies_are_compared_up_to_a_budget_and_three_in_any_case() -> None:
    recordings = recordings_of(*(asked(chat("x" * 300_000 + str(number))) for number in range(9)))

    assert len(found(asked(chat("x" * 300_000)), recordings)) == 3


BODIES: st.SearchStrategy[Json] = st.dictionaries(
    st.sampled_from("abcd"), st.integers(0, 3) | st.sampled_from(["x", "y z", "y w"]), max_size=4
)


@given(st.lists(BODIES, max_size=30), BODIES)
def test_an_equal_recording_is_always_first_and_the_result_depends_on_the_recordings_alone(
    bodies: list[Json], body: Json
) -> None:
    missed, recordings = asked(body), recordings_of(*(asked(asked_body) for asked_body in bodies))
    first = nearest(missed, recordings, NO_RULES)

    assert first == nearest(missed, list(recordings), NO_RULES)
    assert len(first) == min(3, len(bodies))
    if body in bodies:
        assert first[0].differences == ()
