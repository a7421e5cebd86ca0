"""What several requests have in common is written once, and every request comes back whole."""

import json
import random
from typing import Any

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.formats import jsonl
from tapeway.formats.cassette_file import JSON, YAML, Serializer
from tapeway.formats.errors import FormatFault
from tapeway.formats.native.document import encode

HEAD = CassetteHead("2026-11-22T10:00:00Z", "run")
TOOLS: list[Json] = [{"name": f"tool_{n}", "description": "x" * 200} for n in range(10)]
PROMPT = "You are careful. " * 100
BOTH = pytest.mark.parametrize("serializer", [JSON, YAML], ids=["json", "yaml"])


def _turns(*bodies: Json) -> StoredCassette:
    head = ResponseHead(200, "OK", ((b"Content-Type", b"application/json"),))
    return StoredCassette(
        HEAD,
        tuple(
            Interaction(
                index,
                Request(
                    *("openai", "POST", "/v1/chat/completions"),
                    ((b"Content-Type", b"application/json"),),
                    json.dumps(body, separators=(",", ":")).encode(),
                    "https://api.openai.com",
                ),
                Response(head, b'{"n": %d}' % index, 1.0),
            )
            for index, body in enumerate(bodies)
        ),
    )


def _agent(turns: int) -> StoredCassette:
    messages: list[Json] = [{"role": "user", "content": "Hello " * 200}]
    bodies: list[Json] = []
    for turn in range(turns):
        bodies.append({"model": "m", "system": PROMPT, "tools": TOOLS, "messages": [*messages]})
        messages.append({"role": "assistant", "content": f"Answer {turn} " * 20})
        messages.append({"role": "user", "content": f"Question {turn}"})
    return _turns(*bodies)


def _requests(text: bytes) -> list[Any]:
    return [interaction["request"] for interaction in json.loads(text)["interactions"]]


def _bodies(cassette: StoredCassette) -> list[bytes]:
    return [
        interaction.request.body
        for interaction in cassette.interactions
        if isinstance(interaction, Interaction)
    ]


def test_a_later_turn_names_the_earlier_one_that_has_its_prompt_and_its_messages() -> None:
    _, second, third = _requests(JSON.save(_agent(3)))

    assert second["json"]["model"] == "m"
    assert second["json"]["system"].startswith("as in #0 (")
    assert second["json"]["tools"].startswith("as in #0 (")
    assert second["json"]["messages"][0].startswith("the first 1 as in #0 (")
    assert [message["role"] for message in second["json"]["messages"][1:]] == ["assistant", "user"]
    assert third["json"]["messages"][0].startswith("the first 3 as in #1 (")
    assert third["shared"] == ["system", "tools", "messages"]


@BOTH
def test_every_request_comes_back_byte_for_byte(serializer: Serializer) -> None:
    cassette = _agent(5)
    text = serializer.save(cassette)

    assert _bodies(serializer.load(text)) == _bodies(cassette)
    assert serializer.save(serializer.load(text)) == text


def test_three_turns_of_an_agent_take_a_third_of_what_they_would() -> None:
    tools: list[Json] = [
        {"name": f"Tool{n}", "description": f"{n} is used so. " * 120, "input_schema": {"n": n}}
        for n in range(25)
    ]
    system: list[Json] = [{"type": "text", "text": PROMPT * 10}]
    bodies: list[Json] = []
    messages: list[Json] = []
    for turn in range(3):
        messages.append({"role": "user", "content": f"Turn {turn}. " * 100})
        bodies.append({"system": system, "tools": tools, "messages": [*messages]})
    cassette = _turns(*bodies)
    apart = sum(
        [
            len(JSON.save(StoredCassette(HEAD, (interaction,))))
            for interaction in cassette.interactions
        ]
    )

    assert len(JSON.save(cassette)) < apart * 0.36


def test_a_changed_tool_is_written_alone_and_the_others_are_those_of_the_earlier_turn() -> None:
    changed: list[Json] = [*TOOLS[:4], {"name": "tool_4", "description": "y" * 200}, *TOOLS[5:]]
    cassette = _turns({"tools": TOOLS}, {"tools": changed})

    tools = _requests(JSON.save(cassette))[1]["json"]["tools"]

    assert [tool if isinstance(tool, dict) else tool[:-11] for tool in tools] == [
        *TOOLS[:4],
        changed[4],
        "items 5 to the last as in #0",
    ]
    assert _bodies(JSON.load(JSON.save(cassette))) == _bodies(cassette)


def test_a_long_text_is_shared_where_only_what_is_beside_it_differs() -> None:
    def body(*more: Json, cached: bool) -> Json:
        text: dict[str, Json] = {"type": "text", "text": PROMPT}
        if cached:
            text["cache_control"] = {"type": "ephemeral"}
        return {"messages": [{"role": "user", "content": [text, {"type": "text"}]}, *more]}

    cassette = _turns(body(cached=True), body({"role": "assistant"}, cached=False))

    (message, _) = _requests(text := JSON.save(cassette))[1]["json"]["messages"]

    assert message["content"][0]["text"].startswith("as in #0 (")
    assert _bodies(JSON.load(text)) == _bodies(cassette)


def test_items_that_moved_are_found_where_they_were() -> None:
    other: Json = {"name": "one more", "description": "z" * 1200}
    cassette = _turns(
        {"tools": TOOLS}, {"tools": [other, *TOOLS[3:]]}, {"tools": [*TOOLS[3:9], other]}
    )

    _, second, third = _requests(text := JSON.save(cassette))

    assert second["json"]["tools"][1].startswith("items 3 to the last as in #0 (")
    assert [tool[:-11] for tool in third["json"]["tools"]] == [
        "items 1 to 6 as in #1",
        "the first 1 as in #1",
    ]
    assert _bodies(JSON.load(text)) == _bodies(cassette)


def test_a_tool_added_to_the_first_turn_by_hand_is_added_to_all() -> None:
    bodies: list[Json] = [{"tools": [{"name": name}, *TOOLS]} for name in ("a", "b")]
    value = json.loads(JSON.save(_turns(*bodies)))
    value["interactions"][0]["request"]["json"]["tools"].append({"name": "by hand"})

    found = _bodies(JSON.load(json.dumps(value).encode()))

    assert [body.count(b"by hand") for body in found] == [1, 1]


def test_a_run_that_an_edit_made_too_short_is_refused_with_its_place() -> None:
    value = json.loads(JSON.save(_turns({"tools": TOOLS}, {"tools": [*TOOLS[1:9], {"name": "x"}]})))
    del value["interactions"][0]["request"]["json"]["tools"][3:]

    with pytest.raises(FormatFault, match=r"the number 0 and 'tools' with 9 items") as at:
        JSON.load(json.dumps(value, indent=2).encode())

    assert at.value.pointer == ("interactions", 1, "request", "json", "tools", 0)


@BOTH
def test_an_edit_of_the_first_part_is_seen_in_every_turn(serializer: Serializer) -> None:
    text = serializer.save(_agent(3)).replace(b"You are careful. ", b"You are quick. ", 1)

    found = _bodies(serializer.load(text))

    assert [body.count(b"You are quick. ") for body in found] == [1, 1, 1]


def test_an_edit_of_a_reference_counts_as_it_stands() -> None:
    requests = _requests(text := JSON.save(_agent(2)))
    reference = requests[1]["json"]["system"].encode()

    found = _bodies(JSON.load(text.replace(b'"%b"' % reference, b'"Be brief."', 1)))

    assert b'"system":"Be brief."' in found[1]
    assert PROMPT.encode() in found[0]


def test_a_request_without_its_first_one_is_refused_with_its_line() -> None:
    value = json.loads(JSON.save(_agent(2)))
    del value["interactions"][0]
    text = json.dumps(value, indent=2).encode()

    with pytest.raises(
        FormatFault, match="no request before it has the number 0 and 'system'"
    ) as at:
        JSON.load(text)

    assert b'"system": "as in #0' in text.splitlines()[(at.value.line or 0) - 1]


def test_numbers_that_something_else_changed_do_not_change_what_is_meant() -> None:
    other = _turns({"system": "Another one. " * 200, "tools": TOOLS[::-1], "messages": []})
    value = json.loads(JSON.save(_agent(3)))
    (first,) = json.loads(JSON.save(other))["interactions"]
    # As git does where one branch removed a recording and the other one added some.
    for interaction in value["interactions"]:
        interaction["index"] += 1
    value["interactions"].insert(0, first)

    found = JSON.load(json.dumps(value).encode())

    assert _bodies(found)[1:] == _bodies(_agent(3))


def test_a_body_that_looks_like_a_reference_is_itself() -> None:
    like: Json = {"system": "as in #0 (00000000)", "messages": ["the first 1 as in #0 (00000000)"]}
    cassette = _turns({"system": PROMPT, "messages": [{"a": PROMPT}]}, like, like)

    assert _bodies(JSON.load(JSON.save(cassette))) == _bodies(cassette)


def test_small_values_are_repeated_in_their_place() -> None:
    body: Json = {"system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]}

    assert "shared" not in _requests(JSON.save(_turns(body, body)))[1]


def test_other_formats_have_every_request_whole() -> None:
    cassette = JSON.load(JSON.save(_agent(3)))

    lines = jsonl.write(cassette).splitlines()[1:]

    assert [json.loads(line)["request"]["json"]["system"] for line in lines] == [PROMPT] * 3
    assert all("shared" not in encode(interaction) for interaction in cassette.interactions)


@BOTH
def test_random_cassettes_come_back_byte_for_byte(serializer: Serializer) -> None:
    draw = random.Random(14)
    texts: list[Json] = ["a" * 1100, "b" * 600, "c", PROMPT, 1.0, 1, None, -0.0]
    for _ in range(100):
        bodies: list[Json] = []
        for _ in range(draw.randrange(1, 7)):
            items: list[Any] = [
                draw.choice([{"t": draw.choice(texts), "u": draw.random()}, {"u": 1}, "plain"])
                for _ in range(draw.randrange(5))
            ]
            if bodies and draw.random() < 0.7:
                earlier = draw.choice(bodies)
                if isinstance(earlier, dict) and isinstance(begun := earlier.get("m"), list):
                    start, stop = sorted(draw.choices(range(len(begun) + 1), k=2))
                    items = [*items[:1], *begun[start:stop], *items[1:]]
            body: Json = {"m": items, "s": draw.choice(texts), "d": {"x": draw.choice(texts)}}
            bodies.append(draw.choice([body, body, items]))
        cassette = _turns(*bodies)

        text = serializer.save(cassette)

        assert _bodies(serializer.load(text)) == _bodies(cassette)
