"""What a reviewer sees in git when a prompt was changed and its cassette recorded anew."""

import subprocess
from pathlib import Path

import pytest

from tapeway.core.json_text import Json, dump
from tapeway.stores.file.store import FileStore
from tests.server.in_process_proxy import running_proxy
from tests.support.socket_upstream import Peer

CHAT = b"POST /v1/chat/completions"
JSON = b"Content-Type: application/json"
FILE = "cassettes/default.json"


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@y.example"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


async def recorded(folder: Path, peer: Peer, *prompts: str, take: int) -> None:
    """Record a call for each prompt; everything that differs each time differs in each take."""
    store = FileStore(folder / "cassettes")
    async with running_proxy(peer.url, store=store, today=lambda: "2026-11-22") as proxy:
        for number, prompt in enumerate(prompts):
            asked: Json = {
                "model": "m",
                "messages": [
                    {"role": "system", "content": "You are careful."},
                    {"role": "user", "content": prompt},
                ],
            }
            answer = dump({"object": "chat.completion", "answer": f"about {prompt}"})
            lines = (
                b"HTTP/1.1 200 OK",
                b"Content-Type: application/json",
                b"Date: Sun, 22 Nov 2026 14:%02d:%02d GMT" % (take, number),
                b"x-request-id: req_%d" % (take * 100 + number),
                b"openai-processing-ms: %d" % (take * 10 + number),
                b"x-ratelimit-remaining-tokens: %d" % (9999 - take * 100 - number),
                b"Content-Length: %d" % len(answer),
            )
            peer.then(b"\r\n".join([*lines, b"", answer]))
            found = await proxy.ask(CHAT, JSON, body=dump(asked))
            assert found.body == answer
        await proxy.broker.eject(prune=True)


@pytest.mark.parametrize("changed", [0, 1, 2])
async def test_a_changed_prompt_shows_one_changed_request_and_one_changed_answer(
    tmp_path: Path, changed: int
) -> None:
    prompts = ["one", "two", "three"]
    git(tmp_path, "init", "-q")
    async with Peer() as peer:
        # The day of the check is in the file from the second time on.
        await recorded(tmp_path, peer, *prompts, take=0)
        await recorded(tmp_path, peer, *prompts, take=1)
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", "first")
        prompts[changed] = "why?"

        await recorded(tmp_path, peer, *prompts, take=2)

    assert git(tmp_path, "diff", "--name-only").split() == [FILE]
    lines = git(tmp_path, "diff", "-U0", "--", FILE).splitlines()[4:]
    added = [line[1:].strip() for line in lines if line.startswith("+")]
    gone = [line[1:].strip() for line in lines if line.startswith("-")]
    headers = ["Date", "x-request-id", "openai-processing-ms", "x-ratelimit-remaining-tokens"]
    names = ["role", *headers, "json", "match_key", "latency_ms", "at_ms"]
    assert '{"role": "user", "content": "why?"}' in [line.removesuffix(",") for line in added]
    assert any('"answer": "about why?"' in line for line in added)
    # The prompt, the answer, and what differs with each call; nothing of the other two recordings.
    assert {line.split('"')[1] for line in added + gone} <= set(names)
    assert len(added) == len(gone) <= len(names)


async def test_a_recording_that_gives_the_same_again_shows_nothing(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    async with Peer() as peer:
        await recorded(tmp_path, peer, "one", "two", take=0)
        await recorded(tmp_path, peer, "one", "two", take=1)
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", "first")

        await recorded(tmp_path, peer, "one", "two", take=2)

    assert git(tmp_path, "status", "--porcelain") == ""
