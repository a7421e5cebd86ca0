"""interposition's files: its fingerprint bit for bit, its rule for repeats, its limits named."""

import json

import pytest

from tapeway.core.cassette.credential_index import FoundKey
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.matching.key import request_key
from tapeway.formats.native import document
from tapeway.formats.other_tools.interposition import (
    Chunk,
    InterpositionInteraction,
    fingerprint,
    to_interposition,
)
from tests.formats.other_tools.example_files import calls, fault, load, losses, text


@pytest.mark.parametrize(
    ("protocol", "action", "target", "headers", "body", "wanted"),
    [
        (
            *("http", "POST", "/v1/chat/completions?x=1", [("content-type", "application/json")]),
            '{"q":"héllo"}'.encode(),
            "751df62f5a809407419f82ef3f8c220fc423321a833331e01c1855f7d4d325a7",
        ),
        (
            *("p", "a", "té😀", [("A", "1"), ("a", "1")], b"\x00\xff"),
            "cd2f603ff6032398b9beaba9248f118af9dd12d4ea043f680e58dd2da4adb277",
        ),
        (
            *("p", "a", "t", [], b""),
            "d371ee556a2dcfe9de61c73e80fa10a0c8c454c0181f2f0c367a353b807b5979",
        ),
        (
            *("http", "GET", "/api/data", [], b""),
            "05378c1c2c5edeb95869121fb7a3162df889a0f064eeecc6de9c1505f809ada7",
        ),
    ],
)
def test_the_fingerprint_is_that_of_0_6_0(
    protocol: str,
    action: str,
    target: str,
    headers: list[tuple[str, str]],
    body: bytes,
    wanted: str,
) -> None:
    assert fingerprint(protocol, action, target, headers, body) == wanted


def test_a_file_it_wrote_is_read_with_its_status_and_its_chunks() -> None:
    first, again, second, third = calls(load("interposition", text("interposition.json")))

    assert (first.request.method, first.request.target) == ("POST", "/v1/chat/completions?x=1")
    assert first.request.body == '{"q":"héllo"}'.encode()
    assert first.request.headers == ((b"content-type", b"application/json"),)
    assert first.response.status == 201
    assert first.response.pieces() == [
        "data: één\n\n".encode(),
        b"data: two\n\n",
    ]
    assert again.request == first.request
    assert (second.request.method, second.request.target) == ("GET", "/api/data")
    assert third.request.body == '{"q": "héllo"}'.encode()


def test_everything_is_kept_and_the_first_recording_always_answers() -> None:
    loaded = load("interposition", text("interposition.json"))
    tape = CassetteIndex("c", loaded.cassette, take=1)
    first, again, _, other = calls(loaded)
    key = request_key(first.request)
    found = FoundKey(key)

    assert losses(loaded) == []
    assert loaded.cassette.head.meta["repeats"] == "first"
    # Written otherwise it has another fingerprint, and an answer of its own.
    assert request_key(again.request) == request_key(other.request) == key
    assert [tape.choose(found, tape.take, None, tape.asked(first.request)) for _ in range(3)] == [
        first
    ] * 3
    assert [tape.choose(found, tape.take, None, tape.asked(other.request)) for _ in range(2)] == [
        other
    ] * 2


def test_content_without_a_meaning_in_http_comes_back_too() -> None:
    written = json.loads(text("interposition.json"))
    one = written["interactions"][2]
    one["metadata"] = [["who", "me"], ["who", "you"]]
    one["response_chunks"][0]["metadata"].append(["took", "1"])
    one["response_chunks"].append({"data": "", "sequence": 2, "metadata": [["last", ""]]})
    value = fingerprint("mqtt", "PUBLISH", "t", [], b"")
    request = {"protocol": "mqtt", "action": "PUBLISH", "target": "t", "headers": [], "body": ""}
    chunk = {"data": "ok", "sequence": 0, "metadata": [["qos", "1"]]}
    other = {
        "request": request,
        "fingerprint": {"value": value},
        "response_chunks": [chunk],
        "metadata": [],
    }
    content = json.dumps({"interactions": [one, other]}).encode()
    loaded = load("interposition", content)

    stored = document.load(document.save(loaded.cassette))

    assert losses(loaded) == ["interactions[1]: is no HTTP call: kept, and served to no client"]
    first, second = [to_interposition(item) for item in stored.interactions]
    assert first is not None
    assert first.metadata == (("who", "me"), ("who", "you"))
    assert first.chunks[-1] == Chunk(b"", (("last", ""),))
    assert ("took", "1") in first.chunks[0].metadata
    assert second == InterpositionInteraction(
        "mqtt", "PUBLISH", "t", (), b"", (Chunk(b"ok", (("qos", "1"),)),)
    )


def test_fields_it_ignores_are_named() -> None:
    written = json.loads(text("interposition.json"))
    written["interactions"][2]["recorded_by"] = "me"
    written["about"] = 1

    assert losses(load("interposition", json.dumps(written).encode())) == [
        "interactions[2].recorded_by: is not kept",
        "about: is not kept",
    ]


def test_an_edited_request_without_its_fingerprint_is_refused_as_interposition_does() -> None:
    edited = text("interposition.json").replace(b'"/api/data"', b'"/api/other"')

    said, line = fault("interposition", edited)

    assert said.startswith(
        "interactions[2].fingerprint.value: is not that of the request beside it"
    )
    assert line == edited[: edited.index(b"05378c1c")].count(b"\n") + 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"response_chunks": []}, "response_chunks: must hold one chunk at least"),
        (
            {"response_chunks": [{"data": "x", "sequence": 1}]},
            "response_chunks[0].sequence: must be 0: chunks are numbered without a gap",
        ),
        ({"metadata": [["a"]]}, "metadata[0]: must be [name, value]"),
    ],
)
def test_a_broken_interaction_is_named_with_its_place(change: dict[str, object], said: str) -> None:
    written = json.loads(text("interposition.json"))
    written["interactions"][2] |= change

    assert fault("interposition", json.dumps(written).encode())[0] == f"interactions[2].{said}"
