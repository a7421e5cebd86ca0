"""`tapeway cassette rm`: cassettes are deleted in every store."""

import asyncio
from pathlib import Path

import pytest

from tapeway.stores.file.store import FileStore
from tests.cli.full_cassette import NAME, everything
from tests.cli.invocation import run, written
from tests.stores.recordings import HEAD, recording
from tests.support.exchanges import interaction


def test_each_named_cassette_goes_with_its_large_bodies(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(everything(Path("cassettes")))
    written("suite/one", interaction())
    kept = written("kept", interaction())

    code, out, err = run(capsys, "rm", NAME, "suite/one")

    assert (code, out, err) == (0, f"{NAME} is deleted\nsuite/one is deleted\n", "")
    left = {path for path in Path("cassettes").rglob("*") if path.is_file()}
    assert {path for path in left if not path.name.startswith(".")} == {
        Path("cassettes") / kept.name
    }


def test_in_a_database_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    written("smoke", interaction())
    place = f"sqlite:{tmp_path}/tapes.db"
    assert run(capsys, "convert", "smoke", f"{place}#smoke")[0] == 0

    assert run(capsys, "rm", f"{place}#smoke")[0] == 0

    assert run(capsys, "show", f"{place}#smoke")[0] == 2


def test_one_that_is_not_there_is_named_and_the_others_go(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = written("smoke", interaction())

    code, out, err = run(capsys, "rm", "smok", "smoke")

    assert (code, out) == (2, "smoke is deleted\n")
    assert "there is no cassette smok" in err
    assert "is smoke meant?" in err
    assert not file.exists()


async def test_one_that_is_recorded_into_stays(capsys: pytest.CaptureFixture[str]) -> None:
    store = FileStore(Path("cassettes"))
    await store.open()
    await store.append("smoke", HEAD, recording(1))
    try:
        code, _, err = await asyncio.to_thread(run, capsys, "rm", "smoke")
        assert (code, "smoke" in err) == (2, True)
        assert await store.stat("smoke") is not None
    finally:
        await store.close()
