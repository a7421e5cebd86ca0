"""WireMock's mappings: those of one request become recordings, the others are named."""

import json

import pytest

from tapeway.core.model.messages import Failure
from tapeway.formats import registry
from tapeway.formats.other_tools.stubs import wiremock
from tests.formats.other_tools.example_files import calls, fault, load, losses, text


def test_mappings_of_one_request_become_recordings() -> None:
    things, chat, later, gone, running, finished = calls(load("wiremock", text("wiremock.json")))

    assert things.request.target == "/things?page=2&q=a+b"
    assert (things.response.status, things.response.head.reason) == (200, "Fine")
    assert things.response.headers == (
        (b"Content-Type", b"text/plain"),
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=2"),
    )
    assert (things.response.body, things.latency_ms) == ("é\n".encode(), 250.0)
    assert (chat.request.target, chat.request.body) == ("/v1/chat?x=1", b'{"model":"m"}')
    assert chat.request.headers == ((b"Content-Type", b"application/json"),)
    assert (chat.response.status, chat.response.body) == (201, b'{"ok":true}')
    assert later.response.body == b"the later one is served"
    assert gone.failure == Failure("reset", "CONNECTION_RESET_BY_PEER")
    assert [running.response.body, finished.response.body] == [b"running", b"finished"]


def test_losses_are_named() -> None:
    assert losses(load("wiremock", text("wiremock.json"))) == [
        "mappings[0].request.headers: is not asked for: every request that is otherwise equal is "
        "answered",
        "mappings[5]: matches requests by 'urlPattern': left out",
        "mappings[6]: takes any method: left out",
        "mappings[7]: matches bodies by 'matchesJsonPath': left out",
        "mappings[8]: its answer is in the file 'file.txt': left out",
        "mappings[9].scenarioName: has states: equal requests are answered in their order, "
        "whatever else is asked",
        "mappings[10].response.transformers: is not kept: the answer is always the one in the mapping",
        "mappings[10].scenarioName: has states: equal requests are answered in their order, "
        "whatever else is asked",
        "mappings[2]: another mapping of the same request always matches first: left out",
    ]


def test_ignored_matchers_of_a_recorded_request_are_named() -> None:
    one = {"request": {"method": "POST", "urlPath": "/"}, "response": {}}

    assert losses(load("wiremock", json.dumps(one).encode())) == [
        "request: takes any body: only requests without one are answered",
        "request: takes any query: only requests without one are answered",
    ]


def test_a_higher_priority_goes_before_a_later_mapping() -> None:
    first = {"priority": 1, "request": {"method": "GET", "url": "/"}, "response": {"body": "1"}}
    second = {"request": {"method": "GET", "url": "/"}, "response": {"body": "2"}}

    (found,) = calls(load("wiremock", json.dumps([first, second]).encode()))

    assert found.response.body == b"1"


@pytest.mark.parametrize(
    "pattern",
    [
        {"equalToJson": {"a": 1}, "ignoreExtraElements": True},
        {"equalToJson": '{"a": "${json-unit.any-string}"}'},
        {"contains": "x"},
        {},
    ],
)
def test_a_mapping_with_an_incomplete_body_pattern_is_left_out(pattern: object) -> None:
    request = {"method": "POST", "url": "/", "bodyPatterns": [pattern]}
    loaded = load("wiremock", json.dumps({"request": request, "response": {}}).encode())

    assert loaded.cassette.interactions == ()
    assert [loss.left_out for loss in loaded.losses] == [True]


def test_one_mapping_is_a_file_too_and_a_broken_one_is_named() -> None:
    one = {"request": {"method": "GET", "url": "/"}, "response": {"status": "x"}}
    written = json.dumps(one, indent=1).encode()

    assert registry.detect(written) is registry.by_name("wiremock")
    assert fault("wiremock", written) == (
        "response.status: must be a whole number between 0 and 999, not text",
        7,
    )
    broken = written.replace(b'"x"', b'200, "base64Body": "="')
    assert fault("wiremock", broken)[0] == "response.base64Body: is not valid base64"


def scenario(name: str, *steps: tuple[str, str, str]) -> list[dict[str, object]]:
    return [
        {
            "scenarioName": name,
            **({"requiredScenarioState": state} if state else {}),
            **({"newScenarioState": following} if following else {}),
            "request": {"method": "GET", "url": f"/{name}"},
            "response": {"body": said},
        }
        for state, following, said in steps
    ]


ONCE = scenario("once", ("b", "", "3"), ("Started", "a", "1"), ("a", "b", "2"))
ROUND = scenario("round", ("Started", "on", "off"), ("on", "Started", "on"))


@pytest.mark.parametrize(
    ("mappings", "said", "rule", "lost"),
    [
        (ONCE, ["1", "2", "3"], "last", []),
        (ROUND, ["off", "on"], "cycle", []),
        (
            [*ROUND, *ONCE],
            ["off", "on", "1", "2", "3"],
            "last",
            [f"scenario 'round' {wiremock.LAST_STATE_REPEATS}"],
        ),
        (scenario("open", ("", "", "x")), ["x"], "last", []),
    ],
)
def test_a_scenario_answers_in_the_order_of_its_states(
    mappings: list[dict[str, object]], said: list[str], rule: str, lost: list[str]
) -> None:
    loaded = load("wiremock", json.dumps({"mappings": mappings}).encode())

    assert [call.response.body.decode() for call in calls(loaded)] == said
    assert loaded.cassette.head.meta["repeats"] == rule
    assert [loss for loss in losses(loaded) if "has states" not in loss] == lost
