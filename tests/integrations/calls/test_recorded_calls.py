"""Which recording answers a call, and which one answers next."""

import pytest

from tapeway.core.agenttape.key import DEFAULT_IGNORED, ORDERED_KEY
from tapeway.core.json_text import Json
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.integrations.calls.recorded_calls import CallSlots, boundary_of, key_of, request_of


def document(x: Json, said: Json, key: str | None = None, name: str = "f") -> dict[str, Json]:
    request = request_of("tool", name, {"x": x})
    stored = key_of(request, DEFAULT_IGNORED) if key is None else key
    return {
        "kind": "tool",
        "boundary": name,
        "request": request,
        "response": said,
        "match_key": stored,
    }


def slots(*documents: dict[str, Json], repeats: Repeats = "miss") -> CallSlots:
    held = [ForeignInteraction(index, encoded) for index, encoded in enumerate(documents)]
    return CallSlots(held, DEFAULT_IGNORED, repeats)


def asked(of: CallSlots, x: Json, times: int = 1, name: str = "f") -> list[Json]:
    key = key_of(request_of("tool", name, {"x": x}), DEFAULT_IGNORED)
    found = [of.next("tool", boundary_of("tool", name), [key]) for _ in range(times)]
    return [None if interaction is None else interaction["response"] for interaction in found]


TWO = (document(1, "a"), document(2, "other"), document(1, "b"))


@pytest.mark.parametrize(
    ("repeats", "given"),
    [
        ("miss", ["a", "b", None, None, None]),
        ("last", ["a", "b", "b", "b", "b"]),
        ("cycle", ["a", "b", "a", "b", "a"]),
        ("first", ["a", "a", "a", "a", "a"]),
    ],
)
def test_equal_calls_are_answered_by_the_rule(repeats: Repeats, given: list[Json]) -> None:
    held = slots(*TWO, repeats=repeats)

    assert asked(held, 1, 5) == given
    held.rewind()
    assert asked(held, 1) == ["a"]


def test_a_recording_is_found_by_its_stored_key_and_by_its_present_request() -> None:
    before = key_of(request_of("tool", "f", {"x": "secret"}), DEFAULT_IGNORED)
    held = slots(document("REDACTED", "a", before), repeats="last")

    assert asked(held, "secret") == asked(held, "REDACTED") == ["a"]
    assert asked(held, "else") == [None]


def test_recordings_in_order_answer_any_call_of_their_function() -> None:
    held = slots(
        document(1, "a", ORDERED_KEY),
        document(1, "g", ORDERED_KEY, "g"),
        document(2, "b", ORDERED_KEY),
    )

    assert [*asked(held, 9), *asked(held, 8), *asked(held, 7)] == ["a", "b", None]
    assert asked(held, 9, name="g") == ["g"]


def test_another_kind_or_name_is_another_call() -> None:
    held = slots(*TWO)

    assert asked(held, 1, name="g") == [None]
    assert held.next("retrieval", "f", [key_of(TWO[0]["request"], DEFAULT_IGNORED)]) is None


def test_a_new_recording_counts_as_used_and_what_it_replaced_is_gone() -> None:
    held = slots(*TWO)
    held.remove((0, 2))
    held.add(0, document(1, "c"), used=True)

    assert asked(held, 1) == [None]
    held.rewind()
    assert asked(held, 1, 2) == ["c", None]


def test_the_nearest_is_of_the_same_name_if_there_is_one() -> None:
    held = slots(document("london", "a"), document("paris", "b"), document("rome!", "c", name="g"))

    def nearest(name: str, x: str) -> int | None:
        found = held.nearest("tool", name, request_of("tool", name, {"x": x}))
        return None if found is None else found[0]

    assert nearest("f", "parish") == 1
    assert nearest("f", "rome!") != 2
    assert nearest("h", "rome!") == 2
    assert held.nearest("retrieval", "f", {}) is None


@pytest.mark.parametrize("odd", [None, 5, ["x"], {"name": "\ud800"}])
def test_a_request_that_cannot_be_hashed_is_tolerated(odd: Json) -> None:
    held = slots({"kind": "tool", "request": odd, "response": 1, "match_key": 7})

    assert asked(held, 1) == [None]
