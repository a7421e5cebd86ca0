"""A conversation with other identifiers is the recorded one, and one that differs in more is not."""

import json
import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.correlation import ids
from tapeway.core.correlation.index import (
    MOST_SEARCHES,
    CorrelationIndex,
    IssuedIds,
)
from tapeway.core.correlation.unify import IdBindings
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tests.core.keys import JSON

CALLS = ("call_h5Xw0Vb1jZ", "call_Qp7Lm2Kd9R")
JsonTexts = st.sampled_from(
    [
        *("a", "auto", "42", "1a2b3c4d", "call_h5Xw0Vb1jZ", "two words", "files/abc123de", 'a"b'),
        *("https://h/v1/files/f1e2d3c4?id=9z8y7x6w#a1b2c3d4", "é1a2b3c4d", ""),
    ]
)
field_names = st.sampled_from(["id", "call_id", "ids", "toolUseId", "content", "x", "name", "d"])
values: st.SearchStrategy[Json] = st.recursive(
    JsonTexts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(field_names, inner, max_size=3),
    max_leaves=8,
)
NAME = "call_h5Xw0Vb1jZ"


def asked(body: Json, target: str = "/v1/chat") -> Request:
    return Request("openai", "POST", target, JSON, dump(body))


def exchange(index: int, request: Request, answer: Json) -> Interaction:
    return Interaction(index, request, Response(ResponseHead(200, headers=JSON), dump(answer)))


def first(prompt: str = "What is the weather in Rome and Oslo?") -> dict[str, Json]:
    return {"model": "gpt-4.1", "stream": False, "messages": [{"role": "user", "content": prompt}]}


def tool_call(name: str, city: str) -> Json:
    return {"id": name, "function": {"name": "weather", "arguments": f'{{"city": "{city}"}}'}}


def second(
    one: str = CALLS[0],
    two: str = CALLS[1],
    *,
    results: tuple[str, str] = ("sunny", "snowy"),
    order: Callable[[list[Json]], list[Json]] = list,
) -> dict[str, Json]:
    said = first()
    answers: list[Json] = [
        {"role": "tool", "tool_call_id": one, "content": results[0]},
        {"role": "tool", "tool_call_id": two, "content": results[1]},
    ]
    calls: list[Json] = [tool_call(one, "Rome"), tool_call(two, "Oslo")]
    assert isinstance(said["messages"], list)
    said["messages"] += [{"role": "assistant", "tool_calls": calls}, *order(answers)]
    return said


def messages(body: dict[str, Json]) -> list[Json]:
    found = body["messages"]
    assert isinstance(found, list)
    return found


def conversation(rules: Rules | None = None) -> CorrelationIndex:
    calls: list[Json] = [tool_call(CALLS[0], "Rome"), tool_call(CALLS[1], "Oslo")]
    turns = [
        exchange(0, asked(first()), {"id": "chatcmpl-1a2b3c4d", "tool_calls": calls}),
        exchange(1, asked(second()), {"id": "chatcmpl-5e6f7a8b", "content": "Sunny and snowy."}),
    ]
    return CorrelationIndex(turns, rules or Rules())


def found(index: CorrelationIndex, body: Json, target: str = "/v1/chat") -> list[int]:
    return [match.interaction.index for match in index.find(asked(body, target), ["openai"])]


def test_identifiers_that_answers_issued_are_known() -> None:
    issued = conversation().issued

    assert [issued.issuer_of(call) for call in (*CALLS, "chatcmpl-1a2b3c4d")] == [0, 0, 0]
    assert issued.issuer_of("chatcmpl-5e6f7a8b") == 1
    assert not any(text in issued for text in ("Rome", "city", "call_h5Xw0Vb1j", "weather", ""))


def test_a_request_with_other_identifiers_is_found() -> None:
    [match] = conversation().find(asked(second("my_1", "my_2")), ["openai"])

    assert match.interaction.index == 1
    assert match.id_map == {CALLS[0]: "my_1", CALLS[1]: "my_2"}


@pytest.mark.parametrize(
    "body",
    [
        second("my_1", "my_1"),
        second("my_1", "two words"),
        second("my_1", ""),
        second(CALLS[1], CALLS[0]),
        second("my_1", CALLS[0]),
        second("my_1", "chatcmpl-1a2b3c4d"),
        second("my_1", "my_2", results=("snowy", "sunny")),
        second("my_1", "my_2", results=("sunny", "rainy")),
        second("my_1", "my_2", order=lambda answers: answers[::-1]),
        {**second("my_1", "my_2"), "stream": True},
        {**second("my_1", "my_2"), "model": "gpt-4.2"},
        {**second("my_1", "my_2"), "temperature": 0},
        {**second("my_1", "my_2"), "tools": [{"name": "other"}]},
        first("What is the weather in Rome?"),
        {
            **first(),
            "messages": [*messages(second("my_1", "my_2")), {"role": "user", "content": "?"}],
        },
        {**first(), "messages": messages(second("my_1", "my_2"))[:-1]},
    ],
)
def test_a_request_that_differs_in_more_is_not_found(body: Json) -> None:
    assert found(conversation(), body) == []


def test_another_route_path_or_method_is_not_found() -> None:
    body = second("my_1", "my_2")

    assert conversation().find(asked(body), ["azure"]) == []
    assert found(conversation(), body, "/v2/chat") == []
    assert (
        conversation().find(Request("openai", "PUT", "/v1/chat", JSON, dump(body)), ["openai"])
        == []
    )


def test_rules_in_force_apply() -> None:
    body = {**second("my_1", "my_2"), "user": "a1b2c3"}

    assert found(conversation(), body) == []
    assert found(conversation(Rules(ignore=("body.user",))), body) == [1]
    everywhere = conversation(Rules(ignore=("body.user", "query", "headers")))
    assert found(everywhere, body, "/v1/chat?n=1") == [1]


@pytest.mark.parametrize(
    ("held", "sent"),
    [
        ("/v1/threads/thread_a1b2c3d4/runs", "/v1/threads/thread_z9y8x7w6/runs"),
        ("/v1/files?after=file-a1b2c3d4", "/v1/files?after=file-z9y8x7w6"),
        ("/users/9780306406157", "/users/9781861972712"),
    ],
)
def test_another_identifier_in_a_path_or_a_query_is_another_object(held: str, sent: str) -> None:
    issued: list[Json] = [{"id": part} for part in re.split("[/?=]", held)]
    turns = [exchange(0, asked({}, "/all"), issued), exchange(1, asked({}, held), {})]

    assert found(CorrelationIndex(turns, NO_RULES), {}, sent) == []


@pytest.mark.parametrize(
    ("answered", "held", "sent"),
    [
        ({"isbn": "9780306406157"}, {"isbn": "9780306406157"}, {"isbn": "9781861972712"}),
        ({"sku": "B07XYZ1234"}, {"sku": "B07XYZ1234"}, {"sku": "B08ABC9876"}),
        ({"id": "usr_1a2b3c4d"}, {"user_id": "usr_1a2b3c4d"}, {"user_id": "usr_9z8y7x6w"}),
        ({"user_id": "42"}, {"user_id": "42"}, {"user_id": "43"}),
        ({"id": "US"}, {"country": "US"}, {"country": "FR"}),
        ({"voice_id": "alloy"}, {"voice": "alloy"}, {"voice": "echo"}),
        ({"id": "gpt-4o"}, {"deployment": "gpt-4o"}, {"deployment": "gpt-4.1"}),
        ({"email": "ann12345@x.test"}, {"to": "ann12345@x.test"}, {"to": "bob@x.test"}),
        ({"id": "file-a1b2c3"}, {"file_id": "file-a1b2c3"}, {"file_id": "file-d4e5f6"}),
        ({"id": "R_kgDOAbc"}, {"variables": {"id": "R_kgDOAbc"}}, {"variables": {"id": "R_2"}}),
        ({"id": "prod_1"}, {"items": [{"id": "prod_1"}]}, {"items": [{"id": "prod_2"}]}),
        (
            {"id": "file-a1b2c3"},
            {"messages": [{"content": [{"type": "file", "file_id": "file-a1b2c3"}]}]},
            {"messages": [{"content": [{"type": "file", "file_id": "file-d4e5f6"}]}]},
        ),
        (
            {"input": {"id": "order_1a2b"}},
            {"messages": [{"content": [{"type": "tool_use", "input": {"id": "order_1a2b"}}]}]},
            {"messages": [{"content": [{"type": "tool_use", "input": {"id": "order_3c4d"}}]}]},
        ),
        (
            {"args": {"call_id": "1a2b3c4d"}},
            {"contents": [{"functionCall": {"args": {"call_id": "1a2b3c4d"}}}]},
            {"contents": [{"functionCall": {"args": {"call_id": "5e6f7a8b"}}}]},
        ),
    ],
)
def test_another_identifier_in_a_field_of_a_body_is_another_object(
    answered: Json, held: Json, sent: Json
) -> None:
    turns = [exchange(0, asked({}, "/all"), answered), exchange(1, asked(held), {})]

    assert found(CorrelationIndex(turns, NO_RULES), sent) == []


@pytest.mark.parametrize(
    "conversation",
    [
        '{"messages":[{"tool_calls":[{"id":"A"}]},{"role":"tool","tool_call_id":"A"}]}',
        '{"messages":[{"content":[{"type":"tool_result","tool_use_id":"A"}]}]}',
        '{"messages":[{"content":[{"toolResult":{"toolUseId":"A","content":[{"json":{}}]}}]}]}',
        '{"contents":[{"parts":[{"functionResponse":{"id":"A","response":{"id":"7"}}}]}]}',
        '{"contents":[{"parts":[{"thoughtSignature":"A","functionCall":{"args":{}}}]}]}',
        '{"previous_response_id":"A","input":[{"type":"function_call_output","call_id":"A"}]}',
        '{"input":[{"type":"reasoning","id":"A","encrypted_content":"A"}]}',
        '{"tool_outputs":[{"tool_call_id":"A","output":"fog"}]}',
    ],
)
def test_references_within_a_conversation_may_differ(conversation: str) -> None:
    held, sent = [json.loads(conversation.replace("A", name)) for name in ("x_1a2b3c4d", "mine")]
    turns = [exchange(0, asked(first()), {"id": "x_1a2b3c4d"}), exchange(1, asked(held), {})]

    assert found(CorrelationIndex(turns, NO_RULES), sent) == [1]


TIES = [
    '{"messages":[{"tool_calls":[{"id":"A"}]},{"role":"tool","tool_call_id":"A"}]}',
    '{"messages":[{"content":[{"type":"tool_use","id":"A"}]},'
    '{"content":[{"type":"tool_result","tool_use_id":"A"}]}]}',
    '{"messages":[{"content":[{"toolUse":{"toolUseId":"A"}}]},'
    '{"content":[{"toolResult":{"toolUseId":"A"}}]}]}',
    '{"contents":[{"parts":[{"functionCall":{"id":"A"}}]},'
    '{"parts":[{"functionResponse":{"id":"A","response":{"id":"7"}}}]}]}',
    '{"input":[{"type":"function_call","call_id":"A"},'
    '{"type":"function_call_output","call_id":"A"}]}',
]


@pytest.mark.parametrize("conversation", TIES)
def test_names_that_the_app_drew_for_a_call_and_its_result_may_differ(conversation: str) -> None:
    held, sent = [json.loads(conversation.replace("A", name)) for name in ("pyd_ai_1a2b", "mine")]
    index = CorrelationIndex([exchange(0, asked(held), {})], NO_RULES)

    assert found(index, sent) == [0]
    index = CorrelationIndex([], NO_RULES)
    index.add(exchange(0, asked(held), {}))
    assert found(index, sent) == [0]


@pytest.mark.parametrize("conversation", TIES)
def test_a_drawn_name_that_ties_nothing_in_the_other_request_is_another_object(
    conversation: str,
) -> None:
    index = CorrelationIndex([exchange(0, asked(json.loads(conversation)), {})], NO_RULES)

    loose = [conversation.replace("A", "mine", 1), conversation[::-1].replace("A", "enim", 1)[::-1]]
    assert [found(index, json.loads(text)) for text in loose] == [[], []]


@pytest.mark.parametrize(
    "conversation",
    [
        '{"messages":[{"role":"tool","tool_call_id":"A"}]}',
        '{"messages":[{"role":"user","id":"A"},{"role":"user","id":"A"}]}',
        '{"input":[{"type":"item_reference","id":"A"},{"type":"item_reference","id":"A"}]}',
        '{"previous_response_id":"A","input":[]}',
        '{"contents":[{"parts":[{"functionCall":{"args":{"id":"A"}}},{"functionResponse":{"response":{"id":"A"}}}]}]}',
    ],
)
def test_a_drawn_name_that_ties_nothing_is_an_object(conversation: str) -> None:
    held, sent = [json.loads(conversation.replace("A", name)) for name in ("own_1a2b", "own_3c4d")]

    assert found(CorrelationIndex([exchange(0, asked(held), {})], NO_RULES), sent) == []


def drawn(*names: str, results: tuple[str, str] = ("sun", "snow")) -> Json:
    calls: list[Json] = [tool_call(name, city) for name, city in zip(names, "RO", strict=True)]
    told: list[Json] = [
        {"role": "tool", "tool_call_id": name, "content": result}
        for name, result in zip(names, results, strict=True)
    ]
    return {**first(), "messages": [{"role": "assistant", "tool_calls": calls}, *told]}


def test_drawn_names_obey_the_rules_of_issued_ones() -> None:
    index = CorrelationIndex(
        [
            exchange(0, asked(drawn("own_1", "own_2")), {"id": "resp_1a2b3c4d"}),
            exchange(1, asked(drawn("own_3", "own_4")), {}),
        ],
        NO_RULES,
    )

    assert found(index, drawn("x", "y")) == [0, 1]
    assert found(index, drawn("own_2", "own_1")) == [0, 1]
    assert found(index, drawn("x", "x")) == []
    assert found(index, drawn("x", "resp_1a2b3c4d")) == []
    assert found(index, drawn("x", "y", results=("snow", "sun"))) == []


def test_two_calls_cannot_share_an_identifier_where_only_one_was_issued() -> None:
    turns = [
        exchange(0, asked(first()), {"id": CALLS[0]}),
        exchange(1, asked(second(CALLS[0], "own_1")), {}),
    ]

    assert found(CorrelationIndex(turns, NO_RULES), second("own_2", "own_1")) == [1]
    assert found(CorrelationIndex(turns, NO_RULES), second("own_1", "own_1")) == []


def test_an_identifier_the_app_chose_was_not_issued() -> None:
    own = "conversation_a1b2c3"
    turns = [
        exchange(0, asked({"conversation_id": own}), {"conversation_id": own}),
        exchange(1, asked({"conversation_id": own, "more": True}), {}),
    ]

    assert (
        found(CorrelationIndex(turns, NO_RULES), {"conversation_id": "another", "more": True}) == []
    )


@pytest.mark.parametrize("name", ["content", "text", "model", "prompt", "role"])
def test_content_may_not_differ_even_where_it_is_an_identifier(name: str) -> None:
    turns = [
        exchange(0, asked({}, "/a"), {"id": "order_a1b2c3d4"}),
        exchange(1, asked({"call_id": "order_a1b2c3d4", name: "order_a1b2c3d4"}), {}),
    ]
    index = CorrelationIndex(turns, NO_RULES)

    assert found(index, {"call_id": "mine", name: "order_a1b2c3d4"}) == [1]
    assert found(index, {"call_id": "mine", name: "mine"}) == []


def test_several_matches_are_in_order_unless_an_issued_identifier_is_sent() -> None:
    turns = [
        exchange(0, asked({}, "/a"), {"id": "resp_a1b2c3d4"}),
        exchange(1, asked({}, "/b"), {"id": "resp_e5f6a7b8"}),
        exchange(
            2, asked({"previous_response_id": "resp_a1b2c3d4", "call_id": "resp_a1b2c3d4"}), {}
        ),
        exchange(
            3, asked({"previous_response_id": "resp_e5f6a7b8", "call_id": "resp_e5f6a7b8"}), {}
        ),
    ]

    assert found(
        CorrelationIndex(turns, NO_RULES), {"previous_response_id": "mine", "call_id": "mine"}
    ) == [
        2,
        3,
    ]
    assert found(
        CorrelationIndex(turns, NO_RULES),
        {"previous_response_id": "resp_e5f6a7b8", "call_id": "resp_e5f6a7b8"},
    ) == [3]


def test_a_recording_added_later_is_found() -> None:
    index = CorrelationIndex([], NO_RULES)
    index.add(exchange(0, asked(first()), {"id": "call_h5Xw0Vb1jZ"}))
    index.add(exchange(1, asked({"call_id": "call_h5Xw0Vb1jZ"}), {}))

    assert found(index, {"call_id": "mine"}) == [1]
    assert index.issued_in(asked({"call_id": "call_h5Xw0Vb1jZ", "x": "word"})) == {
        "call_h5Xw0Vb1jZ": 0
    }


names = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_categories=["Zs", "Cc", "Cs"]),
    min_size=1,
    max_size=9,
)


@given(names, names)
def test_any_identifiers_that_correspond_one_to_one_are_found(one: str, two: str) -> None:
    assert found(conversation(), second(one, two)) == ([1] if one != two else [])


@given(names, names, st.sampled_from(["tool_call_id", "id"]), st.sampled_from([0, 1]))
def test_a_request_with_another_identifier_at_one_place_is_not_found(
    one: str, two: str, key: str, position: int
) -> None:
    body = second(one, two)
    said = messages(body)
    assistant = said[1]
    assert isinstance(assistant, dict)
    calls = assistant["tool_calls"]
    place = said[2 + position] if key == "tool_call_id" else calls and calls[position]  # type: ignore[index]
    assert isinstance(place, dict)
    place[key] = "a-third-name-of-its-own"

    assert found(conversation(), body) == []


def test_two_identifiers_in_use_cannot_change_places() -> None:
    bindings = IdBindings()
    bindings.bind({"c1": "x1", "c2": "x2"})

    assert bindings.allows({"c1": "x1", "c2": "x2"})
    assert bindings.allows({"c1": "fresh", "c2": "new"})
    assert bindings.allows({"c3": "x1"})
    assert not bindings.allows({"c1": "x2"})
    assert not bindings.allows({"c1": "x2", "c2": "x1"})


def answered_with(index: int, answer: bytes, *fields: tuple[bytes, bytes]) -> Interaction:
    request = Request("openai", "POST", "/v1/chat", JSON, b'{"conversation_id":"own_1a2b3c"}')
    response = Response(ResponseHead(200, headers=(*JSON, *fields)), answer)
    return Interaction(index, request, response)


@given(st.lists(values, min_size=1, max_size=4), st.sampled_from([b"", b" ", b"\n  "]))
def test_searching_and_reading_answers_find_the_same_identifiers(
    answers: list[Json], blank: bytes
) -> None:
    held = [
        answered_with(index, dump(answer).replace(b":", blank + b":" + blank))
        for index, answer in enumerate(answers)
    ]
    searched, added, read = IssuedIds(held), IssuedIds([]), IssuedIds([])
    assert read.issuer_of("nobody_a1b2") is None
    for interaction in held:
        added.add(interaction)
        read.add(interaction)

    for interaction in held:
        for text in ids.issued_ids(interaction.response) | {
            "auto",
            "a",
            "content",
            "two words",
            "",
        }:
            assert searched.issuer_of(text) == added.issuer_of(text) == read.issuer_of(text)


def test_the_first_answer_counts_and_so_do_its_headers() -> None:
    issued = IssuedIds(
        [
            answered_with(3, b'{"id":"x"}', (b"Location", b"/v1/jobs/job_1a2b3c4d")),
            answered_with(4, b'{"id":"x","job_id":"job_1a2b3c4d"}'),
        ]
    )

    assert (issued.issuer_of("x"), issued.issuer_of("job_1a2b3c4d")) == (3, 3)


def test_after_many_searches_the_answers_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    issued = IssuedIds(
        [answered_with(index, b'{"id":"call_%03da1b2"}' % (index // 2)) for index in range(9)]
    )
    for number in range(MOST_SEARCHES):
        assert issued.issuer_of(f"nobody_{number}a1b2") is None
    assert issued.issuer_of("call_001a1b2") == 2

    monkeypatch.delattr(ids, "issued_ids")

    assert [issued.issuer_of(f"call_00{number}a1b2") for number in range(6)] == [
        0,
        2,
        4,
        6,
        8,
        None,
    ]


def test_an_identifier_that_the_request_held_was_not_issued() -> None:
    assert "own_1a2b3c" not in IssuedIds([answered_with(0, b'{"id":"own_1a2b3c"}')])


def test_no_answer_is_read_before_an_identifier_is_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [answered_with(number, b'{"id":"call_%03da1b2"}' % number) for number in range(3)]
    with monkeypatch.context() as reading:
        reading.delattr(ids, "issued_ids")
        issued = IssuedIds(answers)
        issued.remove(1)
        assert issued.issuer_of("two words") is None
        assert issued.unread == 3

    assert [issued.issuer_of(f"call_00{number}a1b2") for number in range(3)] == [0, None, 2]


@pytest.mark.parametrize("searches", [1, MOST_SEARCHES + 1])
def test_later_answers_are_read_as_they_are_added(
    searches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = IssuedIds([answered_with(0, b'{"id":"call_000a1b2"}')])
    for number in range(searches):
        assert issued.issuer_of(f"nobody_{number}a1b2") is None
    issued.add(answered_with(1, b'{"id":"call_001a1b2"}'))
    monkeypatch.delattr(ids, "issued_ids")

    assert issued.issuer_of("call_001a1b2") == 1
    assert issued.unread == (searches == 1)


def test_an_identifier_issued_after_a_search_is_found() -> None:
    issued = IssuedIds([answered_with(0, b"{}")])
    assert issued.issuer_of("call_h5Xw0Vb1jZ") is None

    issued.add(answered_with(1, b'{"id":"call_h5Xw0Vb1jZ"}'))

    assert issued.issuer_of("call_h5Xw0Vb1jZ") == 1


@pytest.mark.parametrize("searches", [0, MOST_SEARCHES])
def test_what_a_removed_answer_issued_counts_only_if_another_answer_issued_it(
    searches: int,
) -> None:
    issued = IssuedIds([answered_with(number, b'{"id":"call_h5Xw0Vb1jZ"}') for number in (0, 1)])
    for number in range(searches):
        assert issued.issuer_of(f"nobody_{number}a1b2") is None
    for number in (2, 3):
        issued.add(answered_with(number, b'{"id":"call_h5Xw0Vb1jZ"}'))

    left = [issued.issuer_of("call_h5Xw0Vb1jZ")]
    for number in (1, 0, 2, 3):
        issued.remove(number)
        left.append(issued.issuer_of("call_h5Xw0Vb1jZ"))

    assert left == [0, 0, 2, 3, None]


def test_recordings_that_are_not_read_yet_count_as_unread() -> None:
    index = CorrelationIndex([answered_with(number, b"{}") for number in range(3)], NO_RULES)
    assert index.unread == 3

    assert "nobody_a1b2" not in index.issued
    index.add(answered_with(3, b"{}"))
    assert index.unread == 3


class Untouched(list[Interaction]):
    """Recordings that nobody may go through."""

    def __iter__(self) -> Iterator[Interaction]:
        raise AssertionError("somebody went through the recordings")


def test_making_an_index_goes_through_no_recordings() -> None:
    index = CorrelationIndex(Untouched([answered_with(0, b"{}")]), NO_RULES)
    index.remove(0)
    index.add(answered_with(1, b'{"id":"call_000a1b2"}'))

    assert index.unread == 1


def test_a_removed_recording_is_no_longer_found() -> None:
    index = conversation()
    index.add(exchange(2, asked(second()), {"content": "Sunny."}))
    other = second("call_own_1a2b3c", "call_own_4d5e6f")
    assert found(index, other) == [1, 2]

    index.remove(2)
    assert found(index, other) == [1]
    index.remove(0)
    index.remove(1)
    assert found(index, other) == []
    assert CALLS[0] not in index.issued


def test_no_answer_is_read_for_a_request_without_references(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = CorrelationIndex([answered_with(0, b'{"id":"call_h5Xw0Vb1jZ"}')], NO_RULES)
    monkeypatch.delattr(ids, "issued_ids")

    plain = Request("openai", "POST", "/v1/chat", JSON, b'{"messages":[{"content":"x"}]}')
    assert index.find(plain, ["openai"]) == []
