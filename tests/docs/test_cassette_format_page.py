"""The documentation of the format shows a cassette and explains every field."""

import re
from pathlib import Path

import pytest

from tapeway.core.agenttape import key
from tapeway.core.model.interaction import Interaction
from tapeway.formats.native import document, http_exchange

TEXT = (Path(__file__).parents[2] / "docs" / "cassette-format.md").read_text("utf-8")


def test_the_example_is_what_tapeway_writes() -> None:
    example = re.findall(r"^```json\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)[0].encode()

    cassette = document.load(example)

    (recorded,) = cassette.interactions
    assert isinstance(recorded, Interaction)
    assert recorded.match_key == key.http_key(recorded.request)
    assert [len(chunk.data) for chunk in recorded.response.chunks] == [48, 14]
    assert document.save(cassette) == example


@pytest.mark.parametrize(
    "name", sorted({*http_exchange.INTERACTION, *http_exchange.REQUEST, *http_exchange.RESPONSE})
)
def test_every_field_is_explained(name: str) -> None:
    assert f"`{name}`" in TEXT
