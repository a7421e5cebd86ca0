"""A miss is explained by the nearest recordings and a rule, and no secret is shown."""

import pytest

from tapeway.core.matching.key import request_key
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.misses.explanation import MOST_SHOWN, NOTHING_RECORDED, TOO_LARGE, explain
from tapeway.core.misses.miss import Miss, MissExplanation
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.redactor import Redactor
from tests.core.requests import asked, chat, recordings_of
from tests.support.canary import canary


def missed(request: Request, used_up: tuple[int, ...] = ()) -> Miss:
    return Miss("c", request, request_key(request), used_up)


def explained(
    request: Request, recordings: list[Interaction], rules: Rules = NO_RULES
) -> MissExplanation:
    return explain(missed(request), recordings, rules, Redactor("salt").request)


def test_the_nearest_recordings_and_a_rule_explain_a_miss() -> None:
    recordings = recordings_of(asked(chat("a b c")), asked(chat("a b c d", temperature=1)))

    found = explained(asked(chat("a b c d", temperature=2)), recordings)

    assert [recording.document for recording in found.nearest] == [
        {
            "index": 1,
            "differences": [{"path": "body.temperature", "recorded": 1, "requested": 2}],
            "more": 0,
        },
        {
            "index": 0,
            "differences": [
                {
                    "path": "body.messages[0].content",
                    "recorded": "a b c",
                    "requested": "a b c d",
                },
                {"path": "body.temperature", "requested": 2},
            ],
            "more": 0,
        },
    ]
    assert found.suggestion == 'ignore = ["body.temperature"]'


def test_at_most_three_recordings_and_a_few_differences_are_shown() -> None:
    recordings = recordings_of(
        *(asked({f"f{at}-{number}": 1 for number in range(30)}) for at in range(4))
    )

    found = explained(asked({}), recordings)

    assert len(found.nearest) == 3
    assert len(found.nearest[0].differences) == MOST_SHOWN
    assert found.nearest[0].more == 10
    assert found.suggestion is None


def test_rules_in_force_apply() -> None:
    recordings = recordings_of(asked(chat("a", user="x", n=1)))

    found = explained(asked(chat("a", user="y", n=2)), recordings, Rules(ignore=("body.n",)))

    assert [difference["path"] for difference in found.nearest[0].differences] == ["body.user"]
    assert found.suggestion == 'ignore = ["body.user"]'


def test_recordings_that_are_used_up_are_named_without_looking_further() -> None:
    found = explain(missed(asked(), (4, 5, 6, 7)), [], NO_RULES, lambda request: request)

    assert [recording.document for recording in found.nearest] == [
        {"index": index, "differences": [], "more": 0} for index in (4, 5, 6)
    ]
    assert found.suggestion is None


def test_where_nothing_is_recorded_for_method_and_path_it_says_so() -> None:
    nothing = MissExplanation(note=NOTHING_RECORDED)
    other = recordings_of(asked({"a": 1}, target="/v1/embeddings"), asked(method="GET"))

    assert explained(asked(), []) == explained(asked({"a": 1}), other) == nothing


def test_a_body_too_large_to_be_compared_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapeway.core.misses.explanation.LARGEST", 10)

    assert explained(asked("x" * 11), recordings_of(asked("x"))) == MissExplanation(note=TOO_LARGE)


def test_secrets_in_recordings_that_were_never_redacted_are_not_shown() -> None:
    key = canary()
    recordings = recordings_of(asked({"a": f"with {key} in it", "b": 1}))
    redactor = Redactor("salt", [Secret("api-key", key.encode())])

    found = explain(missed(asked({"a": "without", "b": 2})), recordings, NO_RULES, redactor.request)

    assert key not in repr(found)
    assert "with REDACTED.api-key." in repr(found)


def test_others_may_run_after_each_recording_that_is_read_or_compared_or_shown() -> None:
    recordings = recordings_of(*(asked(chat(f"question {number}")) for number in range(40)))
    request, steps = missed(asked(chat("question 7a"))), list[int]()

    found = explain(
        request, recordings, NO_RULES, Redactor("salt").request, lambda: steps.append(1)
    )

    compared, tried = 8, 3
    assert len(steps) >= len(recordings) + compared + tried + len(found.nearest)


def test_others_may_run_after_each_recording_that_a_rule_is_tried_on() -> None:
    recordings = recordings_of(*(asked(chat("a", seed=number)) for number in range(20)))
    request, steps = missed(asked(chat("a", seed=99))), list[int]()

    found = explain(
        request, recordings, NO_RULES, Redactor("salt").request, lambda: steps.append(1)
    )

    assert found.refusal is not None
    assert len(steps) >= 2 * len(recordings)
