import asyncio
import json
import os
from pathlib import Path

import pytest

from tapeway.stores.file.store import FileStore
from tests.cli.invocation import run, written
from tests.stores.recordings import HEAD, recording
from tests.support.exchanges import interaction


def test_cassettes_are_listed_with_interactions_and_size(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, count in (("suite/one", 2), ("b", 0)):
        file = written(name, *[interaction(index=at) for at in range(count)])
        os.utime(file, (1_795_293_314, 1_795_293_314))

    code, out, err = run(capsys, "ls")

    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["cassette", "interactions", "size", "last", "change"],
        ["b", "0", "154", "B", "2026-11-21T20:35:14+00:00"],
        ["suite/one", "2", "2.0", "KiB", "2026-11-21T20:35:14+00:00"],
        ["2", "cassettes,", "2", "interactions,", "2.1", "KiB"],
    ]


def test_a_program_gets_one_list(capsys: pytest.CaptureFixture[str]) -> None:
    size = written("a", interaction()).stat().st_size

    code, out, _ = run(capsys, "ls", "--format", "json")

    (listed,) = json.loads(out)
    assert code == 0
    assert listed.pop("modified_at").endswith("+00:00")
    assert listed == {
        "name": "a",
        "interactions": 1,
        "size_bytes": size,
        "unfinished": False,
        "error": None,
    }


def test_an_unreadable_cassette_is_listed_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    written("a", interaction())
    written("b").write_text("{")

    code, out, err = run(capsys, "ls")

    assert code == 2
    assert [line.split()[:2] for line in out.splitlines()[1:3]] == [["a", "1"], ["b", "?"]]
    assert out.endswith(", 1 cannot be read\n")
    assert "cassettes/b.json line 1" in err


async def test_a_cassette_being_recorded_is_counted_and_left_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = FileStore(Path("elsewhere"))
    await store.open()
    await store.append("x", HEAD, recording(0))
    before = sorted(path.name for path in Path("elsewhere").iterdir())
    try:
        # The command has an event loop of its own.
        code, out, _ = await asyncio.to_thread(run, capsys, "ls", "--store", "file:elsewhere")
        assert (code, out.splitlines()[1].split()[:2]) == (0, ["x", "1"])
        assert sorted(path.name for path in Path("elsewhere").iterdir()) == before
    finally:
        await store.close()


def test_an_empty_store_has_nothing_to_list(capsys: pytest.CaptureFixture[str]) -> None:
    Path("cassettes").mkdir()

    assert run(capsys, "ls") == (0, "0 cassettes, 0 interactions\n", "")
    assert run(capsys, "ls", "--format", "json") == (0, "[]\n", "")
    assert run(capsys, "ls", "--store", "nosuch:x")[0] == 2
