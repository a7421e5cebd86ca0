"""A file of an older format version is upgraded on load, one of an unknown version refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.formats import jsonl
from tapeway.formats.cassette_file import JSON, YAML
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document
from tapeway.formats.native.assets import no_assets
from tapeway.formats.native.versions import CURRENT, UPGRADES, Upgrade, upgraded
from tapeway.formats.yaml import parser
from tests.formats.agenttape.cassettes import FILES, NAMES, loaded
from tests.support.exchanges import interaction

CASSETTE = StoredCassette(
    CassetteHead("then", "run-1", {"a": 1}), (interaction(), interaction(index=1))
)


def upgrade_0_to_1(older: dict[str, Any]) -> dict[str, Any]:
    """As if version 0 had said seconds where version 1 says milliseconds, and `run` for `run_id`."""
    newer = {name: value for name, value in older.items() if name != "run"}
    newer["run_id"] = older["run"]
    newer["interactions"] = [
        {name: value for name, value in each.items() if name != "latency_s"}
        | {"latency_ms": each["latency_s"] * 1000}
        for each in older["interactions"]
    ]
    return newer


def _as_version_0(text: bytes) -> dict[str, Any]:
    root: dict[str, Any] = json.loads(text)
    root["version"], root["run"] = "0", root.pop("run_id")
    for each in root["interactions"]:
        each["latency_s"] = each.pop("latency_ms") / 1000
    return root


def test_an_older_json_file_is_loaded_and_written_in_the_current_version() -> None:
    older = json.dumps(_as_version_0(JSON.save(CASSETTE))).encode()

    parsed = JSON.read(older, {0: upgrade_0_to_1})
    items = JSON.decode_all(older, parsed, no_assets)

    assert StoredCassette(parsed.head, tuple(items)) == CASSETTE
    assert JSON.save(StoredCassette(parsed.head, tuple(items))) == JSON.save(CASSETTE)


def test_an_older_yaml_file_is_loaded_and_written_in_the_current_version() -> None:
    # Any JSON is YAML.
    older = json.dumps(_as_version_0(JSON.save(CASSETTE)), indent=1).encode()

    parsed = YAML.read(older, {0: upgrade_0_to_1})
    items = YAML.decode_all(older, parsed, no_assets)

    assert YAML.save(StoredCassette(parsed.head, tuple(items))) == YAML.save(CASSETTE)


def test_older_json_lines_are_loaded_too() -> None:
    root = _as_version_0(JSON.save(CASSETTE))
    values = [{name: root[name] for name in root if name != "interactions"}, *root["interactions"]]
    older = b"".join([json.dumps(each).encode() + b"\n" for each in values])

    assert jsonl.read(older, CassetteHead("", "fresh"), {0: upgrade_0_to_1}) == CASSETTE


def test_upgrades_are_applied_one_version_after_the_other() -> None:
    def after(step: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
        return lambda older: older | {"steps": [*older["steps"], (step, older["version"])]}

    chain = {2: after("2 to 3"), 1: after("1 to 2"), 3: after("3 to 4")}

    found: dict[str, Any] = upgraded({"version": "2", "steps": []}, chain, current=4)

    assert found == {"version": "4", "steps": [("2 to 3", "2"), ("3 to 4", "3")]}


def test_a_file_of_the_current_version_is_left_alone() -> None:
    given: Document = {"version": str(CURRENT), "x": 1}

    assert upgraded(given) is given


def test_the_chain_leads_from_its_oldest_version_to_the_current_one() -> None:
    assert sorted(UPGRADES) == list(range(min(UPGRADES, default=CURRENT), CURRENT))


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("4", "the file has the newer format version 4; this tapeway reads 1, 2, 3: update"),
        ("0", "there is no format version '0'; this tapeway reads 1, 2, 3: correct it"),
        ("1.0", "there is no format version '1.0'; "),
        ("9" * 5000, "there is no format version '9"),
        (None, "the field 'version' is missing"),
    ],
)
def test_an_unknown_version_is_refused_with_the_known_ones(version: Any, reason: str) -> None:
    chain: dict[int, Upgrade] = {1: dict, 2: dict}

    with pytest.raises(FormatFault) as caught:
        upgraded({"version": version}, chain, current=3)

    assert str(caught.value).removeprefix("version: ").startswith(reason)


def test_a_newer_file_is_named_with_the_line_of_its_version() -> None:
    newer = JSON.save(CASSETTE).replace(b'"version": "1"', b'"version": "2"')

    with pytest.raises(FormatFault, match=r"newer format version 2; .* reads 1: update") as caught:
        JSON.load(newer)

    assert (caught.value.pointer, caught.value.line) == (("version",), 2)


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_what_every_release_of_agenttape_wrote_has_the_current_version(path: Path) -> None:
    root = parser.parse(path.read_bytes())

    assert isinstance(root, dict)
    assert upgraded(root) is root
    assert loaded(f"{path.parent.name}/{path.name}").interactions


def test_a_copy_between_two_tapeways_is_not_upgraded() -> None:
    with pytest.raises(FormatFault, match="there is no format version '0'"):
        jsonl.CopyReader().feed(b'{"version":"0","created_at":"","run_id":"","meta":{}}\n')
