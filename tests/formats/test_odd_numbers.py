"""Numbers that JSON has no name for, which AgentTape writes all the same."""

import json
import math

import pytest

from tapeway.core import json_text
from tapeway.core.json_text import Json
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.formats.cassette_file import JSON, YAML, Notation

RESULT: Json = {"a": {json_text.NAME: "NaN"}, "b": [{json_text.NAME: "-Infinity"}, 1.5]}


def _text(notation: Notation, kind: str, said: str) -> bytes:
    request = '{"name": "f", "args": {}}'
    if kind == "http":
        request = '{"method": "GET", "url": "http://h/x", "headers": {}}'
        said = f'{{"status_code": 200, "headers": {{}}, "json": {said}}}'
    text = (
        '{"version": "1", "created_at": "", "run_id": "", "meta": {}, "interactions": '
        f'[{{"index": 0, "kind": "{kind}", "request": {request}, "response": {said}}}]}}'
    )
    if notation is YAML:
        text = text.replace("-Infinity", "-.inf").replace("NaN", ".nan")
    return text.encode()


@pytest.mark.parametrize("notation", [JSON, YAML], ids=["json", "yaml"])
def test_they_are_read_held_and_written_as_they_were(notation: Notation) -> None:
    text = _text(notation, "tool", '{"a": NaN, "b": [-Infinity, 1.5]}')

    cassette = notation.load(text)
    written = notation.save(cassette)

    (found,) = cassette.interactions
    assert isinstance(found, ForeignInteraction)
    assert found.document["response"] == RESULT
    assert notation.load(written) == cassette
    names = (b"NaN", b"-Infinity") if notation is JSON else (b"a: .nan", b"- -.inf")
    assert all(name in written for name in names)
    assert json_text.NAME.encode() not in written


@pytest.mark.parametrize("notation", [JSON, YAML], ids=["json", "yaml"])
def test_a_body_has_them_as_python_writes_them(notation: Notation) -> None:
    (found,) = notation.load(_text(notation, "http", '{"a": NaN}')).interactions

    assert isinstance(found, Interaction)
    assert found.response.body == b'{"a": NaN}'


def test_a_text_that_looks_like_one_stays_a_text() -> None:
    said = json.dumps({json_text.NAME: "NaN"})
    document = {"version": "1", "created_at": "", "run_id": "", "interactions": []}
    held: dict[str, Json] = {"index": 0, "kind": "tool", "request": {}, "response": said}

    text = json.dumps({**document, "interactions": [held]}).encode()
    cassette = JSON.load(text)

    assert JSON.load(JSON.save(cassette)) == cassette
    assert cassette.interactions == (ForeignInteraction(0, held),)


def test_each_has_its_number() -> None:
    for number in (math.inf, -math.inf, math.nan):
        found = json_text.number(json_text.held(json_text.name_of(number)))
        assert found is not None
        assert str(found) == str(number)
    assert json_text.number({json_text.NAME: "other"}) is None
