"""Cassettes put in the place of others, and two that want one place: nothing is lost on the way."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tapeway.cli.transfer import batches
from tapeway.cli.transfer.batches import is_marked, marked
from tapeway.core.model.cassette import CassetteHead, Held, StoredCassette, TakenRecording
from tapeway.errors import StoreAway
from tapeway.stores.file.store import FileStore
from tests.cli.commands import run, written
from tests.cli.test_transfer import ITEMS, THERE, stores
from tests.fakes.shared import BitByBitStore
from tests.stores.recordings import HEAD, recording

__all__ = ["stores"]

OLD = [recording(90).interaction, recording(91).interaction]
BESIDE = "smoke.converting"


@pytest.fixture
def occupied(stores: dict[str, BitByBitStore]) -> BitByBitStore:
    """A store that holds another cassette of that name."""
    written("smoke", *ITEMS)
    found = stores["sqlite:there"]
    found.heads["smoke"] = replace(HEAD, run_id="old")
    found.held["smoke"] = [*OLD]
    return found


def test_what_is_replaced_stays_whole_until_there_is_another_one(
    capsys: pytest.CaptureFixture[str], occupied: BitByBitStore
) -> None:
    occupied.away_after = 2
    assert run(capsys, "convert", "smoke", THERE, "--force")[0] == 2

    assert (occupied.heads["smoke"].run_id, occupied.held["smoke"]) == ("old", OLD)
    assert is_marked(occupied.heads[BESIDE])
    assert len(occupied.held[BESIDE]) == 4
    # Without --force it is as it was: somebody's.
    code, _, err = run(capsys, "convert", "smoke", THERE)
    assert (code, "is there already" in err) == (2, True)

    occupied.away_after = 2
    code, out, _ = run(capsys, "convert", "smoke", THERE, "--force")
    assert (code, out.partition(",")[0]) == (0, "sqlite:there#smoke: 8 of 8 interactions")
    assert occupied.away_after == 0
    assert occupied.heads == {"smoke": HEAD}
    assert [each.index for each in occupied.held["smoke"]] == list(range(8))


def test_somebody_elses_cassette_is_not_taken_for_a_beginning(
    capsys: pytest.CaptureFixture[str], occupied: BitByBitStore
) -> None:
    occupied.heads[BESIDE], occupied.held[BESIDE] = HEAD, [*OLD]

    code, _, err = run(capsys, "convert", "smoke", THERE, "--force")

    assert (code, occupied.held["smoke"], occupied.held[BESIDE]) == (2, OLD, OLD)
    assert err.startswith("tapeway: sqlite:there#smoke.converting is there already")


def test_a_beginning_that_is_another_ones_is_begun_anew(
    capsys: pytest.CaptureFixture[str], occupied: BitByBitStore
) -> None:
    occupied.heads[BESIDE], occupied.held[BESIDE] = marked(HEAD), [*OLD]

    assert run(capsys, "convert", "smoke", THERE, "--force")[0] == 0
    assert occupied.heads == {"smoke": HEAD}


def test_a_name_of_full_length_is_replaced_too(
    capsys: pytest.CaptureFixture[str], occupied: BitByBitStore
) -> None:
    name = f"{'a' * 128}/{'b' * 128}"
    written("other", *OLD)
    assert run(capsys, "convert", "other", f"sqlite:real.db#{name}")[0] == 0

    assert run(capsys, "convert", "smoke", f"sqlite:real.db#{name}", "--force")[0] == 0
    assert run(capsys, "ls", "--store=sqlite:real.db")[1].split()[:2] == [name, "8"]


@pytest.mark.parametrize("place", ["sqlite:there#new", "file:there#new"])
def test_what_does_not_come_back_as_it_was_written_is_an_error(
    capsys: pytest.CaptureFixture[str],
    occupied: BitByBitStore,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    page, load = occupied.page, FileStore.load
    changed = replace(ITEMS[0], index=1)

    async def paged(name: str, *, after: int | None, limit: int) -> list[TakenRecording]:
        found = await page(name, after=after, limit=limit)
        return [TakenRecording(changed) if each.item.index == 1 else each for each in found]

    async def loaded(store: FileStore, name: str, *, writable: bool) -> StoredCassette | None:
        found = await load(store, name, writable=writable)
        if found is None or name != "new":
            return found
        return replace(found, interactions=(found.interactions[0], changed))

    monkeypatch.setattr(occupied, "page", paged)
    monkeypatch.setattr(FileStore, "load", loaded)
    code, out, err = run(capsys, "convert", "smoke", place)

    assert (code, out) == (2, "")
    assert "new: interactions[1] does not come back as it was written" in err


def test_a_finished_cassette_in_a_folder_is_never_gone_on_with(
    capsys: pytest.CaptureFixture[str], occupied: BitByBitStore
) -> None:
    short = written("short", *ITEMS[:4])
    before = short.read_bytes()

    code, _, err = run(capsys, "convert", "smoke", "short")

    assert (code, "is there already" in err, short.read_bytes()) == (2, True, before)


def test_no_two_conversions_have_one_mark(
    capsys: pytest.CaptureFixture[str], occupied: BitByBitStore
) -> None:
    marks: list[object] = []
    for _ in range(2):
        occupied.away_after = 1
        assert run(capsys, "convert", "smoke", "sqlite:there#new")[0] == 2
        marks.append(dict(occupied.heads["new"].meta))
    assert marks[0] != marks[1]


def test_the_second_of_two_conversions_goes_on_and_the_first_one_stops(
    capsys: pytest.CaptureFixture[str], occupied: BitByBitStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend, place = occupied.extend, "sqlite:there#new"

    async def overtaken(name: str, head: CassetteHead, items: Sequence[Held]) -> None:
        await extend(name, head, items)
        await occupied.restate(name, marked(HEAD, by="another"))

    monkeypatch.setattr(occupied, "extend", overtaken)
    code, out, err = run(capsys, "convert", "smoke", place)
    assert (code, out) == (2, "")
    assert "sqlite:there#new was changed by somebody while it came into being" in err
    assert len(occupied.held["new"]) == 2

    monkeypatch.setattr(occupied, "extend", extend)
    assert run(capsys, "convert", "smoke", place)[0] == 0
    assert len(occupied.held["new"]) == 8


@pytest.mark.parametrize("ending", [".json", ".yaml"])
def test_a_folder_takes_it_in_bit_by_bit_too(
    capsys: pytest.CaptureFixture[str],
    occupied: BitByBitStore,
    monkeypatch: pytest.MonkeyPatch,
    ending: str,
) -> None:
    occupied.heads["long"] = HEAD
    occupied.held["long"] = [replace(each, index=at) for at, each in enumerate(ITEMS)]
    page, away = occupied.page, f"file:away?format={ending[1:]}#long"
    source = "sqlite:there#long"

    async def cut(name: str, *, after: int | None, limit: int) -> object:
        found = await page(name, after=after, limit=2)
        if found and found[-1].item.index == 5:
            raise StoreAway("the source is gone")
        return found

    monkeypatch.setattr(occupied, "page", cut)
    code, _, err = run(capsys, "convert", source, away)
    assert (code, "the source is gone" in err) == (2, True)
    listed = run(capsys, "ls", "--store", "away")[1]
    assert (listed.split()[:2], listed.endswith("unfinished\n")) == (["long", "2"], True)
    monkeypatch.setattr(occupied, "page", page)

    added: list[int] = []
    monkeypatch.setattr(batches, "_MOST_ITEMS", 3)
    monkeypatch.setattr("tapeway.cli.transfer.into_store.add", _counted(added))
    assert run(capsys, "convert", source, away)[0] == 0

    # Those of the first try are not written again; the last ones need no journal.
    assert added == [3]
    assert sorted(Path("away").glob("long*")) == [Path(f"away/long{ending}")]
    assert run(capsys, "convert", f"away/long{ending}", "back")[0] == 0
    assert Path("cassettes/back.json").read_bytes() == Path("cassettes/smoke.json").read_bytes()


def test_a_file_that_is_replaced_stays_whole_until_there_is_another_one(
    capsys: pytest.CaptureFixture[str], occupied: BitByBitStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = written("other", *OLD)
    before = other.read_bytes()
    occupied.heads["lost"] = HEAD
    occupied.held["lost"] = [replace(each, index=at) for at, each in enumerate(ITEMS)]
    page = occupied.page

    async def cut(name: str, *, after: int | None, limit: int) -> object:
        if after is not None:
            raise StoreAway("the source is gone")
        return await page(name, after=after, limit=6)

    monkeypatch.setattr(occupied, "page", cut)
    assert run(capsys, "convert", "sqlite:there#lost", "other", "--force")[0] == 2

    assert [*Path("cassettes").glob("other*")] == [other]
    assert other.read_bytes() == before


def _counted(added: list[int]) -> object:
    async def add(store: object, name: str, head: CassetteHead, items: Sequence[Held]) -> None:
        added.append(len(items))
        await batches.add(store, name, head, items)  # type: ignore[arg-type]

    return add
