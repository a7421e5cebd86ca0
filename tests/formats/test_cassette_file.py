"""The cassette file in YAML, and non-finite numbers in both syntaxes."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

from tapeway.core import json_text
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.formats.cassette_file import JSON, SERIALIZER_BY_SUFFIX, SERIALIZERS, YAML, Serializer
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document
from tapeway.formats.yaml import parser as yaml_parser
from tests.support.exchanges import made_up_interactions

DATA = Path(__file__).parent / "data"
HEAD = CassetteHead("2026-11-21T20:35:14Z", "run-1", {"tags": ["no", "1e5"], "n": 1e-05})
RESULT: Json = {
    "a": {json_text.NON_FINITE_KEY: "NaN"},
    "b": [{json_text.NON_FINITE_KEY: "-Infinity"}, 1.5],
}


@given(given_one=made_up_interactions())
def test_a_cassette_comes_back_as_it_was_from_yaml_as_from_json(given_one: Interaction) -> None:
    cassette = StoredCassette(HEAD, (given_one,))

    as_json, as_yaml = JSON.save(cassette), YAML.save(cassette)
    found = YAML.load(as_yaml)

    assert found == JSON.load(as_json)
    assert YAML.save(found) == as_yaml
    assert JSON.save(found) == as_json
    assert json.dumps(yaml.safe_load(as_yaml)) == json.dumps(json.loads(as_json))


@pytest.mark.parametrize("name", ["agenttape_chat", "agenttape_async"])
def test_a_cassette_of_agenttape_goes_to_json_and_back_without_loss(name: str) -> None:
    found = YAML.load((DATA / f"{name}.yaml").read_bytes())

    assert found == JSON.load((DATA / f"{name}.json").read_bytes())
    assert YAML.load(YAML.save(found)) == JSON.load(JSON.save(found)) == found


def test_documents_are_written_in_order_with_their_position_as_index() -> None:
    documents: list[Document] = [{"kind": "tool", "response": None}, {"index": 7, "a": []}]

    text = YAML.write(CassetteHead("now", "r", {}), documents)

    assert text.decode() == (
        "version: '1'\ncreated_at: now\nrun_id: r\nmeta: {}\ninteractions:\n"
        "  - index: 0\n    kind: tool\n    response: null\n"
        "  - index: 1\n    a: []\n"
    )
    assert YAML.write(CassetteHead("", ""), []).endswith(b"\ninteractions: []\n")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "this is no cassette"),
        ("- 1\n", 1, "this is no cassette"),
        ("version: '1'\nmeta: {}\n", 1, "the field 'interactions' is missing"),
        (
            "# x\nversion: 2\ninteractions: []\n",
            2,
            "version: the file has the newer format version 2; this tapeway reads 1",
        ),
        ("version: '1'\ninteraction: []\n", 2, "did you mean 'interactions'"),
        ("version: 1\ninteractions:\n  - kind: htp\n", 3, "did you mean 'http'"),
        (
            "version: 1\ninteractions:\n- kind: http\n  request: {method: GET, url: /}\n"
            "  response:\n    status_code: 99\n",
            6,
            "interactions[0].response.status_code: must be a whole number between 200 and 599",
        ),
        (
            "version: 1\ninteractions:\n- kind: http\n  request:\n    method: GET\n    url: /\n"
            "  response:\n    status_code: '200'\n",
            8,
            "not text",
        ),
        (
            "version: 1\ninteractions:\n- kind: http\n  request:\n    method: GET\n    url: /\n"
            "  response:\n    text: {__agenttape_asset__: 'sha256:0'}\n",
            8,
            "reference without a sha256",
        ),
    ],
)
def test_a_wrong_field_is_named_with_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(FormatFault) as refused:
        YAML.load(text.encode())

    assert said in str(refused.value)
    assert refused.value.line == line


def test_a_text_in_an_asset_of_agenttape_is_fetched() -> None:
    digest = "sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    text = (
        "version: '1'\ninteractions:\n  - index: 0\n    kind: http\n"
        "    request:\n      method: GET\n      url: 'http://h/'\n"
        "    response:\n      status_code: 200\n"
        f"      text:\n        __agenttape_asset__: '{digest}'\n        encoding: utf-8\n"
    )

    (found,) = YAML.load(text.encode(), {digest: b"x"}.get).interactions

    assert isinstance(found, Interaction)
    assert found.response.body == b"x"


def test_a_call_of_another_tool_is_kept_unchanged() -> None:
    document: Any = {
        "index": 0,
        "kind": "tool",
        "request": {"no": "no", "1": " "},
        "response": 1e-7,
    }

    text = YAML.save(StoredCassette(HEAD, (ForeignInteraction(0, document),)))

    assert YAML.load(text).interactions == (ForeignInteraction(0, document),)


def test_what_could_not_be_read_again_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_parser, "MAX_SIZE", 100)

    with pytest.raises(FormatFault, match="too much for YAML"):
        YAML.write(HEAD, [{"kind": "tool", "response": "x" * 100}])


def test_a_serializer_is_found_by_its_name_and_by_its_suffixes() -> None:
    assert {"json": JSON, "yaml": YAML} == SERIALIZERS
    assert {".json": JSON, ".yaml": YAML, ".yml": YAML} == SERIALIZER_BY_SUFFIX


def _text(serializer: Serializer, kind: str, said: str) -> bytes:
    request = '{"name": "f", "args": {}}'
    if kind == "http":
        request = '{"method": "GET", "url": "http://h/x", "headers": {}}'
        said = f'{{"status_code": 200, "headers": {{}}, "json": {said}}}'
    text = (
        '{"version": "1", "created_at": "", "run_id": "", "meta": {}, "interactions": '
        f'[{{"index": 0, "kind": "{kind}", "request": {request}, "response": {said}}}]}}'
    )
    if serializer is YAML:
        text = text.replace("-Infinity", "-.inf").replace("NaN", ".nan")
    return text.encode()


@pytest.mark.parametrize("serializer", [JSON, YAML], ids=["json", "yaml"])
def test_non_finite_numbers_are_written_back_as_they_were(serializer: Serializer) -> None:
    text = _text(serializer, "tool", '{"a": NaN, "b": [-Infinity, 1.5]}')

    cassette = serializer.load(text)
    written = serializer.save(cassette)

    (found,) = cassette.interactions
    assert isinstance(found, ForeignInteraction)
    assert found.document["response"] == RESULT
    assert serializer.load(written) == cassette
    names = (b"NaN", b"-Infinity") if serializer is JSON else (b"a: .nan", b"- -.inf")
    assert all(name in written for name in names)
    assert json_text.NON_FINITE_KEY.encode() not in written


@pytest.mark.parametrize("serializer", [JSON, YAML], ids=["json", "yaml"])
def test_a_body_has_non_finite_numbers_as_python_writes_them(serializer: Serializer) -> None:
    (found,) = serializer.load(_text(serializer, "http", '{"a": NaN}')).interactions

    assert isinstance(found, Interaction)
    assert found.response.body == b'{"a": NaN}'


def test_a_text_that_looks_like_a_non_finite_number_stays_a_text() -> None:
    said = json.dumps({json_text.NON_FINITE_KEY: "NaN"})
    document = {"version": "1", "created_at": "", "run_id": "", "interactions": []}
    held: dict[str, Json] = {"index": 0, "kind": "tool", "request": {}, "response": said}

    text = json.dumps({**document, "interactions": [held]}).encode()
    cassette = JSON.load(text)

    assert JSON.load(JSON.save(cassette)) == cassette
    assert cassette.interactions == (ForeignInteraction(0, held),)


def test_each_has_its_number() -> None:
    for number in (math.inf, -math.inf, math.nan):
        found = json_text.non_finite_number(
            json_text.non_finite_object(json_text.non_finite_name(number))
        )
        assert found is not None
        assert str(found) == str(number)
    assert json_text.non_finite_number({json_text.NON_FINITE_KEY: "other"}) is None
