"""DSPy's programs recorded with ReplayCache and replayed without a service, from its environment."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tapeway.testing.stand_in import ThreadedStandIn
from tests.support import fork_server

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
PROGRAM = ROOT / "tests" / "clients" / "programs" / "dspy_calls.py"
KEY = "sk-a-key-nobody-has-1234567890"
ASKED = (
    *("raw", "predicted", "awaited", "parallel", "embedded", "home_made", "through_litellm"),
    "usage",
)
TOLD = ("a_miss", "bad_mode")
SHUT = ("uncached", "own_class", "uncached_embedding", "unhashable", "never_asked")

pytestmark = [
    pytest.mark.elsewhere,
    pytest.mark.skipif(not PYTHON.exists(), reason="`make clients` makes DSPy's environment"),
]


def python() -> tuple[str, ...]:
    """What runs a program in DSPy's environment."""
    return (sys.executable, "-IS", str(fork_server.python(str(PYTHON), "dspy", "litellm")))


def run(
    mode: str, folder: Path, url: str, steps: Sequence[str], **where: str
) -> tuple[dict[str, Any], str]:
    """What each step returned, and what was logged."""
    given = {"url": url, "key": KEY, "place": str(folder / "qa.json"), "steps": steps, **where}
    done = subprocess.run(
        [*python(), "-W", "ignore", str(PROGRAM), json.dumps(given)],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "CACHE_MODE": mode,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found, done.stderr


def test_a_program_is_replayed_from_its_file_without_a_service(tmp_path: Path) -> None:
    with ThreadedStandIn() as service:
        recorded, _ = run("record", tmp_path, service.url, ASKED)
        asked = len(service.requests)
    text = (tmp_path / "qa.json").read_text()
    replayed, _ = run("replay", tmp_path, service.url, (*ASKED, *SHUT, *TOLD))

    # Each question once, the second time in the same run too.
    # The embedder of its own making has an entry and asks nobody.
    assert asked == len(json.loads(text)["entries"]) - 1 == 3 + 1 + 3 + 8 + 1 + 1 + 1
    assert not (tmp_path / ".dspy_cache").exists()
    assert all(
        run_["lazy"] and run_["in force"] and run_["put back"] for run_ in (recorded, replayed)
    )
    for step in ASKED[:-1]:
        assert not isinstance(recorded[step], str) or step == "predicted", recorded[step]
        assert replayed[step] == recorded[step]
    # Usage and cost of the first call, and usage of a repeated one.
    assert (recorded["usage"], replayed["usage"]) == ([True, True, {}], [False, True, {}])
    assert KEY not in text
    assert (tmp_path / "qa.json").read_text() == text

    for step in SHUT:
        assert replayed[step].startswith("CacheMissError: ")
    assert "nothing is asked" in replayed["uncached"]
    assert "nothing is asked" in replayed["own_class"]
    assert "nothing is asked" in replayed["uncached_embedding"]
    assert "has no key" in replayed["unhashable"]
    missed = replayed["never_asked"]
    assert "openai/gpt-4o" in missed
    assert "differs at messages[0].content" in missed
    assert f"The first of this run: {replayed['first_miss']}" in missed
    assert replayed["first_miss"] in replayed["uncached"]
    assert json.loads(text)["metadata"]["mode"] == "record"
    check_told(replayed, tmp_path / "qa.json")


def check_told(found: dict[str, Any], file: Path) -> None:
    """A miss and a wrong mode are told as DSPy's own cache tells them."""
    (missed, shown, key, place), (unhashable, no_request, no_key, _) = found["a_miss"]
    assert missed.startswith("Cache miss: m (f) is not in ")
    assert shown == {"model": "m", "prompt": "Never asked", "_fn_identifier": "f"}
    assert (len(key), place) == (64, str(file))
    assert unhashable.startswith("Cache miss: this request has no key in DSPy's cache")
    assert (no_request, no_key) == ({}, "")
    assert found["bad_mode"] == [
        "mode: 'rewind' is not accepted; use record, replay, auto",
        "CACHE_MODE: 'rewind' is not accepted; use record, replay, auto",
    ]
    assert KEY not in json.dumps(found)


def test_a_program_is_replayed_from_any_store(tmp_path: Path) -> None:
    where = {"place": str(tmp_path / "cassettes"), "cassette": "suite/qa"}
    with ThreadedStandIn() as service:
        recorded, _ = run("auto", tmp_path, service.url, ("raw",), **where)
        again, _ = run("auto", tmp_path, service.url, ("raw", "never_asked"), **where)
        asked = len(service.requests)
    replayed, _ = run("replay", tmp_path, service.url, ("raw", "never_asked"), **where)

    assert asked == 3 + 1
    assert recorded["raw"] == again["raw"] == replayed["raw"]
    assert replayed["never_asked"] == again["never_asked"]
    cassette = json.loads((tmp_path / "cassettes" / "suite" / "qa.json").read_text())
    assert [interaction["kind"] for interaction in cassette["interactions"]] == ["llm"] * 4
    assert KEY not in json.dumps(cassette)
