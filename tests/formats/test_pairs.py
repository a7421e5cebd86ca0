"""Any format into any other: what differs afterwards is named, also where a tool wrote the file.

A tool's own file has no field of ours: it is what one is once those are taken out.
"""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.formats import registry
from tapeway.formats.native import document
from tapeway.formats.other_tools import vcr
from tapeway.formats.other_tools.interposition import Chunk, Interposed, item_of
from tapeway.formats.registry import Kind
from tests.formats.test_kinds import BOTH_WAYS, CACHED, FRESH, HEAD, NAMES, cassettes

OURS = ("tapeway", "_tapeway")
THEIRS = [kind for kind in BOTH_WAYS if kind.name in ("har", "vcr", "vcr-json", "interposition")]
MQTT = item_of(
    Interposed("mqtt", "PUBLISH", "topic", (("a", "b"),), b"x", (Chunk(b"ok", (("qos", "1"),)),))
)
BARE = item_of(
    Interposed("http", "GET", "/x", (("Host", "h"),), b"", (Chunk(b""), Chunk(b"x", (("t", "1"),))))
)


def without_ours(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_ours(inner) for name, inner in value.items() if name not in OURS}
    if isinstance(value, list):
        return (
            [without_ours(each) for each in value if each[:1] != ["tapeway"]]
            if all(isinstance(each, list) for each in value)
            else [without_ours(each) for each in value]
        )
    return value


def theirs(kind: Kind, cassette: StoredCassette) -> bytes:
    """The file as the tool itself would have written it."""
    assert kind.save is not None
    text = kind.save(cassette).text
    if kind is registry.VCR:
        value = vcr.parse(text)
        assert isinstance(value, dict)
        return vcr.dump(without_ours(value))
    return json.dumps(without_ours(json.loads(text))).encode()


def told_of(kind: Kind, item: Interaction) -> dict[str, object]:
    """What the tool's own fields hold of a call, whatever the tool."""
    return {
        "method": item.request.method,
        "target": item.request.url if kind.name != "interposition" else item.request.target,
        "asked": item.request.body,
        "status": item.response.status,
        "answer": item.response.body,
    }


@pytest.mark.parametrize("kind", THEIRS, ids=[kind.name for kind in THEIRS])
@settings(suppress_health_check=[HealthCheck.filter_too_much], max_examples=60)
@given(cassette=cassettes())
def test_a_file_without_our_fields_says_the_same_calls(
    kind: Kind, cassette: StoredCassette
) -> None:
    plain = replace(
        cassette,
        interactions=tuple(
            [
                each
                for each in cassette.interactions
                if isinstance(each, Interaction) and each.failure is None
            ]
        ),
    )
    assert kind.save is not None
    left_out = kind.save(plain).left_out

    loaded = kind.load(theirs(kind, plain), FRESH)

    kept = [item for at, item in enumerate(plain.interactions) if at not in left_out]
    lost = {loss.place[-1] for loss in loaded.losses if loss.left_out}
    found = loaded.cassette.interactions
    assert len(found) == len(kept) - len(lost)
    if not lost:
        for before, after in zip(kept, found, strict=True):
            assert isinstance(before, Interaction)
            if isinstance(after, ForeignInteraction):
                assert "kept, and served to no client" in str(loaded.losses)
            elif not _coded(before):
                assert told_of(kind, after) == told_of(kind, before), loaded.losses


def _coded(item: Interaction) -> bool:
    names = {name.lower() for name, _ in (*item.request.headers, *item.response.headers)}
    return b"content-encoding" in names


@pytest.mark.parametrize("one", THEIRS, ids=[kind.name for kind in THEIRS])
@pytest.mark.parametrize("other", BOTH_WAYS, ids=NAMES)
@settings(max_examples=15)
@given(cassette=cassettes())
def test_any_pair_of_formats_loses_only_what_is_named(
    one: Kind, other: Kind, cassette: StoredCassette
) -> None:
    first = one.load(theirs(one, cassette), FRESH).cassette
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
def test_odd_items_come_back_or_are_named(kind: Kind) -> None:
    assert kind.save is not None
    cassette = StoredCassette(HEAD, (MQTT, BARE, CACHED))

    saved = kind.save(cassette)
    again = kind.load(saved.text, FRESH).cassette

    kept = [item for at, item in enumerate(cassette.interactions) if at not in saved.left_out]
    assert said(again) == said(replace(cassette, interactions=tuple(kept)))
    for at in saved.left_out:
        assert any(loss.place[:2] == ("interactions", at) for loss in saved.losses)
