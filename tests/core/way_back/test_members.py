"""Addresses at chosen members of JSON lead back, and every other byte stays."""

import json
import random

import pytest

from tapeway.core.http.routing import Route, RouteTable, resolve
from tapeway.core.matching.json_paths import parse_path
from tapeway.core.model.request_fields import RequestFields
from tapeway.core.way_back.addresses import WayBack, WaysBack
from tapeway.core.way_back.members import lead_members
from tapeway.providers.handed_out import HANDED_OUT
from tapeway.providers.paths import owner

UP = "https://api.example"
PROXY = "http://127.0.0.1:8080/svc"
TABLE = RouteTable({"svc": Route("svc", UP)})


def way() -> WayBack:
    proxy = "http://127.0.0.1:8080"
    return WaysBack(TABLE, owner).of(
        resolve(TABLE, owner, "/svc/x", RequestFields(())), UP, proxy, {}
    )


def led(body: str, *paths: str) -> str:
    members = tuple(map(parse_path, paths)) if paths else HANDED_OUT
    return lead_members(body.encode(), members, way()).decode()


@pytest.mark.parametrize(
    "body",
    [
        '{"id":"b", "results_url" : "%s/v1/b/results"}',
        '{"data":[{"x":1},{"results_url":"%s/v1/b/results"}]}',
        '{"urls":{"get":"%s/p/1","cancel":"%s/p/1/cancel","stream":"%s/s"},"output":null}',
        '{"results":[{"urls":{"get":"%s/p/1"}}],"next":null}',
        '\n{ "status_url":"%s/r/1/status",\r\n "response_url":"%s/r/1", "cancel_url":"%s/r/1/cancel" }\n',
        '{"value":[{"a":"\\"{["}],"nextLink":"%s/items?$skiptoken=2"}',
        '{"@odata.nextLink":"%s/items?2","@nextLink":"%s/3","@odata.deltaLink":"%s/4"}',
        '{"next\\u004cink":"%s/x", "nextLink":"%s/y"}',
        '{"é":"ü", "nextLink":"%s/é"}',
    ],
)
def test_what_the_api_of_a_provider_hands_out_leads_back(body: str) -> None:
    assert led(body.replace("%s", UP)) == body.replace("%s", PROXY)


@pytest.mark.parametrize(
    "body",
    [
        '{"url":"%s/x","next":"%s/y","self":"%s/z","results":"%s"}',
        '{"a":{"results_url":"%s/x"}}',
        '{"urls":"%s/x","data":{"results_url":"%s"}}',
        '{"text":"{\\"nextLink\\":\\"%s/x\\"}"}',
        '{"nextLink":"see %s/x"}',
        '{"nextLink":"https://other.example/x"}',
        '{"nextLink":"%s/x"',
        '{"nextLink":"%s/x"]',
        '"%s/x"',
        "nextLink: %s",
        "",
    ],
)
def test_every_other_member_and_what_is_no_json_stays(body: str) -> None:
    body = body.replace("%s", UP)
    assert led(body) == body


def test_escaped_slashes_stay_escaped() -> None:
    body = '{"nextLink":"https:\\/\\/api.example\\/x?a=\\"b\\""}'
    expected = '{"nextLink":"http:\\/\\/127.0.0.1:8080\\/svc\\/x?a=\\"b\\""}'

    assert led(body) == expected


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("next", '{"next":"%s/2","url":"{up}"}'),
        ("links[1].href", '{"links":[{"href":"{up}"},{"href":"%s/2"}]}'),
        ("links[*].href", '{"links":[{"href":"%s/1"},{"href":"%s/2"}]}'),
        ("**.href", '{"a":{"b":[{"href":"%s/1"}]},"href":"%s/2"}'),
        ('["odd key"].x', '{"odd key":{"x":"%s/1"},"x":"{up}"}'),
        ("[*]", '["%s/1","%s/2"]'),
    ],
)
def test_a_path_names_further_members(path: str, body: str) -> None:
    before = body.replace("%s", UP).replace("{up}", UP)

    assert led(before, path) == body.replace("%s", PROXY).replace("{up}", UP)


def test_an_address_elsewhere_is_named() -> None:
    found = way()
    lead_members(
        b'{"nextLink":"https://other.example/x","url":"https://no.example"}', HANDED_OUT, found
    )

    assert list(found.elsewhere) == ["https://other.example"]


def random_value(rng: random.Random, depth: int = 0) -> object:
    names = ["nextLink", "urls", "data", "results", "results_url", "a", 'b"\\', "ü"]
    kind = rng.randrange(7 if depth < 4 else 4)
    if kind == 0:
        return f"{UP}/{rng.randrange(9)}"
    if kind < 4:
        return rng.choice([None, True, 1.5e9, "x", 'q"}{][,:\\', "", f"see {UP}"])
    if kind == 4:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(names): random_value(rng, depth + 1) for _ in range(rng.randrange(5))}


def expected_of(value: object, place: tuple[str | int, ...] = ()) -> object:
    """The value with what HANDED_OUT names led back, found without looking at bytes."""
    if isinstance(value, dict):
        return {name: expected_of(member, (*place, name)) for name, member in value.items()}
    if isinstance(value, list):
        return [expected_of(item, (*place, at)) for at, item in enumerate(value)]
    named = (
        place in {("nextLink",), ("results_url",)}
        or (len(place) == 2 and place[0] == "urls" and isinstance(place[1], str))
        or (len(place) == 3 and place[0] == "data" and place[2] == "results_url" and place[1] != "")
        or (len(place) == 4 and place[0] == "results" and place[2] == "urls")
    )
    if named and isinstance(value, str) and value.startswith(UP):
        return PROXY + value.removeprefix(UP)
    return value


def test_of_random_documents_nothing_else_changes() -> None:
    rng = random.Random(4)
    changed = 0
    for _ in range(400):
        value = {"nextLink": random_value(rng), "urls": random_value(rng), "x": random_value(rng)}
        text = json.dumps(value, indent=rng.choice([None, 2]), ensure_ascii=rng.random() < 0.5)
        found = led(text)
        plain = found.replace(PROXY, UP)
        assert plain == text
        changed += found != text
        if "[*]" not in text and not isinstance(value["urls"], list):
            assert json.loads(found) == expected_of(value)
    assert changed > 50
