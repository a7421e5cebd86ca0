"""One script of calls, played to one process and to several: they say the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.process.serving import Tapeway
from tests.process.workers.request_script import Counting, Script
from tests.process.workers.worker_processes import Crew
from tests.stores.postgres_server import fresh
from tests.support.raw_client import Answer
from tests.support.thoroughness import step

CHAT = "/v1/chat/completions"
ASKED = {"model": "gpt-5", "messages": [{"role": "user", "content": "What is 2 + 2?"}]}
OTHER = {**ASKED, "user": "tim"}


async def _served(script: Script) -> None:
    """Every mode, repeats, rewinds, misses and retries."""
    ask, admin = script.ask, script.admin
    for _ in range(3):
        await ask(CHAT, ASKED)
    for target in ("/broken", "/broken", "/large", "/large"):
        await ask(target)
    await admin("PUT", "mode", {"mode": "record"})
    for _ in range(4):
        await ask("/turn")
    await admin("PUT", "mode", {"mode": "replay"})
    for _ in range(6):
        await ask("/turn")
    for what in ({}, {"cassette": "default"}):
        await admin("POST", "rewind", what)
        await ask("/turn")
        await ask("/turn")
    await admin("PUT", "mode", {"mode": "sing"})
    await ask(CHAT, OTHER)
    for tries in range(3):
        await ask("/missing", None, ("x-stainless-retry-count", str(tries)))
    entries = json.loads((await admin("GET", "journal?outcome=miss&limit=10")).body)["entries"]
    for entry in (entries[0], entries[-1], {"id": "tw-nobody-1"}):
        await admin("POST", f"journal/{entry['id']}/accept", {})
    await ask(CHAT, OTHER)


async def _read(script: Script) -> None:
    """Everything there is to read."""
    for path in ("/healthz", "/readyz", "/", "/openapi.json", "/metrics"):
        await script.admin("GET", path)
    for query in ("", "?outcome=miss", "?cassette=default&limit=3", "?limit=0"):
        await script.admin("GET", f"journal{query}")
    for form in ("json", "junit", "text"):
        await script.admin("GET", f"report?format={form}")
    for path in ("status", "mode", "mode?cassette=one", "nothing", "cassettes/nope"):
        await script.admin("GET", path)
    for query in ("", "?name=default", "?limit=1", "?after=default", "?counts=true"):
        await script.admin("GET", f"cassettes{query}")
    for query in ("", "?format=jsonl", "?format=har&losses=allow"):
        await script.admin("GET", f"cassettes/default{query}")
    for path in ("interactions", "interactions?limit=2", "interactions/0", "interactions/99"):
        await script.admin("GET", f"cassettes/default/{path}")
    for path in ("messages", "messages?limit=1", "outline", "copy"):
        await script.admin("GET", f"cassettes/default/{path}")


async def _edited(script: Script) -> None:
    """Interactions put, appended and removed, each with what must not be done too."""
    admin, inside = script.admin, "cassettes/default/interactions"
    first = await admin("GET", f"{inside}/0")
    document = _of(first) | {"tags": ["edited"]}
    for tag in ('"wrong"', first.value(b"ETag").decode(), first.value(b"ETag").decode()):
        await admin("PUT", f"{inside}/0", document, {"If-Match": tag})
    await admin("PUT", f"{inside}/77", document)
    await admin("PUT", f"{inside}/0", {"kind": "http"})
    await script.ask(CHAT, ASKED)
    del document["index"]
    document["request"] = {**document["request"]}
    document["request"]["url"] = document["request"]["url"].replace(CHAT, "/appended")
    for count in (1, 1, 2):
        sent = {"interactions": [document] * count}
        await admin("POST", inside, sent, {"Idempotency-Key": "key"})
    for _ in range(2):
        await script.ask("/appended", ASKED)
    for _ in range(2):
        await admin("DELETE", f"{inside}/4")
    await script.ask("/turn")
    for what in ("claim", "release"):
        await admin("POST", f"cassettes/default/{what}")


async def _steered(script: Script) -> None:
    """Cassettes brought in, called by name, with a mode of their own, ejected, removed."""
    ask, admin = script.ask, script.admin
    whole = await admin("GET", "cassettes/default")
    await admin("PUT", "cassettes/twin", whole.body)
    await admin("PUT", "cassettes/twin", whole.body, {"If-None-Match": "*"})
    await admin("PUT", "cassettes/bad", b"{}")
    for target in ("/@twin/turn", "/@twin/turn", "/@a%2Fb/turn", "/@..%2fb/turn"):
        await ask(target)
    await ask("/turn", None, ("Tapeway-Cassette", "twin"))
    await admin("PUT", "mode", {"mode": "auto", "cassette": "twin"})
    for target in ("/@twin/fresh", "/@twin/fresh", "/fresh"):
        await ask(target)
    await admin("POST", "insert", {"cassette": "one/of/them", "mode": "auto"})
    for _ in range(2):
        await ask("/first")
    await admin("GET", "status")
    for what in ({"cassette": "twin"}, {"cassette": "../x"}):
        await admin("POST", "insert", what)
    await ask("/turn")
    for body in ({"cassette": "one/of/them"}, {"cassette": "one/of/them"}, {"prune": True}):
        await admin("POST", "eject", body)
    await admin("GET", "cassettes/twin/interactions")
    await ask("/turn")
    for _ in range(2):
        await admin("DELETE", "cassettes/twin")
    await ask("/turn")
    await admin("POST", "insert", {"cassette": "default", "mode": "passthrough"})
    await ask("/turn")
    await admin("POST", "eject", {})
    await admin("GET", "status")
    await admin("DELETE", "journal")
    await admin("GET", "journal")


def _of(answer: Answer) -> dict[str, Any]:
    document = json.loads(answer.body)
    assert isinstance(document, dict)
    return document


async def _played(tapeway: Tapeway) -> list[tuple[str, Any]]:
    script = Script(tapeway)
    async with tapeway:
        await _read(script)
        await _served(script)
        await _read(script)
        await _edited(script)
        await _steered(script)
        await _read(script)
    return script.said


@pytest.mark.slow
@pytest.mark.parametrize("store", ["postgresql", "sqlite"][:: step(2)])
async def test_several_processes_say_what_one_says(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    said: list[list[tuple[str, Any]]] = []
    for workers in (1, 3):
        folder = tmp_path / str(workers)
        folder.mkdir()
        async with Counting() as upstream:
            options = ("--upstream", upstream.url)
            if store == "sqlite":
                said.append(await _played(Crew(folder, workers, *options)))
                continue
            async with fresh(request.getfixturevalue("postgres_dsn")) as url:
                said.append(await _played(Crew(folder, workers, "--store", url, *options)))

    one, several = said
    assert [observation for observation, _ in one] == [observation for observation, _ in several]
    assert len(one) > 100
    for (what, alone), (_, together) in zip(one, several, strict=True):
        assert together == alone, what
