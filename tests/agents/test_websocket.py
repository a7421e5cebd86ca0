"""Codex asks for a WebSocket first: 426 sends it to HTTP at once, where any other answer has it retry."""

import json
import sys
from datetime import datetime
from pathlib import Path

import pytest

from tapeway.testing import ThreadedStandIn
from tests.agents.test_elsewhere import CODEX, CODEX_ASKS, HERE, Machine, need

PROVIDER = (
    'model_providers.t={name="t",base_url="$URL",env_key="OPENAI_API_KEY",wire_api="responses",'
    "supports_websockets=true}"
)
SCRIPT = f"""
"$0" exec --skip-git-repo-check -s danger-full-access -m gpt-5-codex -c model_provider=t \\
    -c "$(echo '{PROVIDER}' | sed "s#.URL#$OPENAI_BASE_URL#")" "$1" || exit 1
exec "$2" -c 'import os, urllib.request as get
print("\\n" + get.urlopen(os.environ["TAPEWAY_ADMIN_URL"] + "/api/v1/journal").read().decode())'
"""


@pytest.mark.slow
def test_codex_falls_back_to_http_within_a_second(tmp_path: Path) -> None:
    command = ["sh", "-c", SCRIPT, need(CODEX), CODEX_ASKS, sys.executable]
    with ThreadedStandIn() as upstream:
        done = Machine(tmp_path, HERE).run("auto", upstream.url, tmp_path / "cassettes", command)

    assert done.returncode == 0, done.stderr
    entries = json.loads(done.stdout.splitlines()[-1])["entries"][::-1]
    upgrades = [each for each in entries if each["method"] == "GET"]
    first = next(each for each in entries if each["method"] == "POST")
    assert [each["status"] for each in upgrades] == [426]
    assert upgrades[0]["message"].startswith("websocket_unsupported: ")
    assert (first["outcome"], first["status"]) == ("recorded", 200)
    waited = datetime.fromisoformat(first["at"]) - datetime.fromisoformat(upgrades[0]["at"])
    assert 0 < waited.total_seconds() < 1
