"""A file of another format version is refused by the name of that version."""

from pathlib import Path
from typing import Any

import pytest

from tapeway.core.json_text import dump
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.formats import jsonl
from tapeway.formats.cassette_file import JSON, YAML
from tapeway.formats.errors import FormatFault
from tapeway.formats.native.document import VERSION
from tapeway.formats.yaml import parser
from tests.formats.agenttape.cassettes import FILES, NAMES, loaded
from tests.support.exchanges import interaction

CASSETTE = StoredCassette(
    CassetteHead("then", "run-1", {"a": 1}), (interaction(), interaction(index=1))
)


@pytest.mark.parametrize("load", [JSON.load, YAML.load], ids=["json", "yaml"])
@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("4", "the file has the newer format version 4; this tapeway reads 1: update tapeway"),
        ("0", "there is no format version '0'; this tapeway reads 1: correct it"),
        ("1.0", "there is no format version '1.0'; "),
        ("9" * 5000, "there is no format version '9"),
        (None, "the field 'version' is missing"),
    ],
)
def test_another_version_is_refused(load: Any, version: Any, reason: str) -> None:
    head = {"version": version, "created_at": "then", "run_id": "run-1", "meta": {}}

    with pytest.raises(FormatFault) as caught:
        load(dump({**head, "interactions": []}, indent=True))

    assert str(caught.value).removeprefix("version: ").startswith(reason)


def test_a_file_without_its_version_is_refused() -> None:
    with pytest.raises(FormatFault, match="the field 'version' is missing"):
        JSON.load(b'{"run_id": "run-1", "interactions": []}')


def test_a_newer_file_is_named_with_the_line_of_its_version() -> None:
    newer = JSON.save(CASSETTE).replace(b'"version": "1"', b'"version": "2"')

    with pytest.raises(FormatFault, match=r"newer format version 2; .* reads 1: update") as caught:
        JSON.load(newer)

    assert (caught.value.pointer, caught.value.line) == (("version",), 2)


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_what_every_release_of_agenttape_wrote_has_the_current_version(path: Path) -> None:
    root = parser.parse(path.read_bytes())

    assert isinstance(root, dict)
    assert root["version"] == str(VERSION)
    assert loaded(f"{path.parent.name}/{path.name}").interactions


def test_json_lines_of_another_version_are_refused() -> None:
    with pytest.raises(FormatFault, match="there is no format version '0'"):
        jsonl.read(b'{"version":"0","run_id":""}\n', CassetteHead("", "fresh"))


def test_a_copy_of_another_version_is_refused() -> None:
    with pytest.raises(FormatFault, match="there is no format version '0'"):
        jsonl.CopyReader().feed(b'{"version":"0","created_at":"","run_id":"","meta":{}}\n')
