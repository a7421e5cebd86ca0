"""What AgentTape 0.1.0, 0.1.5 and 0.1.8 wrote: all of it loads, and is kept as it was."""

import base64
import json
from typing import Any

import pytest

from tapeway.core.agenttape import key
from tapeway.core.model.interaction import ForeignInteraction, Interaction, exchange_of
from tapeway.formats.cassette_file import JSON, YAML, Serializer
from tapeway.formats.native import document
from tests.formats.agenttape.cassettes import NAMES, loaded

KINDS = {
    "llm": {"llm"},
    "http": {"http"},
    "tools": {"tool", "retrieval", "memory_read", "memory_write", "llm"},
    "ordered": {"http", "llm", "tool"},
    "exact": {"http", "llm", "tool"},
}


@pytest.mark.parametrize("name", NAMES)
def test_all_that_a_release_wrote_is_loaded(name: str) -> None:
    cassette = loaded(name)

    documents = [document.encode(interaction) for interaction in cassette.interactions]
    kinds = {str(encoded["kind"]) for encoded in documents}
    # The first release had no adapter for embeddings, and took them for any other request.
    more = {"http"} if name == "0.1.0/llm.yaml" else set()
    assert kinds == KINDS[name.split("/")[1].split(".")[0]] | more
    release = name.split("/")[0].removesuffix("-json")
    assert cassette.head.meta["agenttape_version"] == release


@pytest.mark.parametrize("serializer", [JSON, YAML], ids=["json", "yaml"])
@pytest.mark.parametrize("name", NAMES)
def test_what_was_loaded_is_written_and_read_again_the_same(
    name: str, serializer: Serializer
) -> None:
    cassette = loaded(name)

    again = serializer.load(serializer.save(cassette))

    assert again == cassette
    assert [exchange_of(interaction) for interaction in again.interactions] == [
        exchange_of(interaction) for interaction in cassette.interactions
    ]


@pytest.mark.parametrize("name", [name for name in NAMES if "/llm." in name])
def test_every_call_of_the_sdk_can_be_answered_over_http(name: str) -> None:
    for item in loaded(name).interactions:
        exchange = exchange_of(item)
        assert exchange is not None
        assert exchange.stored_keys == (document.encode(item)["match_key"],)


@pytest.mark.parametrize("name", ["0.1.8/http.yaml", "0.1.8-json/http.json"])
def test_a_key_is_the_stored_one_unless_something_was_redacted(name: str) -> None:
    others = []
    for item in loaded(name).interactions:
        exchange = exchange_of(item)
        assert exchange is not None
        if key.stored_http_key(exchange.request) != exchange.match_key:
            others.append(exchange.request)

    assert others
    assert all(b"***REDACTED***" in other.body for other in others)


@pytest.mark.parametrize("name", [name for name in NAMES if "/tools." in name])
def test_long_texts_and_bytes_are_put_back_in_place(name: str) -> None:
    tools = {
        str(interaction.document["boundary"]): interaction.document["response"]
        for interaction in loaded(name).interactions
        if isinstance(interaction, ForeignInteraction) and "response" in interaction.document
    }
    search, picture = tools["search"], tools["picture"]
    assert isinstance(search, list)
    assert isinstance(picture, dict)

    assert search[0] == {"text": "document " * 600, "score": 1e-07}
    assert search[1] == {"text": "two\nlines", "score": 0.25}
    if name.startswith("0.1.0"):
        # It had no way to write octets and wrote them as Python shows them.
        return
    assert picture["raw"] == {"__agenttape_bytes__": base64.b64encode(b"\x00\x01\xff").decode()}
    large = base64.b64encode(bytes(range(256)) * 20).decode()
    assert picture["large"] == {"__agenttape_bytes__": large}


def test_a_message_in_python_repr_is_parsed() -> None:
    told = [
        interaction.exchange.request.body
        for interaction in loaded("0.1.8/llm.yaml").interactions
        if isinstance(interaction, ForeignInteraction)
        and interaction.exchange is not None
        and "ChatCompletionMessage(" in str(interaction.document["request"])
    ]

    assert told
    for body in told:
        assert b'{"role":"assistant","annotations":[],"tool_calls":[{"id":"call_1",' in body


def test_a_default_of_the_sdk_is_no_argument() -> None:
    bodies = [
        exchange.request.body
        for interaction in loaded("0.1.8/llm.yaml").interactions
        if (exchange := exchange_of(interaction)) is not None
    ]

    (given,) = [body for body in bodies if b'"given"' in body]
    assert given == b'{"model":"m","messages":[{"role":"user","content":"given"}]}'


def test_a_request_recorded_by_hand_may_be_called_http() -> None:
    interaction: dict[str, Any] = {
        "index": 0,
        "kind": "http",
        "request": {"any": 1},
        "response": {"thing": 2},
    }

    (found,) = document.load(_file(interaction)).interactions

    assert found == ForeignInteraction(0, interaction)
    assert exchange_of(found) is None


def test_a_failed_request_of_another_tool_fails_as_it_did() -> None:
    (found,) = [
        interaction.exchange
        for interaction in loaded("0.1.8/http.yaml").interactions
        if isinstance(interaction, ForeignInteraction)
    ]

    assert found is not None
    assert found.failure is not None
    assert found.failure.kind == "reset"
    assert found.request.url == "http://127.0.0.1:9/nobody"


def test_a_decoded_body_has_no_content_encoding() -> None:
    headers = {"content-type": "text/plain", "content-encoding": "gzip"}
    answer = {"status_code": 200, "headers": headers, "content": "plain"}
    request = {"method": "GET", "url": "http://h/x", "headers": {}}

    (found,) = document.load(
        _file({"index": 0, "kind": "http", "request": request, "response": answer})
    ).interactions

    assert isinstance(found, Interaction)
    assert found.response.headers == ((b"content-type", b"text/plain"),)


def _file(interaction: dict[str, Any]) -> bytes:
    return json.dumps({"version": "1", "interactions": [interaction]}).encode()
