"""Damaged files of AgentTape: refused with their line, never guessed at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.formats.errors import FormatFault
from tests.formats.agenttape.cassettes import FOLDER, loaded

PIECES = [
    b"\xff",
    b"\0",
    b"{",
    b"]",
    b": ",
    b"\n",
    b"'",
    b'"',
    b"- ",
    b"\t",
    b"null",
    b"&a ",
    b"...",
]
DAMAGES: st.SearchStrategy[str | bytes] = st.sampled_from(
    ["cut", "lost", "one line twice", *PIECES]
)
NAMES = ["0.1.8/http.yaml", "0.1.8-json/http.json", "0.1.8/tools.yaml", "0.1.0/llm.yaml"]


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_a_damaged_file_is_refused_with_its_line_or_loaded(name: str, data: st.DataObject) -> None:
    text = (FOLDER / name).read_bytes()
    at = data.draw(st.integers(0, len(text) - 1))
    damage = data.draw(DAMAGES)

    outcome = _outcome(name, _damaged(text, at, damage))

    assert outcome


def _outcome(name: str, text: bytes) -> int | None:
    """The line of the fault, or else how many recordings there are."""
    try:
        return len(loaded(name, text).interactions)
    except FormatFault as fault:
        return fault.line


def _damaged(text: bytes, at: int, damage: str | bytes) -> bytes:
    start, end = text.rfind(b"\n", 0, at) + 1, (text.find(b"\n", at) + 1) or len(text)
    match damage:
        case "cut":
            return text[:at]
        case "lost":
            return text[:at] + text[at + 25 :]
        case "one line twice":
            return text[:end] + text[start:end] + text[end:]
        case bytes():
            return text[:at] + damage + text[at:]
    raise AssertionError(damage)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".json")])
def test_a_file_of_json_that_was_cut_is_refused(name: str) -> None:
    text = (FOLDER / name).read_bytes().rstrip()

    for at in range(0, len(text), 97):
        with pytest.raises(FormatFault):
            loaded(name, text[:at])
