"""The pages on formats and on the cassette file show what tapeway writes, and say what it reads."""

import re

import pytest

from tapeway.core.agenttape import key
from tapeway.core.json_text import MAX_DEPTH
from tapeway.core.model.interaction import Interaction
from tapeway.formats import registry
from tapeway.formats.cassette_file import JSON, YAML
from tapeway.formats.native import document, http_exchange
from tapeway.formats.yaml.parser import MAX_SIZE
from tapeway.formats.yaml.scalars import resolve
from tests.support.markdown import ROOT, blocks

FORMATS = (ROOT / "docs/formats.md").read_text("utf-8")
CASSETTE_FILE = (ROOT / "docs/cassette-format.md").read_text("utf-8")
(EXAMPLE,) = [block.text for block in blocks("docs/cassette-format.md") if block.language == "json"]


def test_the_example_is_what_tapeway_writes() -> None:
    cassette = document.load(EXAMPLE.encode())

    (recorded,) = cassette.interactions
    assert isinstance(recorded, Interaction)
    assert recorded.match_key == key.http_key(recorded.request)
    assert [len(piece) for piece in recorded.response.pieces()] == [48, 14]
    assert document.save(cassette) == EXAMPLE.encode()


@pytest.mark.parametrize(
    "name", sorted({*http_exchange.INTERACTION, *http_exchange.REQUEST, *http_exchange.RESPONSE})
)
def test_every_field_is_explained(name: str) -> None:
    assert f"`{name}`" in CASSETTE_FILE


def test_the_yaml_shown_is_the_json_of_the_other_page() -> None:
    (shown,) = [block.text for block in blocks("docs/formats.md") if block.language == "yaml"]

    assert YAML.save(JSON.load(EXAMPLE.encode())).decode() == shown


def test_what_stands_in_the_table_is_read_as_it_says() -> None:
    rows = dict(re.findall(r"^\| (`.*?) \| (.*?) \|$", FORMATS, re.MULTILINE))
    kinds: dict[str, tuple[type, ...]] = {
        "null": (type(None),),
        "true and false": (bool,),
        "numbers": (int, float),
        "text": (str,),
    }

    told = 0
    for written, kind in rows.items():
        for text in re.findall(r"`(.*?)`", written):
            if kind in kinds:
                assert isinstance(resolve(text), kinds[kind]), text
                told += 1
    assert told > 15


def test_the_bounds_told_are_those_in_force() -> None:
    assert f"more than {MAX_DEPTH} levels, more than {MAX_SIZE >> 20} MiB" in FORMATS


@pytest.mark.parametrize("kind", registry.FORMATS, ids=lambda kind: kind.name)
def test_every_format_is_named(kind: registry.Format) -> None:
    section = FORMATS.partition("\n## Converting\n")[2].partition("\n## ")[0]
    assert f"`{kind.name}`" in section
    for suffix in kind.suffixes:
        assert f"`{suffix}`" in section
