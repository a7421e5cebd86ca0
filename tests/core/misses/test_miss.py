"""The message of a miss."""

import pytest

from tapeway.core.json_text import Json
from tapeway.core.misses.miss import (
    MOST_CHARACTERS,
    Miss,
    MissExplanation,
    NearestRecording,
    changed_value,
)
from tapeway.core.model.messages import Request


def message(
    target: str = "/v1/x", used_up: tuple[int, ...] = (), explanation: MissExplanation | None = None
) -> str:
    request = Request("openai", "POST", target)
    return Miss("a/b", request, b"openai\0key", used_up, explanation or MissExplanation()).message


def near(*paths: str, more: int = 0) -> MissExplanation:
    return MissExplanation(
        (NearestRecording(3, tuple({"path": path} for path in paths), more), NearestRecording(4))
    )


@pytest.mark.parametrize("target", ["/v1/x", "/v1/x?limit=2"])
def test_the_message_names_request_and_cassette(target: str) -> None:
    assert message(target) == "replay miss: POST /v1/x is not in cassette 'a/b'"


@pytest.mark.parametrize(
    ("explanation", "reason"),
    [
        (near("body.messages[2].content"), "nearest #3 differs at messages[2].content"),
        (near("body.a", "query.b"), "nearest #3 differs at a and query.b"),
        (near("body.a", "path", "body.c"), "nearest #3 differs at a, path and 1 more"),
        (near("body.a", "body.b", more=7), "nearest #3 differs at a, b and 7 more"),
        (near("body"), "nearest #3 differs at body"),
        (near("body[0].a"), "nearest #3 differs at body[0].a"),
        (near("body." + "x" * 500), "nearest #3 differs at " + "x" * 120 + "…"),
        (near(), "nearest #3 differs only in its credential"),
        (MissExplanation(note="it is too large"), "it is too large"),
    ],
)
def test_the_message_names_where_the_nearest_recording_differs(
    explanation: MissExplanation, reason: str
) -> None:
    assert message(explanation=explanation) == (
        f"replay miss: POST /v1/x is not in cassette 'a/b'; {reason}"
    )


DIFFERENCE: dict[str, Json] = {
    "path": "body.messages[0].content",
    "recorded": "We have a long way to go. " * 9 + "Today is Monday.",
    "requested": "We have a long way to go. " * 9 + "Today is Tuesday.",
}


def test_the_message_has_the_values_where_they_differ_and_the_rule() -> None:
    explained = MissExplanation((NearestRecording(3, (DIFFERENCE,)),), 'normalise = ["date"]')

    assert message(explanation=explained).partition("; ")[2] == (
        "nearest #3 differs at messages[0].content: …way to go. Today is Monday. → …way to go. "
        "Today is Tuesday."
        '; rule that would match, for [rules] in tapeway.toml: normalise = ["date"]'
    )


@pytest.mark.parametrize(
    ("recorded", "requested", "shown"),
    [
        (r'{"t":"12\u00b0C"}', r'{"t":"13\u00b0C"}', '{"t":"12°C"} → {"t":"13°C"}'),
        # The escapes alone differ: they are shown.
        (r'{"t":"12\u00b0C"}', '{"t":"12°C"}', r'{"t":"12\u00b0C"} → {"t":"12°C"}'),
    ],
)
def test_escapes_in_values_are_shown_as_texts_unless_they_are_what_differs(
    recorded: str, requested: str, shown: str
) -> None:
    assert changed_value({"recorded": recorded, "requested": requested}) == shown


def test_a_message_is_short_whatever_the_values_and_the_rule() -> None:
    rule = f'ignore = ["body.{"x" * 600}"]'
    explained = MissExplanation((NearestRecording(3, (DIFFERENCE,)),), rule)

    assert len(message(explanation=explained)) < MOST_CHARACTERS
    assert "Tuesday" in message(explanation=explained)


def test_a_missing_cassette_says_how_to_record_it_and_which_one_may_be_meant() -> None:
    assert message(explanation=MissExplanation(absent=("a/c",))).endswith(
        "there is no cassette 'a/b' (is 'a/c' meant?); record it with --mode auto"
    )


def test_the_message_names_the_recordings_that_are_used_up() -> None:
    assert message(used_up=(3, 7)) == (
        "replay miss: POST /v1/x is in cassette 'a/b' 2 times, all used up in this take: #3, #7"
    )
    assert message(used_up=tuple(range(9))).endswith(
        "9 times, all used up in this take: #0, #1, #2, #3, #4 …"
    )
