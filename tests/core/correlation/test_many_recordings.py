"""Which recordings of many are compared with a request: by a search, and later by what was read."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.correlation import ids
from tapeway.core.correlation import index as correlation
from tapeway.core.correlation.index import (
    FEW_LEFT,
    FEW_LOADED,
    MOST_COMPARED,
    MOST_SEARCHES,
    CorrelationIndex,
    possible_matches,
)
from tapeway.core.correlation.unify import body_texts
from tapeway.core.json_text import Json
from tapeway.core.matching.document import request_document
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tests.core.keys import JSON

NAME = "call_h5Xw0Vb1jZ"


def request_with(body: bytes) -> Request:
    return Request("openai", "POST", "/v1/chat", JSON, body)


def exchange_of(index: int, body: bytes, answer: bytes = b"{}") -> Interaction:
    response = Response(ResponseHead(200, headers=JSON), answer)
    return Interaction(index, request_with(body), response)


def turn(prompt: str, name: str = NAME, **more: Json) -> dict[str, Json]:
    said: list[Json] = [
        {"role": "user", "content": prompt},
        {"role": "tool", "tool_call_id": name, "content": "sunny"},
    ]
    return {"model": "gpt-4.1", "messages": said, **more}


def left(held: list[Interaction], body: bytes, rules: Rules | None = None) -> list[int]:
    said = list(body_texts(request_document(request_with(body), rules or Rules())))
    return [each.index for each in possible_matches(held, said)]


def many(*prompts: str) -> list[Interaction]:
    others = [f"a question of number {number}" for number in range(2 * FEW_LEFT)]
    bodies = [json.dumps(turn(prompt)).encode() for prompt in (*others, *prompts)]
    return [exchange_of(index, body) for index, body in enumerate(bodies)]


def test_of_many_recordings_those_with_the_same_texts_are_left() -> None:
    held = many("how is the weather in Rome?")

    assert left(held, json.dumps(turn("how is the weather in Rome?", "mine")).encode()) == [
        held[-1].index
    ]


def test_a_recording_without_the_references_field_is_not_left() -> None:
    plain = [exchange_of(each.index, b'{"messages":[{"content":"sunny"}]}') for each in many()]

    assert left(plain, json.dumps(turn("sunny", "mine")).encode()) == []


def test_what_rules_put_into_a_text_is_not_searched() -> None:
    held = many("at 10:00:59 in job 3f2b1c9e-8a57-4d3c-9e21-0b6f4c5d7e88, what was it?")
    sent = "at 11:22:33 in job 4a5b1c9e-8a57-4d3c-9e21-0b6f4c5d7e88, what was it?"

    rules = Rules(normalise=("uuid", "time"))
    assert left(held, json.dumps(turn(sent, "mine")).encode(), rules) == [held[-1].index]


texts = st.text(max_size=60).filter(lambda text: text.isprintable() or "\n" in text)
Spelling = Callable[[Json], str]
SPELLINGS: list[Spelling] = [
    lambda value: json.dumps(value),
    lambda value: json.dumps(value, ensure_ascii=False),
    lambda value: json.dumps(value, indent=2, sort_keys=True),
    lambda value: json.dumps(value, separators=(",", ":")).replace("/", "\\/"),
]


@given(texts, texts, st.sampled_from(SPELLINGS), st.sampled_from(SPELLINGS))
def test_other_spellings_of_the_same_json_are_left_and_found(
    prompt: str, system: str, recorded: Spelling, sent: Spelling
) -> None:
    issuing = exchange_of(1000, b"{}", json.dumps({"id": NAME}).encode())
    body = recorded(turn(prompt, system=system)).encode("utf-8", "surrogatepass")
    held = [issuing, exchange_of(1001, body), *many()]

    other = request_with(sent(turn(prompt, "mine", system=system)).encode("utf-8", "surrogatepass"))
    [match] = CorrelationIndex(held, NO_RULES).find(other, ["openai"])
    assert match.interaction.index == 1001
    assert match.id_map == {NAME: "mine"}


def asked_often(index: CorrelationIndex, times: int) -> None:
    for _ in range(times):
        index.find(request_with(json.dumps(turn("nobody asked this")).encode()), ["openai"])


def found(index: CorrelationIndex, prompt: str, name: str = "mine") -> list[int]:
    request = request_with(json.dumps(turn(prompt, name)).encode())
    return [each.interaction.index for each in index.find(request, ["openai"])]


def conversations(count: int, times: int = 3) -> list[Interaction]:
    """Prompts of several recordings each, and the answer that issued the identifier in all."""
    issuing = exchange_of(times * count, b"{}", json.dumps({"id": NAME}).encode())
    prompts = [f"question {number % count}" for number in range(times * count)]
    turns = [json.dumps(turn(prompt)).encode() for prompt in prompts]
    return [*[exchange_of(at, body) for at, body in enumerate(turns)], issuing]


def test_after_many_searches_the_requests_are_read_and_none_is_searched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = CorrelationIndex(conversations(FEW_LOADED), NO_RULES)
    before = found(index, "question 7")
    asked_often(index, MOST_SEARCHES)
    assert index.unread == 0

    monkeypatch.setattr(correlation, "possible_matches", lambda recordings, texts: [*recordings])
    # An answer is read with the first, and answers are searched with the second.
    monkeypatch.delattr(ids, "issued_ids")
    monkeypatch.delattr(ids, "looks_random")

    assert found(index, "question 7", "not_asked_before") == before == [7, 107, 207]
    assert found(index, "question 1000") == []


def test_the_newest_of_many_candidates_are_compared_before_and_after_they_were_read() -> None:
    index = CorrelationIndex(conversations(1, times=FEW_LOADED), NO_RULES)
    later = exchange_of(FEW_LOADED + 1, json.dumps(turn("question 0")).encode())
    index.add(later)
    newest = [*range(FEW_LOADED - MOST_COMPARED + 1, FEW_LOADED), later.index]
    assert found(index, "question 0") == newest

    asked_often(index, MOST_SEARCHES)
    assert index.unread == 0
    assert found(index, "question 0") == newest


def test_few_recordings_are_searched_each_time() -> None:
    index = CorrelationIndex(conversations(FEW_LOADED // 4), NO_RULES)
    asked_often(index, MOST_SEARCHES + 1)

    assert index.unread == 3 * (FEW_LOADED // 4) + 1
    assert found(index, "question 7") == [7, 32, 57]


def test_what_was_removed_before_or_after_it_was_read_is_not_found() -> None:
    index = CorrelationIndex(conversations(FEW_LOADED), NO_RULES)
    index.remove(7)
    asked_often(index, MOST_SEARCHES + 1)
    assert found(index, "question 7") == [107, 207]

    index.remove(107)
    index.add(exchange_of(500, json.dumps(turn("question 7")).encode()))
    assert found(index, "question 7") == [207, 500]
