"""The aliases by which AgentTape's recordings are found, beside their match keys."""

import json
from collections.abc import Mapping

import pytest

from tapeway.core.agenttape import lookup, sdk_calls
from tapeway.core.agenttape.key import ORDERED_KEY, agenttape_key, http_key
from tapeway.core.agenttape.lookup import AliasIndex
from tapeway.core.json_text import Json
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead

ANSWER = Response(ResponseHead(200))
JSON = (sdk_calls.JSON_TYPE,)


def exchange(index: int, base: str, target: str, key: str | None = None) -> Interaction:
    request = Request("", "GET", target, ((b"accept", b"*/*"),), base=base)
    stored = http_key(request) if key is None else key
    return Interaction(index, request, ANSWER, stored_keys=(stored,))


def call(index: int, endpoint: str, key: str = "sha256:0", **arguments: Json) -> Interaction:
    request = sdk_calls.request_of(endpoint, arguments)
    return Interaction(index, request, ANSWER, stored_keys=(key,))


def got(target: str) -> Request:
    return Request("default", "GET", target, ((b"Accept", b"*/*"), (b"Cookie", b"a=1")))


def posted(path: str, body: Json) -> Request:
    return Request("openai", "POST", path, JSON, json.dumps(body).encode())


def found(index: AliasIndex, request: Request, rules: Rules = NO_RULES) -> list[int]:
    aliases = lookup.request_aliases(request, request, index.origins, rules)
    return list(dict.fromkeys(position for alias in aliases for position in index.find(alias)))


def indexed(
    *interactions: Interaction, rules: Rules = NO_RULES, meta: Mapping[str, Json] | None = None
) -> AliasIndex:
    index = AliasIndex()
    for interaction in interactions:
        index.add(interaction, rules, meta or {})
    return index


def test_a_request_is_found_at_every_origin_that_was_recorded() -> None:
    index = indexed(exchange(0, "https://a:1", "/x"), exchange(1, "http://b/v1", "/x"))

    assert found(index, got("/x")) == [0]
    assert found(index, got("/v1/x")) == [1]
    assert found(index, got("/y")) == []
    assert list(index.origins) == ["https://a:1", "http://b"]


def test_a_recording_is_found_by_its_stored_key_and_by_the_key_of_its_redacted_request() -> None:
    before = exchange(0, "https://a", "/x?q=secret").stored_keys[0]
    index = indexed(exchange(0, "https://a", "/x?q=REDACTED", before))

    assert found(index, got("/x?q=secret")) == found(index, got("/x?q=REDACTED")) == [0]
    assert found(index, got("/x?q=other")) == []


def test_a_call_is_found_whatever_its_path_begins_with_and_however_it_is_made() -> None:
    index = indexed(
        call(0, "chat.completions", model="m", messages=[]), call(1, "responses", model="m")
    )

    said: dict[str, Json] = {"model": "m", "messages": [], "stream": True, "user": None}
    assert found(index, posted("/v1/chat/completions", said)) == [0]
    assert found(index, posted("/openai/deployments/x/chat/completions?v=1", said)) == [0]
    assert found(index, posted("/v1/responses", {"model": "m", "timeout": 3})) == [1]
    assert found(index, posted("/v1/responses", said)) == []
    assert found(index, posted("/v1/completions", said)) == []
    assert found(index, got("/v1/chat/completions")) == []


def test_a_key_alone_finds_a_call_whose_text_was_redacted() -> None:
    asked: dict[str, Json] = {"endpoint": "responses", "input": "secret"}
    key = agenttape_key(asked)
    index = indexed(call(0, "responses", key, input="REDACTED"))

    assert found(index, posted("/responses", {"input": "secret"})) == [0]
    assert found(index, posted("/responses", {"input": "secrets"})) == []


def test_the_names_to_ignore_are_those_of_the_rules() -> None:
    at = "https://a"
    other = Rules(agenttape_ignore=("q",))
    key = agenttape_key(
        {"method": "GET", "url": f"{at}/x?q=1", "headers": {"accept": "*/*"}}, ("q",)
    )

    assert found(indexed(exchange(0, at, "/x?date=1")), got("/x?date=2")) == [0]
    assert found(indexed(exchange(0, at, "/x?q=1", key)), got("/x?q=2")) == []
    assert found(indexed(exchange(0, at, "/x?q=1", key), rules=other), got("/x?q=2"), other) == [0]
    assert found(indexed(exchange(0, at, "/x?date=1"), rules=other), got("/x?date=2"), other) == []


def test_recordings_in_order_are_found_at_their_origin_whatever_is_asked() -> None:
    index = indexed(
        exchange(0, "https://a", "/x", ORDERED_KEY),
        call(1, "responses", ORDERED_KEY),
        exchange(2, "https://b", "/x", ORDERED_KEY),
        exchange(3, "https://a", "/y", ORDERED_KEY),
    )

    assert found(index, got("/new")) == [0, 3, 2]
    assert found(index, posted("/v1/embeddings", {"input": "x"})) == [1, 0, 3, 2]


def test_a_removed_recording_is_not_found() -> None:
    index = indexed(exchange(0, "https://a", "/x"), exchange(1, "https://a", "/x"))
    index.remove(0)
    index.remove(7)

    assert found(index, got("/x")) == [1]
    index.remove(1)
    assert not index


def test_a_recording_of_tapeways_has_no_aliases() -> None:
    own = Interaction(0, got("/x"), ANSWER)

    assert lookup.recording_aliases(own, NO_RULES) == ()
    assert not indexed(own)
    assert lookup.origin_of(own) is None


@pytest.mark.parametrize(
    ("meta", "known"),
    [
        ({"agenttape_version": "0.1.8"}, True),
        ({"agenttape_version": "0.1.8", "tapeway_version": "1"}, True),
        ({}, True),
        ({"tapeway_version": "1"}, False),
    ],
)
def test_keys_of_agenttape_count_where_it_recorded(meta: dict[str, Json], known: bool) -> None:
    assert lookup.uses_agenttape_keys(meta) is known


def test_a_request_that_tapeway_brought_in_has_no_aliases_and_a_call_of_an_sdk_has() -> None:
    request, sdk_call = exchange(0, "https://a", "/x"), call(1, "embeddings", input="x")

    assert not indexed(request, meta={"tapeway_version": "1"})
    brought_in = indexed(request, sdk_call, meta={"tapeway_version": "1"})
    assert found(brought_in, got("/x")) == []
    assert found(brought_in, posted("/v1/embeddings", {"input": "x"})) == [1]


def test_an_alias_does_not_show_the_request() -> None:
    aliases = lookup.request_aliases(
        posted("/v1/responses", {"input": "secret"}), got("/"), ["x://y"], NO_RULES
    )

    assert aliases
    assert all(
        alias.startswith(lookup.ALIAS_PREFIX) and b"secret" not in alias for alias in aliases
    )
