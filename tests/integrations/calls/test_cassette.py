"""A program's own calls: recorded once, answered in order, and replayed by AgentTape too."""

import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import agenttape
import pytest

from tapeway.errors import CallMissed, ConfigError, StoreError
from tapeway.integrations.calls.cassette import Cassette, Mode
from tapeway.integrations.calls.values import RecordedError
from tests.formats.agenttape.cassettes import FOLDER, NAMES
from tests.support.canary import canary, sightings

LONDON = {"city": "London", "unit": "C", "rest": []}
WEATHER = {"temp": 1e-07, "note": "wet\nand cold ", "b": b"\x00\xff", "l": ["a\nb", "c\n", 1e20]}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A copy of what AgentTape 0.1.8 recorded of decorated functions."""
    shutil.copytree(FOLDER / "0.1.8", tmp_path, dirs_exist_ok=True)
    return tmp_path / "tools.yaml"


def test_a_call_is_answered_by_what_agenttape_recorded(tools: Path) -> None:
    with Cassette(tools) as cassette:
        weather = cassette.call("tool", "get_weather", LONDON)
        nothing = cassette.call("memory_read", "recall", {"key": "k"})
        found = cassette.call("retrieval", "search", {"query": "q", "k": "2.5"})

    assert weather == {"temp": 15, "city": "London", "note": "wet\nand cold"}
    assert nothing is None
    assert isinstance(found, list)
    assert found[0] == {"text": "document " * 600, "score": 1e-07}


@pytest.mark.parametrize("name", [name for name in NAMES if "/tools." in name])
def test_the_cassettes_of_all_releases_answer(name: str) -> None:
    with Cassette(FOLDER / name) as cassette:
        assert cassette.call("memory_write", "remember", _remembered(name)) is True


def _remembered(name: str) -> dict[str, object]:
    value = "00000000-0000-0000-0000-000000000005" if name.startswith("0.1.8") else "5"
    return {"key": "k", "value": value}


def test_bytes_come_back_as_bytes(tools: Path) -> None:
    with Cassette(tools) as cassette:
        picture = cassette.call("tool", "picture", {"name": "a"})

    assert isinstance(picture, dict)
    assert picture["raw"] == b"\x00\x01\xff"
    assert picture["large"] == bytes(range(256)) * 20


def test_a_recorded_error_is_raised_again(tools: Path) -> None:
    args = {"amount": 4200, "when": "2026-01-02"}
    with Cassette(tools) as cassette, pytest.raises(TimeoutError, match="gateway timed out"):
        cassette.call("tool", "charge", args)


def test_an_error_whose_class_is_not_loaded_is_raised_without_an_import(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.json"
    path.write_text(
        '{"version":"1","interactions":[{"kind":"tool","boundary":"f","request":{"name":"f",'
        '"args":{}},"error":{"type":"system","module":"antigravity","message":"no"}}]}'
    )
    with Cassette(path) as cassette, pytest.raises(RecordedError, match="system: no") as caught:
        cassette.call("tool", "f", {})

    assert caught.value.document["module"] == "antigravity"


def test_each_recording_answers_once(tools: Path) -> None:
    with Cassette(tools) as cassette:
        cassette.call("tool", "get_weather", LONDON)
        with pytest.raises(CallMissed, match=r"1 time\(s\), all used up: #0"):
            cassette.call("tool", "get_weather", LONDON)
        cassette.rewind()
        cassette.call("tool", "get_weather", LONDON)
    with Cassette(tools, repeats="last") as cassette:
        answers = [cassette.call("tool", "get_weather", LONDON) for _ in range(3)]

    assert answers[0] == answers[2]


def test_ordered_recordings_answer_in_order() -> None:
    with Cassette(FOLDER / "0.1.8" / "ordered.yaml") as cassette:
        first = cassette.call("tool", "get_weather", {"city": "Nowhere"})
        second = cassette.call("tool", "get_weather", {"city": "London"})

    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert (first["city"], second["city"]) == ("London", "Paris")


def test_a_miss_names_the_nearest(tools: Path) -> None:
    with Cassette(tools) as cassette:
        with pytest.raises(CallMissed, match=r"nearest #0 differs at args.city") as caught:
            cassette.call("tool", "get_weather", {**LONDON, "city": "Rome"})
        with pytest.raises(CallMissed, match="no call of that kind is"):
            _ask_http(tools)

    assert caught.value.status == 400


def _ask_http(tools: Path) -> None:
    with Cassette(tools.with_name("http.yaml")) as cassette:
        cassette.call("tool", "any", {})


def test_a_replay_writes_nothing(tools: Path) -> None:
    before = sorted((path.name, path.stat().st_mtime_ns) for path in tools.parent.rglob("*"))
    with Cassette(tools) as cassette:
        cassette.call("tool", "get_weather", LONDON)

    assert before == sorted(
        (path.name, path.stat().st_mtime_ns) for path in tools.parent.rglob("*")
    )


def _same(value: object) -> object:
    return value


@pytest.mark.parametrize("ending", ["json", "yaml"])
def test_a_call_that_is_not_recorded_is_made_and_recorded(tmp_path: Path, ending: str) -> None:
    path, asked = tmp_path / f"new.{ending}", [1, b"\x00", {"n": 1e-07}]

    with Cassette(path, mode="auto") as cassette:
        live = [
            cassette.call("tool", "f", {"x": request}, partial(_same, request)) for request in asked
        ]
    with Cassette(path) as cassette:
        again = [cassette.call("tool", "f", {"x": request}) for request in asked]

    assert live == asked
    assert again == asked
    assert path.exists()


def test_an_error_is_recorded_and_raised(tmp_path: Path) -> None:
    def fail() -> None:
        raise KeyError("lost")

    path = tmp_path / "new.json"
    with Cassette(path, mode="auto") as cassette, pytest.raises(KeyError):
        cassette.call("tool", "f", {}, fail)
    with Cassette(path) as cassette, pytest.raises(KeyError) as caught:
        cassette.call("tool", "f", {})

    assert caught.value.args == ("lost",)


def test_recording_anew_replaces_what_earlier_runs_recorded(tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    results: list[object] = [1, 2, 3]
    for calls in (2, 1):
        with Cassette(path, mode="record") as cassette:
            for _ in range(calls):
                cassette.call("tool", "f", {"x": 0}, lambda: results.pop(0))
    with Cassette(path) as cassette:
        answer = cassette.call("tool", "f", {"x": 0})
        with pytest.raises(CallMissed):
            cassette.call("tool", "f", {"x": 0})

    assert answer == 3


async def test_calls_may_be_awaited(tmp_path: Path) -> None:
    async def later() -> int:
        await asyncio.sleep(0)
        return 7

    with Cassette(tmp_path / "new.json", mode="auto") as cassette:
        first = await cassette.acall("tool", "f", {}, later)
    with Cassette(tmp_path / "new.json") as cassette:
        again = await cassette.acall("tool", "f", {})
        with pytest.raises(CallMissed):
            await cassette.acall("tool", "f", {}, later)

    assert (first, again) == (7, 7)


async def test_calls_may_be_made_inside_a_running_loop_and_by_many_at_once(tmp_path: Path) -> None:
    async def later(number: int) -> int:
        await asyncio.sleep(0)
        return number

    file = tmp_path / "new.yaml"
    with Cassette(file, mode="auto") as cassette:
        cassette.call("tool", "f", {}, lambda: "at once")
        await asyncio.gather(
            *[cassette.acall("tool", "g", {"n": n % 3}, partial(later, n)) for n in range(9)],
            *[
                asyncio.to_thread(cassette.call, "tool", "h", {"n": n}, partial(int, n))
                for n in range(9)
            ],
        )
    with Cassette(file) as cassette:
        assert cassette.call("tool", "f", {}) == "at once"
        given = [await cassette.acall("tool", "g", {"n": n % 3}) for n in range(9)]
        threads = [asyncio.to_thread(cassette.call, "tool", "h", {"n": n}) for n in range(9)]
        assert len(await asyncio.gather(*threads)) == 9

    # Each once; what is asked at the same time is recorded as it is answered.
    assert sorted(map(str, given)) == list("012345678")


def test_recordings_are_durable_without_a_close(tmp_path: Path) -> None:
    file = tmp_path / "new.yaml"
    program = f"""
import os
from tapeway.library import Cassette
cassette = Cassette({str(file)!r}, mode="auto")
cassette.call("tool", "f", {{}}, lambda: 1)
os._exit(0)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)

    assert not file.exists()
    with Cassette(file) as cassette:
        assert cassette.call("tool", "f", {}) == 1
    with Cassette(file, mode="auto") as cassette:
        cassette.call("tool", "g", {}, lambda: 2)
    assert file.read_text().count("kind: tool") == 2
    assert not file.with_suffix(".journal").exists()


def test_no_secret_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = canary()
    monkeypatch.setenv("MY_API_KEY", secret)
    octets = f"\xff{secret}".encode("latin-1")
    args = {"password": secret, "note": f"use {secret}", secret: octets}

    def failing() -> None:
        raise ValueError(secret)

    with Cassette(tmp_path / "new.json", mode="auto") as cassette:
        cassette.call("tool", "login", args, lambda: {"said": secret, "octets": octets})
        with pytest.raises(ValueError, match=re.escape(secret)):
            cassette.call("tool", "fail", args, failing)
    with Cassette(tmp_path / "new.json") as cassette:
        answer = cassette.call("tool", "login", args)
        with pytest.raises(ValueError, match=r"^REDACTED\."):
            cassette.call("tool", "fail", args)
        with pytest.raises(CallMissed) as used_up:
            cassette.call("tool", "login", args)
        with pytest.raises(CallMissed) as missed:
            cassette.call("tool", secret, args)

    kept = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert kept
    assert "all used up: #0" in used_up.value.message
    said = {"miss": f"{used_up.value} {missed.value}".encode()}
    assert not sightings({"secret": secret}, kept | said)
    assert isinstance(answer, dict)
    assert answer["said"].startswith("REDACTED.")
    assert answer["octets"].startswith(b"\xffREDACTED.")


def test_a_call_that_cannot_be_stored_is_named(tmp_path: Path) -> None:
    with Cassette(tmp_path / "new.json", mode="auto") as cassette:
        with pytest.raises(StoreError, match="a call of f cannot be kept: a generator can be read"):
            cassette.call("tool", "f", {}, lambda: (character for character in "ab"))
        with pytest.raises(StoreError, match="half of a surrogate"):
            cassette.call("tool", "f", {"x": "\ud800"}, lambda: 1)
        assert cassette.call("tool", "f", {}, lambda: 1) == 1


def test_the_error_of_a_call_is_raised_whatever_its_attributes(tmp_path: Path) -> None:
    class Odd(Exception):
        body = iter("ab")

    def failing() -> None:
        raise Odd("half \ud800")

    with (
        Cassette(tmp_path / "new.json", mode="auto") as cassette,
        pytest.raises(Odd, match="half \ud800"),
    ):
        cassette.call("tool", "f", {}, failing)
    with (
        Cassette(tmp_path / "new.json") as cassette,
        pytest.raises(RecordedError, match=r"Odd: half \\ud800"),
    ):
        cassette.call("tool", "f", {})


@pytest.mark.parametrize("ending", [".json", ".yaml", ".yml"])
def test_the_file_is_the_one_that_was_named(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"new{ending}"
    with Cassette(file, mode="auto") as cassette:
        cassette.call("tool", "f", {}, lambda: 1)
    with Cassette(file) as cassette:
        assert cassette.call("tool", "f", {}) == 1

    assert [path.name for path in tmp_path.glob("new*")] == [file.name]
    for other in {".json", ".yaml", ".yml"} - {ending}:
        with pytest.raises(ConfigError, match=rf"is not there, but '.*new\{ending}' is"):
            Cassette(file.with_suffix(other), mode="auto")


def test_a_place_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no cassette file"):
        Cassette(tmp_path / "x.txt")
    bogus: Mode = "bogus"  # type: ignore[assignment]
    with pytest.raises(ConfigError, match="no mode 'bogus'"):
        Cassette(tmp_path / "x.json", mode=bogus)
    with Cassette(tmp_path / "x.json") as cassette, pytest.raises(StoreError, match="no cassette"):
        cassette.call("tool", "f", {})
    with Cassette(tmp_path / "x.json") as cassette, pytest.raises(ConfigError, match="of kind"):
        cassette.call("http", "f", {})  # type: ignore[arg-type]


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
    london, paris = ({"city": text, "unit": "C"} for text in ("London", "Paris"))
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
