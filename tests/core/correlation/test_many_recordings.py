"""Which recordings of many are compared with a request, and which are read for that."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.correlation import index as correlation
from tapeway.core.correlation.index import MOST_ALIKE, CorrelationIndex
from tapeway.core.json_text import Json
from tapeway.core.matching.recorded_request import RecordedRequest
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


OTHERS = [f"a question of number {number}" for number in range(20)]


def many(*prompts: str) -> list[Interaction]:
    bodies = [json.dumps(turn(prompt)).encode() for prompt in (*OTHERS, *prompts)]
    return [exchange_of(index, body) for index, body in enumerate(bodies)]


def test_what_rules_put_into_a_text_does_not_tell_recordings_apart() -> None:
    held = many("at 10:00:59 in job 3f2b1c9e-8a57-4d3c-9e21-0b6f4c5d7e88, what was it?")
    held.append(exchange_of(len(held), b"{}", json.dumps({"id": NAME}).encode()))
    sent = "at 11:22:33 in job 4a5b1c9e-8a57-4d3c-9e21-0b6f4c5d7e88, what was it?"

    assert found(CorrelationIndex(held, Rules(normalise=("uuid", "time"))), sent) == [len(OTHERS)]
    assert found(CorrelationIndex(held, NO_RULES), sent) == []


texts = st.text(max_size=60).filter(lambda text: text.isprintable() or "\n" in text)
Spelling = Callable[[Json], str]
SPELLINGS: list[Spelling] = [
    lambda value: json.dumps(value),
    lambda value: json.dumps(value, ensure_ascii=False),
    lambda value: json.dumps(value, indent=2, sort_keys=True),
    lambda value: json.dumps(value, separators=(",", ":")).replace("/", "\\/"),
]


@given(texts, texts, st.sampled_from(SPELLINGS), st.sampled_from(SPELLINGS))
def test_other_spellings_of_the_same_json_are_found(
    prompt: str, system: str, recorded: Spelling, sent: Spelling
) -> None:
    issuing = exchange_of(1000, b"{}", json.dumps({"id": NAME}).encode())
    body = recorded(turn(prompt, system=system)).encode("utf-8", "surrogatepass")
    held = [issuing, exchange_of(1001, body), *many()]

    other = request_with(sent(turn(prompt, "mine", system=system)).encode("utf-8", "surrogatepass"))
    [match] = CorrelationIndex(held, NO_RULES).find(other, ["openai"])
    assert match.interaction.index == 1001
    assert match.id_map == {NAME: "mine"}


def found(index: CorrelationIndex, prompt: str, name: str = "mine") -> list[int]:
    request = request_with(json.dumps(turn(prompt, name)).encode())
    return [match.interaction.index for match in index.find(request, ["openai"])]


def conversations(count: int, times: int = 3) -> list[Interaction]:
    """Prompts of several recordings each, and the answer that issued the identifier in all."""
    issuing = exchange_of(times * count, b"{}", json.dumps({"id": NAME}).encode())
    prompts = [f"question {number % count}" for number in range(times * count)]
    turns = [json.dumps(turn(prompt)).encode() for prompt in prompts]
    return [*[exchange_of(at, body) for at, body in enumerate(turns)], issuing]


def test_each_request_is_read_once_and_none_before_a_request_with_references(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[Request] = []
    alike_key_of = correlation.alike_key_of

    def counted(recorded: RecordedRequest) -> bytes | None:
        read.append(recorded.request)
        return alike_key_of(recorded)

    loaded = conversations(10)
    monkeypatch.setattr(correlation, "alike_key_of", counted)
    index = CorrelationIndex(loaded, NO_RULES)

    index.find(request_with(b'{"messages": [{"content": "a question"}]}'), ["openai"])
    assert read == []

    assert found(index, "question 7") == [7, 17, 27]
    assert found(index, "question 8") == [8, 18, 28]
    assert read == [exchange.request for exchange in loaded]
    assert index.unread == 0


def test_of_many_candidates_the_newest_are_compared() -> None:
    index = CorrelationIndex(conversations(1, times=MOST_ALIKE + 6), NO_RULES)
    assert found(index, "question 0") == [*range(6, MOST_ALIKE + 6)]

    index.add(exchange_of(MOST_ALIKE + 7, json.dumps(turn("question 0")).encode()))
    index.remove(MOST_ALIKE + 5)
    assert found(index, "question 0") == [*range(6, MOST_ALIKE + 5), MOST_ALIKE + 7]


def test_candidates_on_other_routes_and_of_other_methods_are_not_found() -> None:
    loaded = conversations(1)
    loaded[0] = replace(loaded[0], request=replace(loaded[0].request, route="other"))
    loaded[1] = replace(loaded[1], request=replace(loaded[1].request, method="PUT"))

    assert found(CorrelationIndex(loaded, NO_RULES), "question 0") == [2]


def test_what_was_removed_before_or_after_it_was_read_is_not_found() -> None:
    index = CorrelationIndex(conversations(100), NO_RULES)
    index.remove(7)
    assert found(index, "question 7") == [107, 207]

    index.remove(107)
    index.add(exchange_of(500, json.dumps(turn("question 7")).encode()))
    assert found(index, "question 7") == [207, 500]


def test_others_may_run_after_each_recording_that_is_read() -> None:
    loaded, steps = conversations(10), list[int]()
    index = CorrelationIndex(loaded, NO_RULES)
    asked = request_with(json.dumps(turn("question 7", "mine")).encode())

    assert len(index.find(asked, ["openai"], lambda: steps.append(1))) == 3
    assert len(steps) == 2 * len(loaded)
    assert len(index.find(asked, ["openai"], lambda: steps.append(1))) == 3
    assert len(steps) == 2 * len(loaded)
