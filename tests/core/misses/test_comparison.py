"""Two recorded runs compared: pairs, paths, rules that are verified, and echoes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import NO_RULES, Rules, merged_rules
from tapeway.core.misses.comparison import AnswerTexts, Comparison, compare
from tapeway.core.misses.suggestion import matches
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tests.core.requests import asked, chat

UUID = "3f2b1c9e-8a57-4d3c-9e21-0b6f4c5d7e8"
HEAD = CassetteHead("", "run")

STREAM = b"""event: piece
data: {"id":"resp_1","delta":{"content":"Two plus "}}

data: {"id":"resp_1","delta":{"content":"two is four."}}

data: [DONE]
"""


def take(*calls: Request | tuple[Request, Json]) -> StoredCassette:
    """A cassette of these requests, each with its answer if one is given."""
    found: list[Interaction] = []
    for index, call in enumerate(calls):
        request, answer = call if isinstance(call, tuple) else (call, None)
        response = Response(ResponseHead(200), dump(answer))
        found.append(Interaction(index, request, response))
    return StoredCassette(HEAD, tuple(found))


def paths(found: Comparison) -> list[tuple[str, int, bool]]:
    return [(path.path, path.calls, path.echoed) for path in found.paths]


def test_two_equal_runs_differ_in_nothing_whatever_their_order() -> None:
    one, two = asked(chat("a")), asked(chat("b"))

    found = compare(take(one, two, one), take(one, one, two))

    assert found == Comparison(3, (), NO_RULES, (), (), ())
    assert found.explained


def test_calls_are_paired_with_the_least_different_of_their_endpoint() -> None:
    first = take(
        asked(chat("tell me of cats", user="u1")), asked(chat("tell me of dogs", user="u1"))
    )
    second = take(
        asked(chat("tell me of dogs", user="u2")), asked(chat("tell me of cats", user="u2"))
    )

    found = compare(first, second)

    assert paths(found) == [("body.user", 2, False)]
    assert found.rules == Rules(ignore=("body.user",))
    assert found.explained


def test_one_set_of_rules_explains_all_pairs() -> None:
    first = take(asked(chat(f"job {UUID}1")), asked({"items": [{"id": "a1"}, {"id": "a2"}]}))
    second = take(asked(chat(f"job {UUID}2")), asked({"items": [{"id": "b1"}, {"id": "b2"}]}))

    found = compare(first, second)

    assert found.rules == Rules(ignore=("body.items[*].id",), normalise=("uuid",))
    assert found.explained


def test_rules_in_force_leave_less_to_explain() -> None:
    first, second = take(asked(chat("a", user="1"))), take(asked(chat("a", user="2")))

    assert compare(first, second, Rules(ignore=("body.user",))).equal == 1


def test_another_conversation_stays_unexplained() -> None:
    first, second = take(asked(chat("a"))), take(asked(chat("a", "b")))

    found = compare(first, second)

    assert [(pair.first.index, pair.second.index) for pair in found.unexplained] == [(0, 0)]
    assert found.rules == NO_RULES
    assert not found.explained


def test_calls_that_only_one_run_made_are_listed() -> None:
    one, two = asked(chat("a")), asked(chat("b"))

    more, fewer = compare(take(one), take(one, two)), compare(take(one, two), take(one))

    assert [recording.index for recording in more.only_second] == [1]
    assert not more.explained
    assert [recording.index for recording in fewer.only_first] == [1]
    assert fewer.explained


def test_paths_that_differ_in_a_version_are_paired() -> None:
    first = take(asked(chat("a"), target="/v1/models/m"))
    second = take(asked(chat("a"), target="/v1beta/models/m"))

    assert compare(first, second).rules == Rules(rewrite=(("/v1beta/", "/v1/"),))


def test_a_value_from_the_answers_of_each_run_needs_no_rule() -> None:
    def conversation(said: str, call: str) -> StoredCassette:
        first = chat("add two and two")
        return take(
            (asked(first), {"choices": [{"message": {"content": said, "id": call}}]}),
            (asked(chat("add two and two", said, "thanks", id=call)), "bye"),
        )

    found = compare(conversation("It is four.", "call_a1"), conversation("Four it is!", "call_b2"))

    assert paths(found) == [("body.messages[1].content", 1, True), ("body.id", 1, True)]
    assert found.rules == NO_RULES
    assert found.explained


def test_a_value_from_a_later_answer_is_no_echo() -> None:
    first = take((asked(chat("a", user="one")), "-"), (asked(chat("x")), "one"))
    second = take((asked(chat("a", user="two")), "-"), (asked(chat("x")), "two"))

    found = compare(first, second)

    assert found.rules == Rules(ignore=("body.user",))


def test_another_prompt_stays_unexplained_and_an_opaque_value_in_one_gets_a_pattern() -> None:
    first = take(asked(chat("tell me of build-a1b2c3d4")), asked(chat("one spider")))
    second = take(asked(chat("tell me of build-e5f6a7b8")), asked(chat("one beetle")))

    found = compare(first, second)

    assert found.rules == Rules(patterns=(("build", r"(?m)^tell me of build-[0-9a-f]{8}\b"),))
    assert [pair.first.index for pair in found.unexplained] == [1]


def test_a_rule_that_would_make_calls_of_one_run_equal_is_refused_and_the_others_stay() -> None:
    first = take(asked(chat("a", user="u1")), asked(chat("a", user="u2")), asked({"run": "r1"}))
    second = take(asked(chat("a", user="u3")), asked(chat("a", user="u4")), asked({"run": "r2"}))

    found = compare(first, second)

    assert found.rules == Rules(ignore=("body.run",))
    assert found.refusals == (
        'no rule is suggested: ignore = ["body.user"] would also make recordings #0 and #1 equal',
    )
    assert [pair.first.index for pair in found.unexplained] == [0, 1]


VALUES = st.integers(0, 3) | st.sampled_from(["a", "b c", f"{UUID}1", f"{UUID}2"])
CALLS = st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), max_size=6)


@given(CALLS, CALLS)
def test_every_pair_is_equal_under_the_rules_or_listed_as_unexplained(
    left: list[dict[str, Json]], right: list[dict[str, Json]]
) -> None:
    first, second = (take(*(asked({"in": text}) for text in side)) for side in (left, right))
    found = compare(first, second)
    rules = merged_rules(NO_RULES, found.rules)
    runs = [[exchange.request for exchange in exchanges(run)] for run in (first, second)]

    assert bool(found.unexplained) <= bool(found.refusals)
    assert len(left) - len(found.only_first) == len(right) - len(found.only_second)
    assert not (found.only_first and found.only_second)
    if found.explained:
        for other in runs[1]:
            assert any(matches(request, other, rules) for request in runs[0])
    for run in runs:
        for one, other in itertools.combinations(run, 2):
            assert matches(one, other, NO_RULES) or not matches(one, other, rules)


def exchanges(run: StoredCassette) -> list[Interaction]:
    return [interaction for interaction in run.interactions if isinstance(interaction, Interaction)]


def answered(*bodies: bytes) -> AnswerTexts:
    return AnswerTexts(
        [
            Interaction(index, Request("", "GET", "/"), Response(ResponseHead(200), body))
            for index, body in enumerate(bodies)
        ]
    )


@pytest.mark.parametrize(
    ("body", "text", "expected"),
    [
        (b'{"a":[{"id":"x"}]}', "x", True),
        (b'{"a":[{"id":"xy"}]}', "x", False),
        (b'{"a":"a longer text"}', "longer text", True),
        (b'{"longer text":1}', "longer text", False),
        (STREAM, "Two plus two is four.", True),
        (STREAM, "resp_1", True),
        (STREAM, "two is five.", False),
        (b'{"content":"one piece"}\n{"content":" and another"}\n', "one piece and another", True),
        (b"\xff\x00", "x", False),
        (b"", "", False),
    ],
)
def test_a_text_is_found_in_the_answer_that_has_it(body: bytes, text: str, expected: bool) -> None:
    assert answered(body).contains(text, before=1) is expected


def test_only_earlier_answers_are_searched() -> None:
    texts = answered(b'"one"', b'"two"')

    assert texts.contains("one", before=1)
    assert not texts.contains("two", before=1)
    assert texts.contains("two", before=2)


def accepting(accept: str) -> Request:
    headers = ((b"Accept", accept.encode()),)
    return Request("openai", "GET", "/repos/x", headers, varied=("accept",))


def test_calls_that_a_header_tells_apart_are_paired_by_it() -> None:
    diff, json = accepting("application/vnd.diff"), accepting("application/json")

    assert compare(take(diff, json), take(json, diff)) == Comparison(2, (), NO_RULES, (), (), ())


def test_a_header_that_decides_gets_a_rule_where_each_run_has_one_value() -> None:
    found = compare(take(accepting("text/plain")), take(accepting("text/html")))

    assert found.equal == 0
    assert found.rules == Rules(ignore_vary=("accept",))
    assert paths(found) == [("headers.accept", 1, False)]
    assert found.explained


def test_a_header_that_tells_calls_of_one_run_apart_gets_no_rule() -> None:
    one = take(accepting("text/plain"), accepting("application/json"))

    found = compare(one, take(accepting("text/html"), accepting("application/json")))

    assert (found.rules, found.explained) == (NO_RULES, False)
    assert len(found.refusals) == 1
