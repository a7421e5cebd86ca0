"""Conversion to and from every format: every difference afterwards is named as a loss."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import (
    Failure,
    Framing,
    Request,
    Response,
    ResponseHead,
)
from tapeway.formats import registry
from tapeway.formats.native import document
from tapeway.formats.other_tools.interposition import (
    Chunk,
    InterpositionInteraction,
    from_interposition,
)
from tapeway.formats.registry import Format
from tests.support.exchanges import headers, interaction, json_like, media, times, typed
from tests.support.thoroughness import examples

FRESH = CassetteHead("2026-11-22T00:00:00Z", "fresh")
HEAD = CassetteHead("2026-11-21T20:35:14Z", "run-1", {"a": 1})
CACHED = ForeignInteraction(
    0,
    {
        "kind": "llm",
        "boundary": "llm",
        "request": {"endpoint": "chat.completions", "model": "m"},
        "response": {"choices": []},
        "metadata": {
            "dspy": {
                "key": "k",
                "_fn_identifier": "dspy.clients.lm.litellm_completion",
                "response": {"type": "ModelResponse"},
            }
        },
    },
)
TOOL = ForeignInteraction(0, {"kind": "tool", "request": {"name": "f"}, "response": 1})
BOTH_WAYS = registry.WRITTEN
FRAMINGS: tuple[Framing, ...] = ("length", "chunked", "close")
NAMES = [kind.name for kind in BOTH_WAYS]
bodies = (
    st.binary(max_size=40)
    | st.text(max_size=20).map(str.encode)
    | json_like.map(lambda value: json.dumps(value).encode())
)
pieces = st.lists(st.tuples(bodies, times), max_size=4)
OURS = ("tapeway", "_tapeway")
HAR = next(kind for kind in BOTH_WAYS if kind.name == "har")
MQTT = from_interposition(
    InterpositionInteraction(
        "mqtt", "PUBLISH", "topic", (("a", "b"),), b"x", (Chunk(b"ok", (("qos", "1"),)),)
    )
)
BARE = from_interposition(
    InterpositionInteraction(
        "http", "GET", "/x", (("Host", "h"),), b"", (Chunk(b""), Chunk(b"x", (("t", "1"),)))
    )
)


@st.composite
def recordings(draw: st.DrawFn) -> Interaction:
    framing = draw(st.sampled_from(FRAMINGS))
    chunks = draw(pieces)
    if framing == "length" and len(chunks) > 1:
        chunks = chunks[:1]
    base, route = draw(
        st.sampled_from(
            [
                ("https://api.openai.com", "openai"),
                ("http://h:1/base", "x"),
                ("", "default"),
                ("http://h", ""),
            ]
        )
    )
    found = Interaction(
        index=0,
        request=Request(
            route,
            draw(st.sampled_from(["GET", "POST", "HEAD", "get"])),
            draw(st.sampled_from(["/", "/v1/x?b=2&a=1", "/%2F/\u00e9?q=%20+", "/\udcff?a=\udcfe"])),
            typed(draw(headers), draw(media)),
            draw(bodies),
            base,
            coding=draw(st.sampled_from([b"", b"gzip"])),
            varied=draw(st.sampled_from([(), ("accept", "x-api-version")])),
        ),
        response=Response.of_chunks(
            ResponseHead(
                draw(st.sampled_from([200, 204, 304, 404, 599])),
                draw(st.sampled_from(["OK", "", "Fin\u00e9", "\udcff"])),
                typed(draw(headers), draw(media)),
                framing,
                draw(st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/2"])),
            ),
            chunks,
            verdict=draw(st.sampled_from(["", "marked"])),
        ),
        latency_ms=draw(times),
        usage=draw(st.none() | st.just({"total_tokens": 1})),
        tags=draw(st.sampled_from([(), ("smoke",)])),
        metadata=draw(st.sampled_from([{}, {"model": "m"}])),
    )
    if draw(st.booleans()):
        return found
    return replace(found, failure=Failure("cut", "it broke off"))


def cassettes() -> st.SearchStrategy[StoredCassette]:
    items = st.lists(recordings() | st.sampled_from([TOOL, CACHED]), max_size=4).map(tuple)
    return items.map(lambda found: _settled(_settled(StoredCassette(HEAD, found))))


def _settled(cassette: StoredCassette) -> StoredCassette:
    # What a recording says of itself is filled in as it is written.
    return document.load(document.save(cassette))


@pytest.mark.parametrize("kind", BOTH_WAYS, ids=NAMES)
@settings(max_examples=examples(25))
@given(cassette=cassettes())
def test_what_is_written_comes_back_or_is_named(kind: Format, cassette: StoredCassette) -> None:
    assert kind.save is not None
    saved = kind.save(cassette)

    loaded = kind.load(saved.text, FRESH)

    kept = [item for index, item in enumerate(cassette.interactions) if index not in saved.left_out]
    assert loaded.losses == ()
    if kept:
        assert registry.detect(saved.text) is kind
    assert document.save(loaded.cassette) == document.save(
        replace(cassette, interactions=tuple(kept))
    )


@pytest.mark.parametrize("kind", BOTH_WAYS, ids=NAMES)
def test_the_same_cassette_gives_the_same_bytes(kind: Format) -> None:
    cassette = StoredCassette(HEAD, (interaction(),))
    assert kind.save is not None
    assert kind.save(cassette) == kind.save(cassette)


def without_ours(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_ours(inner) for name, inner in value.items() if name not in OURS}
    if isinstance(value, list):
        return [without_ours(item) for item in value]
    return value


def theirs(cassette: StoredCassette) -> bytes:
    """The archive as another tool would have written it."""
    assert HAR.save is not None
    return json.dumps(without_ours(json.loads(HAR.save(cassette).text))).encode()


def told_of(item: Interaction) -> dict[str, object]:
    """What an archive's own fields hold of a call."""
    return {
        "method": item.request.method,
        "target": item.request.url,
        "asked": item.request.body,
        "status": item.response.status,
        "answer": item.response.body,
    }


@settings(
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
    max_examples=examples(20),
)
@given(cassette=cassettes())
def test_an_archive_without_our_fields_has_the_same_calls(cassette: StoredCassette) -> None:
    plain = replace(
        cassette,
        interactions=tuple(
            [
                item
                for item in cassette.interactions
                if isinstance(item, Interaction) and item.failure is None
            ]
        ),
    )
    loaded = HAR.load(theirs(plain), FRESH)

    lost = {loss.place[-1] for loss in loaded.losses if loss.left_out}
    found = loaded.cassette.interactions
    assert len(found) == len(plain.interactions) - len(lost)
    if not lost:
        for before, after in zip(plain.interactions, found, strict=True):
            assert isinstance(before, Interaction)
            assert isinstance(after, Interaction)
            if not _coded(before):
                assert told_of(after) == told_of(before), loaded.losses


def _coded(item: Interaction) -> bool:
    names = {name.lower() for name, _ in (*item.request.headers, *item.response.headers)}
    return b"content-encoding" in names


@pytest.mark.parametrize("other", BOTH_WAYS, ids=NAMES)
@settings(max_examples=examples(8))
@given(cassette=cassettes())
def test_an_archive_of_another_tool_loses_only_what_is_named(
    other: Format, cassette: StoredCassette
) -> None:
    first = HAR.load(theirs(cassette), FRESH).cassette
    first = document.load(document.save(first))
    assert other.save is not None

    saved = other.save(first)
    again = other.load(saved.text, replace(FRESH, run_id="other"))

    kept = [item for at, item in enumerate(first.interactions) if at not in saved.left_out]
    assert again.losses == ()
    assert document.save(again.cassette) == document.save(replace(first, interactions=tuple(kept)))


def said(cassette: StoredCassette) -> Any:
    return json.loads(document.save(document.load(document.save(cassette))))


@pytest.mark.parametrize("kind", BOTH_WAYS, ids=NAMES)
def test_unusual_interactions_come_back_or_are_named(kind: Format) -> None:
    assert kind.save is not None
    cassette = StoredCassette(HEAD, (MQTT, BARE, CACHED))

    saved = kind.save(cassette)
    again = kind.load(saved.text, FRESH).cassette

    kept = [item for at, item in enumerate(cassette.interactions) if at not in saved.left_out]
    assert said(again) == said(replace(cassette, interactions=tuple(kept)))
    for at in saved.left_out:
        assert any(loss.place[:2] == ("interactions", at) for loss in saved.losses)
