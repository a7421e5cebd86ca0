"""Secrets found and taken out in stores that have no files."""

import asyncio
import json
import math

import pytest

from tapeway.cli import cassette_arguments
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.ports import CassetteStore
from tapeway.stores.memory import MemoryStore
from tapeway.stores.opening import open_store
from tests.cli.invocation import KEY, findings, run
from tests.stores.recordings import HEAD, recording
from tests.support.canary import sightings
from tests.support.fakes.shared_store import BitByBitStore

LEAKY = recording(4, body=b'{"said": "%b"}' % KEY.encode()).interaction
TOOL = ForeignInteraction(6, {"kind": "tool", "request": {"k": KEY}, "response": 1})
CLEAN = recording(2).interaction


class Whole(MemoryStore):
    """A store that changes nothing but whole cassettes, and lasts."""

    url = "https://far"
    saves = 0

    async def close(self, within_s: float = math.inf) -> None: ...

    async def put(self, name: str, cassette: StoredCassette) -> None:
        self.saves += 1
        await super().put(name, cassette)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> BitByBitStore:
    """A store with gaps between its indexes, two secrets, and one in its head."""
    found = BitByBitStore("sqlite:there")
    found.heads["a/b"] = CassetteHead(HEAD.created_at, HEAD.run_id, {"note": KEY})
    found.held["a/b"] = [CLEAN, LEAKY, TOOL]
    found.heads["clean"], found.held["clean"] = HEAD, [CLEAN]
    _reached(monkeypatch, "sqlite:there", found)
    return found


def _reached(monkeypatch: pytest.MonkeyPatch, address: str, store: CassetteStore) -> None:
    def opening(url: str) -> CassetteStore:
        return store if url == address else open_store(url)

    monkeypatch.setattr(cassette_arguments, "open_store", opening)
    monkeypatch.setattr(cassette_arguments, "open_store", opening)


@pytest.mark.parametrize(
    "arguments",
    [("--store", "sqlite:there"), ("sqlite:there#a/b",), ("a/b", "--store=sqlite:there")],
)
def test_a_secret_in_a_database_is_reported_with_its_place(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore, arguments: tuple[str, ...]
) -> None:
    code, out, err = findings(capsys, "scan", *arguments)

    assert (code, err) == (1, "")
    assert [line.partition(", begins")[0] for line in out.splitlines()] == [
        "sqlite:there#a/b: meta.note: openai-key",
        "sqlite:there#a/b: interactions[1].response.json.said: openai-key",
        "sqlite:there#a/b: interactions[2].request.k: openai-key",
    ]
    assert findings(capsys, "scan", "sqlite:there#clean") == (0, "", "")


def test_a_secret_in_a_database_is_replaced_in_place(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore
) -> None:
    code, out, _ = run(capsys, "redact", "--store", "sqlite:there")

    assert (code, out.count(": replaced: ")) == (0, 3)
    assert there.loads == 0
    assert there.held["clean"] == [CLEAN]
    assert there.held["a/b"][0] == CLEAN
    assert [item.index for item in there.held["a/b"]] == [2, 4, 6]
    assert "REDACTED" in json.dumps(dict(there.heads["a/b"].meta))
    assert sightings({"key": KEY}, {"held": repr((there.heads, there.held)).encode()}) == []
    assert findings(capsys, "scan", "--store", "sqlite:there") == (0, "", "")
    mended = there.held["a/b"][1]
    assert isinstance(mended, Interaction)
    assert mended.request == LEAKY.request  # type: ignore[union-attr]


def test_a_dry_run_changes_nothing_in_a_database(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore
) -> None:
    before = repr((there.heads, there.held))

    code, out, _ = run(capsys, "redact", "--dry-run", "--store", "sqlite:there")

    assert (code, out.count(": would be replaced: ")) == (0, 3)
    assert repr((there.heads, there.held)) == before


def test_a_store_that_only_saves_whole_cassettes_gets_one_save(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    far = Whole()
    _reached(monkeypatch, "https://far", far)

    async def fill() -> None:
        for item in (CLEAN, LEAKY):
            await far.append("x", HEAD, recording(item.index))
            await far.append("y", HEAD, recording(item.index, body=_body(item)))

    asyncio.run(fill())

    code, out, _ = run(capsys, "redact", "--store", "https://far")

    assert (code, out.count(": replaced: "), far.saves) == (0, 1, 1)
    assert findings(capsys, "scan", "--store", "https://far") == (0, "", "")


def _body(item: AnyInteraction) -> bytes:
    assert isinstance(item, Interaction)
    return item.response.body
