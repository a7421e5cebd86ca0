"""What clients for JavaScript make of a miss: they ask once, and show what is missing."""

import json
from pathlib import Path

from tapeway.embedded.deck import serve
from tests.clients.node.npm_project import Projects, run

SHORT_S = 10
"""Clients that repeat a call wait for longer between their tries."""


def test_every_client_asks_once_and_shows_what_is_missing(
    project: Projects, tmp_path: Path
) -> None:
    with serve(store=str(tmp_path), mode="replay") as deck:
        done = run(project("plain"), ["node", "misses.mjs", deck.url()])
        entries = deck.journal(outcome="miss")

    said = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    asked = [entry["cassette"] for entry in entries]
    assert set(said) >= {"openai", "anthropic", "vercel", "langchain"}, done.stderr
    assert {name: asked.count(name) for name in said} == dict.fromkeys(said, 1)
    assert [name for name in said if "replay miss: POST /" not in said[name]["said"]] == []
    assert [name for name in said if said[name]["seconds"] > SHORT_S] == []
