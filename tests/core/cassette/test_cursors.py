"""The state of a key in a take, and the repeat rule of a cassette."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.cassette import cursors
from tapeway.core.cassette.choice import Why
from tapeway.core.cassette.credential_index import FoundKey
from tapeway.core.cassette.cursors import Take
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.json_text import Json
from tapeway.core.matching.key import request_key
from tapeway.core.matching.rules import RulesFault
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead

KEY, OTHER = b"openai\0" + b"k" * 32, b"openai\0" + b"o" * 32
VARIANTS = st.sampled_from([b"", b"1f", b"2e"])
STEPS = st.lists(
    st.tuples(st.sampled_from([KEY, OTHER]), VARIANTS, st.integers(0, 9), st.booleans())
)
JSON = ((b"Content-Type", b"application/json"),)
ASKED = Request("openai", "POST", "/v1/x?a=1&b=2", JSON, b'{"a":1,"b":2}')
RESPELLED = replace(ASKED, target="/v1/x?b=2&a=1", body=b'{"b": 2, "a": 1}')


@given(STEPS)
def test_another_instance_continues_a_key_from_its_state(
    steps: list[tuple[bytes, bytes, int, bool]],
) -> None:
    take, own = Take(3), set[int]()
    for key, variant, index, recorded in steps:
        index = index * 2 + (key == KEY)
        if recorded:
            take.count_recording(key, variant, index)
        else:
            take.count_request(key, variant)
            take.touched.add(index)
            take.repeat_counts[index] += 1
        if key == KEY:
            own.add(index)

    other = Take(3)
    other.restore_key(KEY, take.key_state(KEY, own))

    assert other.key_state(KEY, own) == take.key_state(KEY, own)
    assert other.touched == take.touched & own
    assert other.cursors == {at: n for at, n in take.cursors.items() if at.startswith(KEY)}
    assert other.recorded_keys == take.recorded_keys & {KEY}
    assert all(other.repeat_counts[key] == take.repeat_counts[key] for key in own)
    assert other.first_variant(KEY) == take.first_variant(KEY)


def test_the_state_of_an_unused_key_restores_nothing() -> None:
    take = Take(1)

    take.restore_key(KEY, Take(1).key_state(KEY, ()))

    assert (take.cursors, take.touched, take.repeat_counts) == ({}, set(), {})
    assert (take.recorded_keys, take.variants) == (set(), {})


def make_cassette(meta: dict[str, Json], *requests: Request) -> CassetteIndex:
    answer = Response(ResponseHead(200), b"x")
    held = [Interaction(index, request, answer) for index, request in enumerate(requests)]
    return CassetteIndex("c", StoredCassette(CassetteHead("", "r", meta), tuple(held)), take=1)


def replayed(
    cassette: CassetteIndex, asked: Request, repeats: Repeats | None = None
) -> list[int | None]:
    key = FoundKey(request_key(asked))
    found = [cassette.choose(key, cassette.take, repeats, cassette.asked(asked)) for _ in range(4)]
    return [None if isinstance(recording, Why) else recording.index for recording in found]


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({}, [0, 1, 1, 1]),
        ({"repeats": "last"}, [0, 1, 1, 1]),
        ({"repeats": "miss"}, [0, 1, None, None]),
        ({"repeats": "cycle"}, [0, 1, 0, 1]),
        ({"repeats": "first"}, [0, 0, 0, 0]),
    ],
)
def test_a_cassette_repeats_as_its_meta_says(
    meta: dict[str, Json], expected: list[int | None]
) -> None:
    assert replayed(make_cassette(meta, ASKED, ASKED), ASKED) == expected


def test_a_repeat_rule_that_is_asked_for_overrides_the_cassettes() -> None:
    assert replayed(make_cassette({"repeats": "miss"}, ASKED, ASKED), ASKED, "cycle") == [
        0,
        1,
        0,
        1,
    ]


def test_under_first_the_same_spelling_comes_before_the_first_recording() -> None:
    cassette = make_cassette({"repeats": "first"}, ASKED, RESPELLED, ASKED, RESPELLED)
    third = replace(ASKED, body=b'{"a":1, "b":2}')

    assert request_key(ASKED) == request_key(RESPELLED) == request_key(third)
    assert replayed(cassette, RESPELLED) == [1, 1, 1, 1]
    assert replayed(cassette, ASKED) == [0, 0, 0, 0]
    assert replayed(cassette, third) == [0, 0, 0, 0]
    assert cassette.unused() == [2, 3]


@pytest.mark.parametrize("stated", ["once", 1, None, ["last"]])
def test_an_unknown_repeat_rule_is_refused_with_the_known_ones(stated: Json) -> None:
    with pytest.raises(RulesFault) as refused:
        cursors.repeats_of_meta({"repeats": stated})

    assert str(refused.value) == (
        "repeats: there is no such repeat rule; known are last, miss, cycle, first"
    )


def test_a_repeat_rule_written_to_meta_is_read_back() -> None:
    assert cursors.repeats_of_meta(cursors.meta_with_repeats({"a": 1}, "miss")) == "miss"
