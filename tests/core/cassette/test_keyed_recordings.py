"""What a match key has: one recording that stands for itself, or several in order."""

import pytest

from tapeway.core.cassette.keyed_recordings import (
    KeyedRecordings,
    as_recordings,
    with_recording,
)
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead


def recording(index: int, status: int = 200) -> Interaction:
    return Interaction(index, Request("r", "GET", "/"), Response(ResponseHead(status)))


def test_the_only_recording_stands_for_itself() -> None:
    one = recording(3)
    assert with_recording(None, one, {}) is one


@pytest.mark.parametrize(("status", "name"), [(206, b"range"), (304, b"if-none-match")])
def test_one_that_does_not_answer_every_request_is_told_apart(status: int, name: bytes) -> None:
    asked = Request("r", "GET", "/", ((name, b"x"),))
    held = with_recording(None, Interaction(3, asked, Response(ResponseHead(status))), {})
    assert isinstance(held, KeyedRecordings)
    assert held.has_conditions


def test_one_whose_answer_depends_on_a_header_is_told_apart() -> None:
    asked = Request("r", "GET", "/", varied=("accept",))
    held = with_recording(None, Interaction(3, asked, Response(ResponseHead(200))), {})
    assert isinstance(held, KeyedRecordings)
    assert held.has_conditions


@pytest.mark.parametrize("status", [206, 304, 416])
def test_an_answer_to_a_request_without_a_part_or_condition_stands_for_itself(status: int) -> None:
    one = recording(3, status)
    assert with_recording(None, one, {}) is one


def test_several_are_in_the_order_of_the_cassette() -> None:
    held: Interaction | KeyedRecordings | None = None
    for added in (recording(3), recording(1), recording(2)):
        held = with_recording(held, added, {1: 4})
    assert isinstance(held, KeyedRecordings)
    assert [item.index for item in held.all] == [2, 3, 1]


def test_one_recording_can_be_read_like_several() -> None:
    assert as_recordings(None, {}) is None
    one = as_recordings(recording(3), {})
    assert one is not None
    assert [item.index for item in one.all] == [3]
    assert as_recordings(one, {}) is one
