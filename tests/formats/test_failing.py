"""Failures and verdicts as a cassette holds them."""

import json
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import (
    Failure,
    FailureKind,
    Framing,
    Response,
    ResponseChunk,
    ResponseHead,
    Verdict,
)
from tapeway.formats.errors import FormatFault
from tapeway.formats.native import http_exchange
from tapeway.formats.native.document import decode, save
from tests.formats.exchanges import interaction, times
from tests.formats.test_body_file import through_the_file

HEAD = CassetteHead("2026-01-01T00:00:00", "run")
KINDS: tuple[FailureKind, ...] = get_args(FailureKind)


def failed(kind: FailureKind = "cut", response: Response | None = None) -> Interaction:
    response = response or Response(ResponseHead(0))
    return replace(interaction(), response=response, failure=Failure(kind, f"it was {kind}"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_without_any_answer_comes_back(kind: FailureKind) -> None:
    assert through_the_file(failed(kind)) == failed(kind)


@given(
    pieces=st.lists(st.tuples(st.binary(min_size=1), times)),
    framing=st.sampled_from(["length", "chunked", "close"]),
    length=st.none() | st.integers(0, 10**9),
)
def test_what_had_come_comes_back_with_its_pieces_and_the_length_that_was_announced(
    pieces: list[tuple[bytes, float]], framing: Framing, length: int | None
) -> None:
    chunks = tuple([ResponseChunk(data, at_ms) for data, at_ms in sorted(pieces, key=at)])
    head = ResponseHead(200, "OK", ((b"content-type", b"text/plain"),), framing, length=length)
    if framing == "length":
        chunks = chunks[:1]
    recorded = failed("cut", Response(head, chunks, verdict="truncated"))

    assert through_the_file(recorded) == recorded


def at(piece: tuple[bytes, float]) -> float:
    return piece[1]


def test_a_failure_is_an_error_in_agenttape_s_terms() -> None:
    document: Any = http_exchange.encode(failed("timeout"))

    assert document["error"] == {
        "type": "ReadTimeout",
        "module": "httpx",
        "message": "it was timeout",
        "failure": "timeout",
    }
    assert not {"response", "partial"} & set(document)


def test_the_error_of_another_tool_stays_its_own() -> None:
    document: Any = http_exchange.encode(failed())
    del document["error"]["failure"]

    assert isinstance(decode(document, 0), ForeignInteraction)


def test_an_error_written_by_hand_needs_only_its_kind() -> None:
    document: Any = http_exchange.encode(failed())
    document["error"] = {"failure": "reset"}
    found = decode(document, 0)

    assert isinstance(found, Interaction)
    assert found.failure == Failure(
        "reset", "the upstream broke the connection off before it answered"
    )


@pytest.mark.parametrize("verdict", get_args(Verdict))
def test_a_verdict_comes_back_and_none_is_none(verdict: Verdict) -> None:
    recorded = interaction()
    recorded = replace(recorded, response=replace(recorded.response, verdict=verdict))
    document: Any = http_exchange.encode(recorded)

    assert ("verdict" in document["response"]) is (verdict != "")
    assert through_the_file(recorded) == recorded


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"error": {"failure": "odd"}}, ("error", "failure")),
        ({"error": {"failure": "cut", "mesage": "x"}}, ("error", "mesage")),
        ({"response": {"status_code": 200}}, ("response",)),
        ({"partial": {"status_code": 99}}, ("partial", "status_code")),
        ({"partial": {"status_code": 200, "length": -1}}, ("partial", "length")),
        ({"partial": {"status_code": 200, "verdict": "good"}}, ("partial", "verdict")),
        ({"error": None, "response": {"status_code": 200}}, ("partial",)),
    ],
)
def test_what_is_no_failure_is_named_with_its_place(
    changes: dict[str, Any], place: tuple[str, ...]
) -> None:
    whole = Response(ResponseHead(200), (ResponseChunk(b"x"),))
    document = {**http_exchange.encode(failed("cut", whole)), **changes}

    with pytest.raises(FormatFault) as caught:
        http_exchange.decode(document, 0, ())
    assert caught.value.pointer == place


def test_the_pieces_that_had_come_stand_each_on_a_line() -> None:
    chunks = (ResponseChunk(b"one", 1.0), ResponseChunk(b"two", 2.0))
    part = Response(ResponseHead(200, framing="chunked"), chunks)
    text = save(StoredCassette(HEAD, (failed("cut", part),)))

    assert b"\n          [1.0, 3],\n" in text
    assert json.loads(text)["interactions"][0]["partial"]["chunks"] == [[1.0, 3], [2.0, 3]]
