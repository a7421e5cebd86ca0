"""The quick look drops what cannot be the request, and never what could."""

import json
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.correlation.index import ENOUGH, Identifiers, sifted
from tapeway.core.correlation.unify import leaves
from tapeway.core.json_text import Json
from tapeway.core.matching.document import document
from tapeway.core.matching.rules import Rules
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseChunk, ResponseHead
from tests.core.keys import JSON

NAME = "call_h5Xw0Vb1jZ"


def asked(body: bytes) -> Request:
    return Request("openai", "POST", "/v1/chat", JSON, body)


def exchange(index: int, body: bytes, answer: bytes = b"{}") -> Interaction:
    response = Response(ResponseHead(200, headers=JSON), (ResponseChunk(answer),))
    return Interaction(index, asked(body), response)


def turn(prompt: str, name: str = NAME, **more: Json) -> dict[str, Json]:
    said: list[Json] = [
        {"role": "user", "content": prompt},
        {"role": "tool", "tool_call_id": name, "content": "sunny"},
    ]
    return {"model": "gpt-4.1", "messages": said, **more}


def left(held: list[Interaction], body: bytes, rules: Rules | None = None) -> list[int]:
    said = list(leaves(document(asked(body), rules or Rules())))
    return [each.index for each in sifted(held, said)]


def many(*prompts: str) -> list[Interaction]:
    others = [f"a question of number {number}" for number in range(2 * ENOUGH)]
    bodies = [json.dumps(turn(prompt)).encode() for prompt in (*others, *prompts)]
    return [exchange(index, body) for index, body in enumerate(bodies)]


def test_of_many_those_that_say_the_same_are_left() -> None:
    held = many("how is the weather in Rome?")

    assert left(held, json.dumps(turn("how is the weather in Rome?", "mine")).encode()) == [
        held[-1].index
    ]


def test_what_has_no_link_of_that_name_is_not_left() -> None:
    plain = [exchange(each.index, b'{"messages":[{"content":"sunny"}]}') for each in many()]

    assert left(plain, json.dumps(turn("sunny", "mine")).encode()) == []


def test_what_rules_put_into_a_text_is_not_looked_for() -> None:
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
def test_other_spellings_of_the_same_are_left_and_found(
    prompt: str, system: str, recorded: Spelling, sent: Spelling
) -> None:
    issuing = exchange(1000, b"{}", json.dumps({"id": NAME}).encode())
    body = recorded(turn(prompt, system=system)).encode("utf-8", "surrogatepass")
    held = [issuing, exchange(1001, body), *many()]

    other = asked(sent(turn(prompt, "mine", system=system)).encode("utf-8", "surrogatepass"))
    [match] = Identifiers(held).look(other, ["openai"])
    assert match.interaction.index == 1001
    assert match.names == {NAME: "mine"}
