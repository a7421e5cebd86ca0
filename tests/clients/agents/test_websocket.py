"""Codex over WebSocket all the way, and over HTTP where WebSocket is switched off."""

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tapeway.testing import ThreadedStandIn
from tests.clients.agents.test_elsewhere import CODEX, CODEX_ASKS, HERE, THERE, Machine, need

PROVIDER = (
    'model_providers.t={name="t",base_url="$URL",env_key="OPENAI_API_KEY",wire_api="responses",'
    "supports_websockets=true}"
)
SCRIPT = f"""
"$0" exec --skip-git-repo-check -s danger-full-access -m gpt-5-codex -c model_provider=t \\
    -c "$(echo '{PROVIDER}' | sed "s#.URL#$OPENAI_BASE_URL#")" "$1"
code=$?
"$2" -c 'import os, urllib.request as get
print("\\n" + get.urlopen(os.environ["TAPEWAY_ADMIN_URL"] + "/api/v1/journal").read().decode())'
exit $code
"""


def _command(prompt: str) -> list[str]:
    return ["sh", "-c", SCRIPT, need(CODEX), prompt, sys.executable]


def _journal(stdout: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(stdout.splitlines()[-1])["entries"]
    return entries[::-1]


@pytest.mark.slow
def test_codex_replays_elsewhere_over_websocket(tmp_path: Path) -> None:
    store = tmp_path / "cassettes"
    with ThreadedStandIn() as upstream:
        here = Machine(tmp_path / "here", HERE)
        recorded = here.run("auto", upstream.url, store, _command(CODEX_ASKS))
        assert {request.method for request in upstream.requests} == {"GET"}
    assert recorded.returncode == 0, recorded.stderr
    entries = _journal(recorded.stdout)
    assert {entry["method"] for entry in entries} == {"WEBSOCKET"}
    assert {entry["outcome"] for entry in entries} == {"recorded"}

    there = Machine(tmp_path / "there", THERE)
    for _ in range(2):
        replayed = there.run("replay", upstream.url, store, _command(CODEX_ASKS), "--strict")
        assert replayed.returncode == 0, replayed.stderr
        again = _journal(replayed.stdout)
        assert [entry["interaction"] for entry in again] == [
            entry["interaction"] for entry in entries
        ]
        assert {entry["outcome"] for entry in again} == {"replayed"}


@pytest.mark.slow
def test_a_miss_ends_codex_at_once_with_its_reason(tmp_path: Path) -> None:
    store = tmp_path / "cassettes"
    with ThreadedStandIn() as upstream:
        here = Machine(tmp_path / "here", HERE)
        recorded = here.run("auto", upstream.url, store, _command(CODEX_ASKS))
    assert recorded.returncode == 0, recorded.stderr

    missed = here.run("replay", upstream.url, store, _command(f"{CODEX_ASKS} in French"))

    assert missed.returncode != 0
    outcomes = [entry["outcome"] for entry in _journal(missed.stdout)]
    assert outcomes.count("miss") == 1
    assert "replay miss: WEBSOCKET /v1/responses is not in cassette" in missed.stderr


@pytest.mark.slow
def test_codex_falls_back_to_http_within_a_second(tmp_path: Path) -> None:
    with ThreadedStandIn() as upstream:
        store, here = tmp_path / "cassettes", Machine(tmp_path, HERE)
        done = here.run("auto", upstream.url, store, _command(CODEX_ASKS), "--no-websocket")

    assert done.returncode == 0, done.stderr
    entries = _journal(done.stdout)
    upgrades = [entry for entry in entries if entry["method"] == "GET"]
    first = next(entry for entry in entries if entry["method"] == "POST")
    assert [upgrade["status"] for upgrade in upgrades] == [426]
    assert upgrades[0]["message"].startswith("websocket_off: ")
    assert (first["outcome"], first["status"]) == ("recorded", 200)
    waited = datetime.fromisoformat(first["at"]) - datetime.fromisoformat(upgrades[0]["at"])
    assert 0 < waited.total_seconds() < 1
