"""What recording anew changes in the files of a folder, as a reviewer sees it in a diff."""

import difflib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tapeway.core.matching.rules import Rules
from tapeway.formats.cassette_file import SERIALIZERS
from tapeway.stores.file.store import FileStore
from tests.server.in_process_proxy import running_proxy
from tests.support.socket_upstream import Peer

TESTS = range(10)
CHANGED = ["Date", "x-request-id", "CF-RAY", "id", "created", "at_ms", "latency_ms"]
RULES = Rules(
    ignore=("body.user", "body.seed"),
    ignore_in=(("body.messages[*].content", ("Today is .*",)),),
    normalise=("uuid",),
)


def answers(run: int) -> Iterator[bytes]:
    """An answer for each test: the texts are equal in all runs, ids and times are not."""
    for test in TESTS:
        number = 1000 * run + test
        body = json.dumps(
            {
                "id": f"chatcmpl-{number:029d}",
                "object": "chat.completion",
                "created": 1_800_000_000 + number,
                "choices": [{"index": 0, "message": {"role": "assistant", "content": f"{test}!"}}],
            }
        ).encode()
        lines = (
            b"HTTP/1.1 200 OK",
            b"Content-Type: application/json",
            b"Date: Sat, 28 Nov 2026 14:%02d:00 GMT" % run,
            b"Server: cloudflare",
            b"x-request-id: req_%d" % number,
            b"CF-RAY: 8f%dabc-FRA" % number,
            b"Content-Length: %d" % len(body),
        )
        yield b"\r\n".join([*lines, b"", body])


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of ten tests in mode `record`, each with a cassette."""

    peer: Peer
    folder: Path
    format_name: str

    async def files(self, run: int, rules: Rules = RULES) -> dict[str, list[str]]:
        """The lines of each file after a run."""
        for answer in answers(run):
            self.peer.then(answer)
        store = FileStore(self.folder, SERIALIZERS[self.format_name])
        async with running_proxy(self.peer.url, store=store, rules=rules) as proxy:
            for test in TESTS:
                body = json.dumps({"messages": [{"role": "user", "content": f"{test}?"}]}).encode()
                line = f"POST /@test-{test}/v1/chat/completions".encode()
                asked = await proxy.ask(line, b"Content-Type: application/json", body=body)
                assert asked.outcome == b"recorded"
        paths = sorted(self.folder.glob("test-*"))
        return {path.name: path.read_text().splitlines() for path in paths}


@pytest.fixture(params=["json", "yaml"])
async def runs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Runs]:
    async with Peer() as peer:
        runs = Runs(peer, tmp_path, request.param)
        await runs.files(0)
        yield runs


def added(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[list[str]]:
    """What each file has now in place of other lines, or more of."""
    assert list(before) == list(after)
    assert len(before) == len(TESTS)
    return [
        [line[2:].strip() for line in difflib.ndiff(lines, after[name]) if line.startswith("+ ")]
        for name, lines in before.items()
    ]


async def test_equal_texts_change_only_the_lines_whose_values_changed(runs: Runs) -> None:
    first, second = await runs.files(1), await runs.files(2)

    for lines in added(first, second):
        names = [line.partition(":")[0].strip('"') for line in lines]
        assert set(names) <= {*CHANGED}
        assert len(names) == len(set(names))


async def test_rules_are_written_anew_only_when_they_change(runs: Runs) -> None:
    first = await runs.files(1)
    second = await runs.files(1, replace(RULES, ignore=RULES.ignore[::-1]))
    more = replace(RULES, ignore=("query.page", *RULES.ignore), match=("accept",))
    third = await runs.files(1, more)

    assert added(first, second) == [[] for _ in TESTS]
    new = {
        "json": ['"body.seed",', '"query.page"', "],", '"match": [', '"accept"'],
        "yaml": ["- query.page", "match:", "- accept"],
    }
    assert added(second, third) == [new[runs.format_name] for _ in TESTS]
