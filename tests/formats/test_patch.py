"""Documents changed only where a change says so."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import ResponseChunk
from tapeway.formats.native.document import decode, encode
from tapeway.formats.native.secret_scan import patched
from tests.formats.exchanges import interaction

BY_HAND: dict[str, Json] = {
    "kind": "http",
    "request": {"url": "https://h/x", "method": "GET", "headers": {"a": "1"}},
    "response": {"status_code": 200, "text": "old", "headers": {"b": "2"}},
    "tags": ["mine"],
}


def changed(document: dict[str, Json], change: dict[str, object]) -> dict[str, Json]:
    item = decode(document, 0)
    assert isinstance(item, Interaction)
    response = replace(item.response, **change)  # type: ignore[arg-type]
    return patched(document, encode(item), encode(replace(item, response=response)))


def test_what_did_not_change_stays_as_somebody_wrote_it() -> None:
    result = changed(BY_HAND, {"chunks": (ResponseChunk(b"new"),)})

    assert result == BY_HAND | {
        "response": {"status_code": 200, "text": "new", "headers": {"b": "2"}}
    }
    assert list(result) == list(BY_HAND)


def test_a_body_that_takes_another_form_takes_the_old_one_s_place() -> None:
    result = changed(BY_HAND, {"chunks": (ResponseChunk(b"\xff"),)})

    assert result["response"] == {"status_code": 200, "body_b64": "/w==", "headers": {"b": "2"}}


def test_nothing_changes_where_nothing_differs() -> None:
    assert changed(BY_HAND, {}) == BY_HAND


@given(
    old=st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=3),
    new=st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=3),
)
def test_a_patched_document_says_what_was_changed(old: list[bytes], new: list[bytes]) -> None:
    def recorded(pieces: list[bytes]) -> Interaction:
        chunks = tuple([ResponseChunk(piece, float(at)) for at, piece in enumerate(pieces)])
        return interaction(chunks=chunks, framing="chunked")

    before, after = encode(recorded(old)), encode(recorded(new))

    assert decode(patched(before, before, after), 0) == recorded(new)
