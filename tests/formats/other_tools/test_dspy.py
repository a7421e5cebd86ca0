"""DSPy's replay caches: its key bit for bit, an entry as a recording of kind `llm`."""

import json
from typing import Any

import pytest

from tapeway.cli.transfer.batches import digest_of
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.formats.native import document
from tapeway.formats.other_tools import dspy
from tests.formats.other_tools.example_files import fault, load

REQUEST: dict[str, Any] = {
    "model": "openai/gpt-fake",
    "messages": [{"role": "user", "content": "hé"}],
    "temperature": 0.0,
    "_fn_identifier": "dspy.clients.lm.litellm_completion",
}
KEY = "677f5ee12d5cf3ac537c9ed7b14b38270528093005bc5685f85509a34120fb41"
RESPONSE: dict[str, Any] = {
    "type": "litellm.types.utils.ModelResponse",
    "data": {"choices": [{"message": {"role": "assistant", "content": "Paris"}}]},
    "usage": {},
    "cache_hit": False,
}
FILE: dict[str, Any] = {
    "metadata": {"created_at": "2025-11-14T12:00:00Z", "dspy_version": "3.0.4", "mode": "record"},
    "entries": {KEY: {"request": REQUEST, "response": RESPONSE}},
}
TEXT = json.dumps(FILE, indent=2).encode()


def test_the_key_is_that_of_dspy() -> None:
    assert dspy.cache_key(REQUEST) == KEY
    assert dspy.cache_key({**REQUEST, "api_key": "x", "base_url": "y"}) == KEY
    assert dspy.cache_key({**REQUEST, "temperature": 0}) != KEY
    with pytest.raises(ValueError, match="caches no request"):
        dspy.cache_key({"seed": 2**64})


def test_an_entry_is_an_llm_call_as_agenttape_would_have_it() -> None:
    (found,) = load("dspy", TEXT).cassette.interactions

    assert isinstance(found, ForeignInteraction)
    assert found.document["kind"] == "llm"
    assert found.document["request"] == {
        "endpoint": "chat.completions",
        "model": "openai/gpt-fake",
        "messages": [{"role": "user", "content": "hé"}],
        "temperature": 0.0,
    }
    assert found.document["response"] == RESPONSE["data"]


@pytest.mark.parametrize(
    "function",
    [
        *("dspy.clients.lm.alitellm_responses_completion", "dspy.clients.lm15.complete.async"),
        *("dspy.clients.embedding._cached_acompute_embeddings", None),
    ],
)
def test_an_entry_comes_back_as_it_was(function: str | None) -> None:
    request = {**REQUEST, "_fn_identifier": function}
    if function is None:
        del request["_fn_identifier"]
    entries = {"k": {"request": request, "response": RESPONSE}, **FILE["entries"]}
    loaded = load("dspy", json.dumps({**FILE, "entries": entries}).encode())

    items = [item for item in loaded.cassette.interactions if isinstance(item, ForeignInteraction)]

    assert [dspy.entry_of(item.document) for item in items] == [*entries.items()]
    assert loaded.cassette.head.meta["dspy"] == FILE["metadata"]


def test_a_broken_entry_is_named_with_line_and_place() -> None:
    said, line = fault("dspy", TEXT.replace(b'"data"', b'"date"'))

    assert said == f"entries.{KEY}.response: the field 'data' is missing"
    assert line == TEXT[: TEXT.index(b'"response"')].count(b"\n") + 1


def test_a_recording_is_the_same_one_in_a_store_and_in_a_file() -> None:
    (entry,) = load("dspy", TEXT).cassette.interactions
    (stored,) = document.load(
        document.save(StoredCassette(CassetteHead("", "r"), (entry,)))
    ).interactions

    assert digest_of(stored) == digest_of(entry)
