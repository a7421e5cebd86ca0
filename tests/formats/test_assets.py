"""Large texts that AgentTape keeps beside its cassette."""

import hashlib
import json
from typing import Any

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.formats.errors import FormatFault
from tapeway.formats.native.document import inline, load

LONG = "é" * 5000
DIGEST = "sha256:" + hashlib.sha256(LONG.encode()).hexdigest()
REFERENCE: dict[str, Any] = {
    "__agenttape_asset__": DIGEST,
    "encoding": "utf-8",
    "size": 10000,
    "preview": "é",
}


def test_a_reference_gives_the_text_beside_the_cassette() -> None:
    (found,) = load(_file(REFERENCE), {DIGEST: LONG.encode()}.get).interactions

    assert isinstance(found, Interaction)
    assert found.response.body == json.dumps({"long": LONG}, ensure_ascii=False).encode()


def test_a_lost_or_changed_text_is_said_with_its_place() -> None:
    for content, reason in ((None, "is missing"), (b"other", "was changed")):
        with pytest.raises(FormatFault, match=reason) as caught:
            load(_file(REFERENCE), {DIGEST: content}.get)
        assert str(caught.value).startswith("interactions[0].response.json.long: ")


def test_a_reference_cannot_lead_elsewhere() -> None:
    with pytest.raises(FormatFault, match="digest"):
        load(_file(REFERENCE | {"__agenttape_asset__": "sha256:../../etc/passwd"}))


def test_a_call_of_another_kind_holds_what_lies_beside_the_cassette() -> None:
    document = json.loads(_file(REFERENCE))
    document["interactions"][0]["kind"] = "tool"

    (found,) = load(json.dumps(document).encode(), {DIGEST: LONG.encode()}.get).interactions

    assert isinstance(found, ForeignInteraction)
    answer = found.document["response"]
    assert isinstance(answer, dict)
    assert answer["json"] == {"long": LONG}


def test_octets_beside_the_cassette_are_held_as_agenttape_writes_small_ones() -> None:
    octets = b"\x00\xff"
    digest = "sha256:" + hashlib.sha256(octets).hexdigest()
    reference: Json = {
        "__agenttape_asset__": digest,
        "encoding": "base64",
        "size": 2,
        "preview": "",
    }

    assert inline({"raw": reference}, {digest: octets}.get, ()) == {
        "raw": {"__agenttape_bytes__": "AP8="}
    }


def test_what_a_cassette_says_of_itself_may_lie_beside_it_too() -> None:
    document = json.loads(_file(REFERENCE))
    key = f"sha256:{'0' * 64}"
    document["run_id"], document["created_at"] = (
        _reference("run-7"),
        _reference("2026-11-22T05:23:41.494318"),
    )
    document["meta"] = {"tags": [_reference("smoke")]}
    document["interactions"][0] |= {"match_key": _reference(key), "kind": _reference("http")}
    beside = {_digest(text): text.encode() for text in (key, "http")}

    cassette = load(json.dumps(document).encode(), (beside | {DIGEST: LONG.encode()}).get)

    assert cassette.head.run_id == "run-7"
    assert cassette.head.created_at == "2026-11-22T05:23:41.494318"
    assert cassette.head.meta == {"tags": ["smoke"]}
    (interaction,) = cassette.interactions
    assert isinstance(interaction, Interaction)
    assert interaction.stored_keys == (key,)


def _reference(text: str) -> dict[str, Any]:
    size = len(text.encode())
    preview = {"encoding": "utf-8", "size": size, "preview": text[:64]}
    return {"__agenttape_asset__": _digest(text), **preview}


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _file(reference: dict[str, Any]) -> bytes:
    interaction = {
        "index": 0,
        "kind": "http",
        "request": {"method": "GET", "url": "http://h/x"},
        "response": {"status_code": 200, "headers": {}, "json": {"long": reference}},
    }
    return json.dumps({"version": "1", "interactions": [interaction]}).encode()
