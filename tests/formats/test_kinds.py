"""Every format both ways: what is written comes back, or is named as left out."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import (
    Failure,
    Framing,
    Request,
    Response,
    ResponseChunk,
    ResponseHead,
)
from tapeway.formats import registry
from tapeway.formats.native import document
from tapeway.formats.registry import Kind
from tests.formats.exchanges import headers, interaction, json_like, media, times, typed

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
BOTH_WAYS = [kind for kind in registry.KINDS if kind.save is not None]
FRAMINGS: tuple[Framing, ...] = ("length", "chunked", "close")
NAMES = [kind.name for kind in BOTH_WAYS]

bodies = (
    st.binary(max_size=40)
    | st.text(max_size=20).map(str.encode)
    | json_like.map(lambda value: json.dumps(value).encode())
)
pieces = st.lists(st.tuples(bodies, times).map(lambda pair: ResponseChunk(*pair)), max_size=4).map(
    tuple
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
        ),
        response=Response(
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
@given(cassette=cassettes())
def test_what_is_written_comes_back_or_is_named(kind: Kind, cassette: StoredCassette) -> None:
    assert kind.save is not None
    saved = kind.save(cassette)

    loaded = kind.load(saved.text, FRESH)

    kept = [item for index, item in enumerate(cassette.interactions) if index not in saved.left_out]
    assert loaded.losses == ()
    if kept:
        assert registry.of_text(saved.text, ".yaml" if kind is registry.VCR else "") is kind
    assert document.save(loaded.cassette) == document.save(
        replace(cassette, interactions=tuple(kept))
    )


@pytest.mark.parametrize("kind", BOTH_WAYS, ids=NAMES)
def test_the_same_cassette_gives_the_same_bytes(kind: Kind) -> None:
    cassette = StoredCassette(HEAD, (interaction(),))
    assert kind.save is not None
    assert kind.save(cassette) == kind.save(cassette)
