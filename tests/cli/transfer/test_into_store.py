"""Cassettes on their way into a store, also in the place of others: nothing is lost where one breaks off."""

import gc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tapeway.cli import cassette_arguments
from tapeway.cli.transfer import batches
from tapeway.cli.transfer.batches import CassetteDigest, mark_unfinished
from tapeway.core.model.cassette import CassetteHead, StoredCassette, TakenRecording
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction
from tapeway.core.model.messages import Response
from tapeway.errors import StoreAway
from tapeway.formats.native.document import save
from tapeway.ports import CassetteStore
from tapeway.stores.file import snapshot
from tapeway.stores.file.store import FileStore
from tapeway.stores.opening import open_store
from tapeway.stores.support import durable_files
from tests.cli.invocation import KEY, run, written
from tests.stores.recordings import HEAD, recording
from tests.support.fakes.shared_store import BitByBitStore

ITEMS = [
    *[recording(index).interaction for index in range(7)],
    ForeignInteraction(7, {"kind": "tool", "request": {"name": "f"}, "response": 1}),
]
THERE = "sqlite:there#smoke"
OLD = [recording(90).interaction, recording(91).interaction]


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> dict[str, BitByBitStore]:
    """Stores that last beyond one command, by address."""
    found = {f"sqlite:{name}": BitByBitStore(f"sqlite:{name}") for name in ("there", "other")}

    def opening(url: str) -> CassetteStore:
        return found[url] if url in found else open_store(url)

    monkeypatch.setattr(cassette_arguments, "open_store", opening)
    monkeypatch.setattr("tapeway.cli.cassette.convert.open_store", opening)
    monkeypatch.setattr(batches, "MAX_ITEMS", 2)
    return found


@pytest.fixture
def there(stores: dict[str, BitByBitStore]) -> BitByBitStore:
    written("smoke", *ITEMS)
    return stores["sqlite:there"]


def test_an_interrupted_conversion_leaves_nothing_and_begins_anew(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore
) -> None:
    there.away_after = 2
    code, out, err = run(capsys, "convert", "smoke", THERE)
    assert (code, out) == (2, "")
    assert err == "tapeway: sqlite:there does not answer: see whether it runs\n"
    assert there.heads == {}

    there.away_after = 4
    assert run(capsys, "convert", "smoke", THERE)[0] == 0

    assert there.away_after == 0
    assert there.heads == {"smoke": HEAD}
    assert [item.index for item in there.held["smoke"]] == list(range(8))
    assert run(capsys, "convert", THERE, "back")[0] == 0
    assert Path("cassettes/back.json").read_bytes() == Path("cassettes/smoke.json").read_bytes()


def test_a_complete_copy_is_recognised(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore
) -> None:
    first = run(capsys, "convert", "smoke", THERE)
    there.away_after = 0

    assert run(capsys, "convert", "smoke", THERE) == first
    assert there.heads == {"smoke": HEAD}


@pytest.mark.parametrize(
    ("head", "items"),
    [
        (HEAD, [0, 2]),
        (HEAD, [0, 1]),
        (HEAD, [*range(8), 0]),
        (HEAD, [*range(7), 0]),
        (replace(HEAD, run_id="run-2"), [*range(8)]),
    ],
)
def test_another_cassette_is_left_alone_unless_forced(
    capsys: pytest.CaptureFixture[str],
    there: BitByBitStore,
    head: CassetteHead,
    items: list[int],
) -> None:
    there.heads["smoke"] = head
    there.held["smoke"] = [replace(ITEMS[item], index=at) for at, item in enumerate(items)]
    before = (dict(there.heads), [*there.held["smoke"]])

    code, out, err = run(capsys, "convert", "smoke", THERE)
    assert (code, out) == (2, "")
    assert err.startswith(
        "tapeway: sqlite:there#smoke already exists: give another name, or --force"
    )
    assert (there.heads, there.held["smoke"]) == before

    assert run(capsys, "convert", "smoke", THERE, "--force")[0] == 0
    assert there.heads == {"smoke": HEAD}
    assert len(there.held["smoke"]) == 8


def test_a_cassette_does_not_replace_itself_through_another_address(
    capsys: pytest.CaptureFixture[str], stores: dict[str, BitByBitStore], there: BitByBitStore
) -> None:
    made = recording(0, body=b'{"key": "%b"}' % KEY.encode()).interaction
    there.heads["smoke"], there.held["smoke"] = HEAD, [made]
    stores["sqlite:./there"] = there

    # Without the key it would be another cassette, to be put in the place of this one.
    code, _, err = run(capsys, "convert", "sqlite:./there#smoke", THERE, "--force")

    assert (there.heads, there.held) == ({"smoke": HEAD}, {"smoke": [made]})
    assert (code, err.count("\n")) == (2, 1)
    assert "sqlite:there#smoke is the source itself: give another target" in err


def test_what_an_interrupted_conversion_left_is_replaced(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore
) -> None:
    there.heads["smoke"], there.held["smoke"] = mark_unfinished(HEAD), [*OLD]
    left = Path("there/smoke.json")
    left.parent.mkdir()
    left.write_bytes(save(StoredCassette(mark_unfinished(HEAD), tuple(OLD))))

    for place in (THERE, "file:there#smoke"):
        assert run(capsys, "convert", "smoke", place)[0] == 0

    assert (there.heads, len(there.held["smoke"])) == ({"smoke": HEAD}, 8)
    assert left.read_bytes() == Path("cassettes/smoke.json").read_bytes()


def test_a_file_of_another_tool_stays_where_a_conversion_beside_it_fails(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path("away/smoke.yaml")
    other.parent.mkdir()
    other.write_text("http_interactions: []\n")

    async def lost(*_: object) -> None:
        raise StoreAway("the disk is gone")

    monkeypatch.setattr(FileStore, "extend", lost)
    assert run(capsys, "convert", "smoke", "file:away#smoke")[0] == 2

    assert [*other.parent.glob("smoke*")] == [other]


def test_an_unfinished_cassette_is_no_source(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore
) -> None:
    there.heads["smoke"], there.held["smoke"] = mark_unfinished(HEAD), ITEMS[:2]

    code, _, err = run(capsys, "convert", THERE, "copy")

    assert code == 2
    assert "sqlite:there#smoke is what an interrupted conversion left behind: remove it" in err


def test_a_complete_copy_of_another_tools_file_is_recognised_too(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore
) -> None:
    assert run(capsys, "convert", "smoke", "smoke.jsonl")[0] == 0
    text = Path("smoke.jsonl").read_bytes()
    # Without a head of its own it is given one, which is another one each time.
    Path("smoke.jsonl").write_bytes(text.partition(b"\n")[2])
    first = run(capsys, "convert", "smoke.jsonl", THERE)
    there.away_after = 0

    assert run(capsys, "convert", "smoke.jsonl", THERE) == first
    assert (first[0], len(there.held["smoke"])) == (0, 8)


def test_recordings_added_meanwhile_are_noticed(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend = there.extend

    async def twice(*arguments: object) -> None:
        await extend(*arguments)  # type: ignore[arg-type]
        await extend(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(there, "extend", twice)
    code, out, err = run(capsys, "convert", "smoke", THERE)

    assert (code, out) == (2, "")
    assert "sqlite:there#smoke: interactions[2] does not read back as it was written" in err
    assert there.heads == {}


def test_an_interruption_is_one_line_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(there, "extend", interrupted)

    assert run(capsys, "convert", "smoke", THERE) == (
        2,
        "",
        "tapeway: interrupted: run this again\n",
    )
    assert there.heads == {}


def test_a_whole_store_is_converted_cassette_by_cassette(
    capsys: pytest.CaptureFixture[str], stores: dict[str, BitByBitStore]
) -> None:
    there, other = stores["sqlite:there"], stores["sqlite:other"]
    written("a/b", *ITEMS[:3])
    written("c", *ITEMS[3:])
    written("d")
    there.heads["c"], there.held["c"] = HEAD, []

    code, out, err = run(capsys, "convert", "--all", "./cassettes", "sqlite:there")
    assert code == 2
    assert [line.partition(",")[0] for line in out.splitlines()] == [
        "sqlite:there#a/b: 3 of 3 interactions",
        "sqlite:there#d: 0 of 0 interactions",
    ]
    assert err.startswith("tapeway: sqlite:there#c already exists")

    assert run(capsys, "convert", "--all", "cassettes", "sqlite:there", "--force")[0] == 0
    assert run(capsys, "convert", "--all", "sqlite:there", "sqlite:other")[0] == 0
    assert run(capsys, "convert", "--all", "sqlite:other", "again")[0] == 0
    for name in ("a/b", "c", "d"):
        one, two = (Path(f"{folder}/{name}.json") for folder in ("cassettes", "again"))
        assert one.read_bytes() == two.read_bytes()
    assert other.loads == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sqlite:there", "x"), "sqlite:… is a store, and a cassette is needed: add its name"),
        (("smoke", "postgresql://u:secret@h/d"), "postgresql:… is a store, and a cassette is"),
        (("sqlite:there#no name", "x"), "sqlite:there#no name: 'no name' is no name of a cassette"),
        (("sqlite:there#nix", "x"), "there is no cassette sqlite:there#nix"),
        (("smoke", "memory:#x"), "memory: begins and ends with this command"),
        (("--all", "empty", "sqlite:there"), "there is no store file:empty: empty does not exist"),
        (("--all", "--to", "har", "a", "b"), "--all converts stores"),
    ],
)
def test_a_conversion_that_cannot_be_done_is_one_line(
    capsys: pytest.CaptureFixture[str],
    there: BitByBitStore,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    code, out, err = run(capsys, "convert", *arguments)

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"tapeway: {said}")
    assert "secret" not in err
    assert there.heads == {}


@pytest.fixture
def occupied(stores: dict[str, BitByBitStore]) -> BitByBitStore:
    """A store that holds another cassette of that name."""
    written("smoke", *ITEMS)
    found = stores["sqlite:there"]
    found.heads["smoke"] = replace(HEAD, run_id="old")
    found.held["smoke"] = [*OLD]
    return found


def test_a_replaced_cassette_stays_complete_until_the_copy_is(
    capsys: pytest.CaptureFixture[str], occupied: BitByBitStore
) -> None:
    occupied.away_after = 2
    assert run(capsys, "convert", "smoke", THERE, "--force")[0] == 2

    assert (occupied.heads["smoke"].run_id, occupied.held) == ("old", {"smoke": OLD})
    # Without --force it is as it was: somebody's.
    code, _, err = run(capsys, "convert", "smoke", THERE)
    assert (code, "already exists" in err) == (2, True)

    occupied.away_after = 4
    code, out, _ = run(capsys, "convert", "smoke", THERE, "--force")
    assert (code, out.partition(",")[0]) == (0, "sqlite:there#smoke: 8 of 8 interactions")
    assert occupied.away_after == 0
    assert occupied.heads == {"smoke": HEAD}
    assert [item.index for item in occupied.held["smoke"]] == list(range(8))


def test_a_name_of_full_length_is_replaced_too(
    capsys: pytest.CaptureFixture[str], occupied: BitByBitStore
) -> None:
    name = f"{'a' * 128}/{'b' * 128}"
    written("other", *OLD)
    assert run(capsys, "convert", "other", f"sqlite:real.db#{name}")[0] == 0

    assert run(capsys, "convert", "smoke", f"sqlite:real.db#{name}", "--force")[0] == 0
    assert run(capsys, "ls", "--store=sqlite:real.db")[1].splitlines()[1].split()[:2] == [name, "8"]


@pytest.mark.parametrize("place", ["sqlite:there#new", "file:there#new"])
def test_a_copy_that_reads_back_differently_is_an_error(
    capsys: pytest.CaptureFixture[str],
    occupied: BitByBitStore,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    page, load = occupied.page, FileStore.load
    changed = replace(ITEMS[0], index=1)

    async def paged(name: str, *, after: int | None, limit: int) -> list[TakenRecording]:
        found = await page(name, after=after, limit=limit)
        return [TakenRecording(changed) if item.item.index == 1 else item for item in found]

    async def loaded(store: FileStore, name: str, *, writable: bool) -> StoredCassette | None:
        found = await load(store, name, writable=writable)
        if found is None or name != "new" or len(found.interactions) < 2:
            return found
        return replace(found, interactions=(found.interactions[0], changed))

    monkeypatch.setattr(occupied, "page", paged)
    monkeypatch.setattr(FileStore, "load", loaded)
    code, out, err = run(capsys, "convert", "smoke", place)

    assert (code, out) == (2, "")
    assert "new: interactions[1] does not read back as it was written" in err


def test_of_two_conversions_into_one_cassette_the_later_stops(
    capsys: pytest.CaptureFixture[str], occupied: BitByBitStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend, names = occupied.extend, set()

    async def overtaken(name: str, head: CassetteHead, items: Sequence[AnyInteraction]) -> None:
        await extend(name, head, items)
        names.add(name)
        # So the other conversion ends.
        occupied.heads["new"], occupied.held["new"] = HEAD, [*ITEMS]

    monkeypatch.setattr(occupied, "extend", overtaken)
    code, out, err = run(capsys, "convert", "smoke", "sqlite:there#new")
    assert (code, out) == (2, "")
    assert "sqlite:there#new already exists" in err
    assert occupied.held == {"smoke": OLD, "new": ITEMS}

    del occupied.heads["new"]
    assert run(capsys, "convert", "smoke", "sqlite:there#new")[0] == 2
    # Each writes a cassette of its own, so that no two mix.
    assert len(names) == 2


@pytest.mark.parametrize("ending", [".json", ".yaml"])
def test_a_folder_stores_batch_by_batch_too(
    capsys: pytest.CaptureFixture[str],
    occupied: BitByBitStore,
    monkeypatch: pytest.MonkeyPatch,
    ending: str,
) -> None:
    occupied.heads["long"] = HEAD
    occupied.held["long"] = [replace(item, index=at) for at, item in enumerate(ITEMS)]
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
    assert not [*Path("away").glob("long*")]
    monkeypatch.setattr(occupied, "page", page)

    added: list[int] = []
    monkeypatch.setattr(batches, "MAX_ITEMS", 3)
    monkeypatch.setattr(FileStore, "extend", _counted(added))
    assert run(capsys, "convert", source, away)[0] == 0

    assert added == [3, 3, 2]
    assert sorted(Path("away").glob("long*")) == [Path(f"away/long{ending}")]
    assert run(capsys, "convert", f"away/long{ending}", "back")[0] == 0
    assert Path("cassettes/back.json").read_bytes() == Path("cassettes/smoke.json").read_bytes()


def test_a_replaced_file_stays_complete_until_the_copy_is(
    capsys: pytest.CaptureFixture[str], occupied: BitByBitStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = written("other", *OLD)
    before = other.read_bytes()
    occupied.heads["lost"] = HEAD
    occupied.held["lost"] = [replace(item, index=at) for at, item in enumerate(ITEMS)]
    page = occupied.page

    async def cut(name: str, *, after: int | None, limit: int) -> object:
        if after is not None:
            raise StoreAway("the source is gone")
        return await page(name, after=after, limit=6)

    monkeypatch.setattr(occupied, "page", cut)
    assert run(capsys, "convert", "sqlite:there#lost", "other", "--force")[0] == 2

    assert other.read_bytes() == before
    assert [*Path("cassettes").glob("other*")] == [other]
    monkeypatch.setattr(occupied, "page", page)
    assert run(capsys, "convert", "sqlite:there#lost", "other", "--force")[0] == 0
    assert [*Path("cassettes").glob("other*")] == [other]
    assert other.read_bytes() != before


def _counted(added: list[int]) -> object:
    extend = FileStore.extend

    async def add(
        store: FileStore, name: str, head: CassetteHead, items: Sequence[AnyInteraction]
    ) -> None:
        added.append(len(items))
        await extend(store, name, head, items)

    return add


@pytest.mark.parametrize(
    ("source", "target", "options"),
    [
        ("cassettes/large.json", "file:there#large", []),
        ("cassettes/large.json", "sqlite:there.db#large", []),
        ("sqlite:from.db#large", "file:there#large", []),
        ("cassettes/large.json", "smoke", ["--force"]),
    ],
)
def test_a_large_cassette_is_not_in_memory_as_a_whole(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    target: str,
    options: list[str],
) -> None:
    monkeypatch.setattr(snapshot, "SMALLEST_FILE", 1)
    monkeypatch.setattr(durable_files, "WINDOW", 4096)
    monkeypatch.setattr(batches, "MAX_ITEMS", 2)
    monkeypatch.setattr("tapeway.paging.LARGEST", 8)
    written("smoke", *OLD)
    written("large", *[recording(index).interaction for index in range(160)])
    if source.startswith("sqlite"):
        assert run(capsys, "convert", "large", source)[0] == 0
    held: list[int] = []
    add = CassetteDigest.add

    def counted(digest: CassetteDigest, item: AnyInteraction) -> None:
        add(digest, item)
        if digest.count % 10 == 0:
            held.append(sum([type(live_object) is Response for live_object in gc.get_objects()]))

    before = sum([type(live_object) is Response for live_object in gc.get_objects()])
    monkeypatch.setattr(CassetteDigest, "add", counted)
    assert run(capsys, "convert", source, target, *options)[0] == 0

    assert len(held) >= 32
    # A page of a database has some.
    assert max(held) - before < 80
