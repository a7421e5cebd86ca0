"""A program's own calls and DSPy's, kept in a store of every sort."""

import json

import pytest

from tapeway.core.json_text import Json
from tapeway.errors import CallMissed
from tapeway.integrations.blocking_cassette import BlockingCassette
from tapeway.integrations.calls.cassette import Cassette
from tapeway.integrations.dspy.entries import CassetteEntryStore
from tapeway.ports import CassetteStore
from tapeway.stores.memory import MemoryStore


def store_at(address: str) -> str | CassetteStore:
    return MemoryStore() if address == "memory:" else address


def test_calls_are_recorded_recorded_anew_and_replayed(address: str) -> None:
    store = store_at(address)
    with Cassette("runs/one", store=store, mode="auto") as cassette:
        for said in ("a", "b"):
            cassette.call("tool", "f", {"x": 1}, lambda said=said: {"said": said})  # type: ignore[misc]
        cassette.call("retrieval", "g", {}, lambda: [b"\xff", float("inf")])
        cassette.call("tool", "last", {}, lambda: None)
    with Cassette("runs/one", store=store, mode="record") as cassette:
        cassette.call("tool", "f", {"x": 1}, lambda: {"said": "c"})
    with Cassette("runs/one", store=store) as cassette:
        found = cassette.call("tool", "f", {"x": 1})
        more = [cassette.call("tool", "last", {}), cassette.call("retrieval", "g", {})]
        with pytest.raises(CallMissed, match=r"1 time\(s\), all used up: #"):
            cassette.call("tool", "f", {"x": 1})

    assert found == {"said": "c"}
    assert more == [None, [b"\xff", float("inf")]]


def test_dspy_entries_come_back_by_key_and_the_newest_counts(address: str) -> None:
    store = store_at(address)

    def entry(said: str) -> dict[str, Json]:
        request: Json = {"model": "m", "prompt": "x", "_fn_identifier": "dspy.f"}
        return {"request": request, "response": {"type": "json", "data": {"said": said}}}

    def entries() -> CassetteEntryStore:
        return CassetteEntryStore(BlockingCassette(store, "suite/qa", repeats="last"))

    one = entries()
    assert one.read() is None
    for key, said in (("k1", "1"), ("k2", "2"), ("k1", "3")):
        one.put(key, entry(said))
    one.close()
    again = entries()
    found = again.read()
    again.put("k2", entry("4"))
    again.close()
    last = entries()

    assert json.dumps(found, sort_keys=True) == json.dumps(
        {"k1": entry("3"), "k2": entry("2")}, sort_keys=True
    )
    assert last.read() == {"k1": entry("3"), "k2": entry("4")}
    last.close()
