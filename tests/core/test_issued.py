"""An answer that is searched shows the identifiers that it shows when it is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.correlation import ids
from tapeway.core.correlation.index import PATIENCE, Identifiers, Issued
from tapeway.core.json_text import Json, dump
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseChunk, ResponseHead
from tests.core.keys import JSON

JsonTexts = st.sampled_from(
    [
        *("a", "auto", "42", "1a2b3c4d", "call_h5Xw0Vb1jZ", "two words", "files/abc123de", 'a"b'),
        *("https://h/v1/files/f1e2d3c4?id=9z8y7x6w#a1b2c3d4", "é1a2b3c4d", ""),
    ]
)
names = st.sampled_from(["id", "call_id", "ids", "toolUseId", "content", "x", "name", "d"])
values: st.SearchStrategy[Json] = st.recursive(
    JsonTexts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


def exchange(index: int, answer: bytes, *fields: tuple[bytes, bytes]) -> Interaction:
    request = Request("openai", "POST", "/v1/chat", JSON, b'{"conversation_id":"own_1a2b3c"}')
    response = Response(ResponseHead(200, headers=(*JSON, *fields)), (ResponseChunk(answer),))
    return Interaction(index, request, response)


@given(st.lists(values, min_size=1, max_size=4), st.sampled_from([b"", b" ", b"\n  "]))
def test_searched_and_read_answers_show_the_same(answers: list[Json], blank: bytes) -> None:
    held = [
        exchange(index, dump(answer).replace(b":", blank + b":" + blank))
        for index, answer in enumerate(answers)
    ]
    searched, read = Issued(held), Issued([])
    for each in held:
        read.add(each)

    for each in held:
        for text in ids.issued(each.response) | {"auto", "a", "content", "two words", ""}:
            assert searched.by(text) == read.by(text)


def test_the_first_answer_counts_and_fields_of_a_header_too() -> None:
    issued = Issued(
        [
            exchange(3, b'{"id":"x"}', (b"Location", b"/v1/jobs/job_1a2b3c4d")),
            exchange(4, b'{"id":"x","job_id":"job_1a2b3c4d"}'),
        ]
    )

    assert (issued.by("x"), issued.by("job_1a2b3c4d")) == (3, 3)


def test_after_many_searches_the_answers_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    issued = Issued(
        [exchange(index, b'{"id":"call_%03da1b2"}' % (index // 2)) for index in range(9)]
    )
    for number in range(PATIENCE):
        assert issued.by(f"nobody_{number}a1b2") is None
    assert issued.by("call_001a1b2") == 2

    monkeypatch.delattr(ids, "issued")

    assert [issued.by(f"call_00{each}a1b2") for each in range(6)] == [0, 2, 4, 6, 8, None]


def test_what_the_request_held_before_was_not_issued() -> None:
    assert "own_1a2b3c" not in Issued([exchange(0, b'{"id":"own_1a2b3c"}')])


def test_what_is_recorded_after_a_search_is_known() -> None:
    issued = Issued([exchange(0, b"{}")])
    assert issued.by("call_h5Xw0Vb1jZ") is None

    issued.add(exchange(1, b'{"id":"call_h5Xw0Vb1jZ"}'))

    assert issued.by("call_h5Xw0Vb1jZ") == 1


def test_no_answer_is_read_for_a_request_without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    identifiers = Identifiers([exchange(0, b'{"id":"call_h5Xw0Vb1jZ"}')])
    monkeypatch.delattr(ids, "issued")

    plain = Request("openai", "POST", "/v1/chat", JSON, b'{"messages":[{"content":"x"}]}')
    assert identifiers.look(plain, ["openai"]) == []
