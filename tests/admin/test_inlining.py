"""A cassette with large bodies as one document."""

import json

import pytest

from tapeway.admin.handlers import import_export
from tapeway.core.model.interaction import Interaction
from tapeway.formats.native import document
from tests.admin.world import world

LARGE = b"0123456789abcdef" * 100_000


async def test_an_exported_cassette_has_its_large_bodies_in_it() -> None:
    async with world() as open_world:
        open_world.service.body = LARGE
        await open_world.ask("/v1/a", cassette="one")
        open_world.service.body = b"small"
        await open_world.ask("/v1/b", cassette="one")

        exported = await open_world.got("/api/v1/cassettes/one")

    first, second = document.load(json.dumps(exported).encode()).interactions
    assert isinstance(first, Interaction)
    assert isinstance(second, Interaction)
    assert (first.response.body, second.response.body) == (LARGE, b"small")


async def test_one_interaction_shows_the_reference() -> None:
    async with world() as open_world:
        open_world.service.body = LARGE
        await open_world.ask("/v1/a", cassette="one")

        shown = await open_world.got("/api/v1/cassettes/one/interactions/0")

    assert shown["response"]["body_file"]["size"] == len(LARGE)
    assert "text" not in shown["response"]


async def test_what_is_too_large_for_a_document_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(import_export, "MOST", len(LARGE) - 1)
    async with world() as open_world:
        open_world.service.body = LARGE
        await open_world.ask("/v1/a", cassette="one")

        answer = await open_world.call("GET", "/api/v1/cassettes/one")

    assert answer.status == 413
    said = json.loads(await answer.text())
    assert said["error"]["code"] == "cassette_too_large"
    assert "one.assets" in said["message"]
