"""JSON Lines: the head, then one interaction a line."""

import json

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.formats import jsonl
from tapeway.formats.native import document
from tests.formats.other_tools.example_files import FRESH, fault
from tests.support.exchanges import interaction

TOOL = ForeignInteraction(1, {"kind": "tool", "request": {"name": "f"}, "response": "a\nb"})
CASSETTE = StoredCassette(CassetteHead("then", "r", {"a": 1}), (interaction(), TOOL))


def test_each_line_is_that_of_the_cassette_file() -> None:
    head, *lines = [json.loads(line) for line in jsonl.write(CASSETTE).splitlines()]

    assert head == {"version": "1", "created_at": "then", "run_id": "r", "meta": {"a": 1}}
    assert lines == json.loads(document.save(CASSETTE))["interactions"]


def test_a_large_interaction_is_written_in_pieces() -> None:
    large: dict[str, Json] = {"text": "a" * 3_000_000, "numbers": [0.5] * 400_000}
    tool = ForeignInteraction(0, {"kind": "tool", "request": {"name": "f"}, "response": large})

    pieces = list(jsonl.pieces(StoredCassette(FRESH, (tool,))))

    assert max(map(len, pieces)) < 1024 * 1024
    (found,) = jsonl.read(b"".join(pieces), FRESH).interactions
    assert isinstance(found, ForeignInteraction)
    assert found.document == {**tool.document, "index": 0}


def test_lines_without_a_head_are_a_cassette_too() -> None:
    _, *lines = jsonl.write(CASSETTE).splitlines(keepends=True)

    found = jsonl.read(b"\n".join(lines), FRESH)

    assert found.head == FRESH
    assert len(found.interactions) == 2


def test_a_broken_line_is_named_by_its_number() -> None:
    head, first, second = jsonl.write(CASSETTE).splitlines(keepends=True)

    assert fault("jsonl", head + b"\n" + first + b"{]\n")[1] == 4
    assert fault("jsonl", head + first + b"[]\n") == ("must be an object", 3)
    wrong = first.replace(b'"status_code":200', b'"status_code":99')
    assert fault("jsonl", head + second + wrong) == (
        "interactions[1].response.status_code: must be a whole number between 200 and 599, not 99",
        3,
    )
    reason, line = fault("jsonl", b"\n" + head.replace(b'"1"', b'"2"') + first)
    assert line == 2
    assert reason.startswith("version: the file has the newer format version 2")
