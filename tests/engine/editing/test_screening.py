"""The search of an import for secrets lets others run in between."""

import time

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.core.redaction.known_values import KnownValues
from tapeway.engine.editing import screening
from tapeway.engine.editing.screening import screen
from tapeway.formats.native.document import encode

REQUEST = Request("default", "POST", "/v1/chat", (), b"{}", "http://upstream.example")
RESPONSE = Response(ResponseHead(200, "OK", ()), b"said")


def test_there_is_a_pause_between_interactions_every_four_milliseconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, seen = 0.0, list[str]()

    def document(item: AnyInteraction) -> dict[str, Json]:
        nonlocal now
        now += 0.002
        seen.append("searched")
        return encode(item)

    monkeypatch.setattr(screening, "encode", document)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", lambda seconds: seen.append("pause"))
    items = [Interaction(number, REQUEST, RESPONSE) for number in range(6)]
    screen(CassetteHead("then", "run"), items, KnownValues(), "refuse", meta=False)

    two = ["searched"] * 2
    assert seen == [*two, "pause", *two, "pause", *two]
