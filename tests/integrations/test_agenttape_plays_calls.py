"""Calls that were recorded here, replayed by AgentTape itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import agenttape
import pytest

from tapeway.integrations.calls.cassette import Cassette

WEATHER = {"temp": 1e-07, "note": "wet\nand cold ", "b": b"\x00\xff", "l": ["a\nb", "c\n", 1e20]}


def _failing() -> None:
    raise TimeoutError("no \u2028 way")


def _never(*_: object, **__: object) -> object:
    raise AssertionError


def _named(decorator: Callable[..., Any], name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = decorator(name=name)(lambda city, unit="C": _never(city, unit))
    return found


@pytest.mark.parametrize("forced", ["", "1"], ids=["with PyYAML", "without"])
@pytest.mark.parametrize("ending", [".yaml", ".json"])
def test_agenttape_replays_the_calls_of_a_program(
    tmp_path: Path, ending: str, forced: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTTAPE_FORCE_STDLIB_YAML", forced)
    london, paris = ({"city": each, "unit": "C"} for each in ("London", "Paris"))
    with Cassette(tmp_path / f"calls{ending}", mode="auto") as cassette:
        for args, said in ((london, WEATHER), (paris, "Paris"), (london, "again")):
            cassette.call("tool", "weather", args, lambda said=said: said)  # type: ignore[misc]
        with pytest.raises(TimeoutError):
            cassette.call("tool", "charge", london, _failing)
        cassette.call("retrieval", "search", paris, lambda: [{"score": float("inf")}])
        cassette.call("memory_write", "remember", {**paris, "city": b"\xff"}, lambda: None)

    weather, charge = _named(agenttape.tool, "weather"), _named(agenttape.tool, "charge")
    search = _named(agenttape.retrieval, "search")
    remember = _named(agenttape.memory_write, "remember")
    with agenttape.use_cassette(f"calls{ending}", mode="none", cassette_dir=tmp_path, freeze=()):
        found = [weather("Paris"), weather("London"), weather("London")]
        with pytest.raises(TimeoutError, match="no \u2028 way"):
            charge("London")
        more = [search("Paris"), remember(b"\xff")]

    assert found == ["Paris", WEATHER, "again"]
    assert more == [[{"score": float("inf")}], None]
