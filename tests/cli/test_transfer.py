"""Cassettes on their way into a store that takes them bit by bit: what breaks off goes on."""

from dataclasses import replace
from pathlib import Path

import pytest

from tapeway.cli import places
from tapeway.cli.transfer import batches
from tapeway.cli.transfer.batches import is_marked, marked
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.ports import CassetteStore
from tapeway.stores.opening import open_store
from tests.cli.commands import run, written
from tests.cli.test_scan import KEY
from tests.fakes.shared import BitByBitStore
from tests.stores.recordings import HEAD, recording

ITEMS = [
    *[recording(index).interaction for index in range(7)],
    ForeignInteraction(7, {"kind": "tool", "request": {"name": "f"}, "response": 1}),
]
THERE = "sqlite:there#smoke"


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> dict[str, BitByBitStore]:
    """Stores that last beyond one command, by address."""
    found = {f"sqlite:{name}": BitByBitStore(f"sqlite:{name}") for name in ("there", "other")}

    def opening(url: str) -> CassetteStore:
        return found[url] if url in found else open_store(url)

    monkeypatch.setattr(places, "open_store", opening)
    monkeypatch.setattr("tapeway.cli.cassette.convert.open_store", opening)
    monkeypatch.setattr(batches, "_MOST_ITEMS", 2)
    return found


@pytest.fixture
def there(stores: dict[str, BitByBitStore]) -> BitByBitStore:
    written("smoke", *ITEMS)
    return stores["sqlite:there"]


def test_a_cassette_goes_there_and_back_byte_for_byte(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore
) -> None:
    before = Path("cassettes/smoke.json").read_bytes()

    code, out, err = run(capsys, "convert", "smoke", THERE)
    assert (code, err) == (0, "")
    assert out.startswith("sqlite:there#smoke: 8 of 8 interactions, sha256:")
    again = run(capsys, "convert", THERE, "back")
    assert again[1] == out.replace("sqlite:there#smoke", "back")

    assert Path("cassettes/back.json").read_bytes() == before
    assert there.loads == 0
    assert there.heads == {"smoke": HEAD}


def test_what_broke_off_goes_on_without_duplicates(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore
) -> None:
    there.away_after = 2
    code, out, err = run(capsys, "convert", "smoke", THERE)
    assert (code, out) == (2, "")
    assert err == "tapeway: sqlite:there does not answer: see whether it runs\n"
    assert (len(there.held["smoke"]), is_marked(there.heads["smoke"])) == (4, True)

    there.away_after = 2
    assert run(capsys, "convert", "smoke", THERE)[0] == 0

    assert there.away_after == 0
    assert there.heads == {"smoke": HEAD}
    assert [each.index for each in there.held["smoke"]] == list(range(8))
    assert run(capsys, "convert", THERE, "back")[0] == 0
    assert Path("cassettes/back.json").read_bytes() == Path("cassettes/smoke.json").read_bytes()


def test_what_is_there_whole_is_found_so(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore
) -> None:
    first = run(capsys, "convert", "smoke", THERE)
    there.away_after = 0

    assert run(capsys, "convert", "smoke", THERE) == first
    # Also where only its last step was missing.
    there.heads["smoke"] = marked(HEAD)
    assert run(capsys, "convert", "smoke", THERE) == first
    assert there.heads == {"smoke": HEAD}


@pytest.mark.parametrize(
    ("unfinished", "items", "said"),
    [
        (False, [0, 2], "is there already: give another name, or --force"),
        # What nobody marked may be anybody's: it is not added to.
        (False, [0, 1], "is there already: give another name, or --force"),
        (True, [0, 2], "holds the beginning of another conversion: give another name, or --force"),
        (True, [*range(8), 0], "holds the beginning of another conversion"),
    ],
)
def test_another_cassette_is_left_alone_unless_forced(
    capsys: pytest.CaptureFixture[str],
    there: BitByBitStore,
    unfinished: bool,
    items: list[int],
    said: str,
) -> None:
    there.heads["smoke"] = marked(HEAD) if unfinished else HEAD
    there.held["smoke"] = [replace(ITEMS[each], index=at) for at, each in enumerate(items)]
    before = (dict(there.heads), [*there.held["smoke"]])

    code, out, err = run(capsys, "convert", "smoke", THERE)
    assert (code, out) == (2, "")
    assert err.startswith(f"tapeway: sqlite:there#smoke {said}")
    assert (there.heads, there.held["smoke"]) == before

    assert run(capsys, "convert", "smoke", THERE, "--force")[0] == 0
    assert there.heads == {"smoke": HEAD}
    assert len(there.held["smoke"]) == 8


def test_a_beginning_under_another_head_is_another_cassettes(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore
) -> None:
    there.heads["smoke"] = marked(replace(HEAD, run_id="run-2"))
    there.held["smoke"] = [*ITEMS[:2]]

    code, _, err = run(capsys, "convert", "smoke", THERE)

    assert code == 2
    assert "holds the beginning of another conversion" in err


def test_force_goes_on_where_it_broke_off_too(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore
) -> None:
    there.away_after = 3
    assert run(capsys, "convert", "smoke", THERE, "--force")[0] == 2
    there.away_after = 1

    assert run(capsys, "convert", "smoke", THERE, "--force")[0] == 0


def test_a_cassette_is_not_put_in_its_own_place_by_another_address(
    capsys: pytest.CaptureFixture[str], stores: dict[str, BitByBitStore], there: BitByBitStore
) -> None:
    made = recording(0, body=b'{"key": "%b"}' % KEY.encode()).interaction
    there.heads["smoke"], there.held["smoke"] = HEAD, [made]
    stores["sqlite:./there"] = there

    # Without the key it would be another cassette, to be put in the place of this one.
    code, _, err = run(capsys, "convert", "sqlite:./there#smoke", THERE, "--force")

    assert (there.heads, there.held) == ({"smoke": HEAD}, {"smoke": [made]})
    assert (code, err.count("\n")) == (2, 1)
    assert "sqlite:there#smoke is what is to be read: give another place to write it to" in err


def test_an_unfinished_cassette_is_no_source(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore
) -> None:
    there.away_after = 2
    assert run(capsys, "convert", "smoke", THERE)[0] == 2

    code, _, err = run(capsys, "convert", THERE, "copy")

    assert code == 2
    assert "sqlite:there#smoke is the beginning of a cassette: finish its conversion first" in err


def test_a_file_of_another_tool_goes_on_too(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore
) -> None:
    assert run(capsys, "convert", "smoke", "smoke.jsonl")[0] == 0
    text = Path("smoke.jsonl").read_bytes()
    # Without a head of its own it is given one, which is another one each time.
    Path("smoke.jsonl").write_bytes(text.partition(b"\n")[2])
    there.away_after = 2
    assert run(capsys, "convert", "smoke.jsonl", THERE)[0] == 2
    there.away_after = 2

    assert run(capsys, "convert", "smoke.jsonl", THERE)[0] == 0
    assert len(there.held["smoke"]) == 8


def test_what_somebody_adds_meanwhile_is_noticed(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend = there.extend

    async def twice(*arguments: object) -> None:
        await extend(*arguments)  # type: ignore[arg-type]
        await extend(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(there, "extend", twice)
    code, out, err = run(capsys, "convert", "smoke", THERE)

    assert (code, out) == (2, "")
    assert "sqlite:there#smoke was changed by somebody while it came into being" in err
    assert is_marked(there.heads["smoke"])


def test_an_interruption_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], there: BitByBitStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(there, "extend", interrupted)

    assert run(capsys, "convert", "smoke", THERE) == (
        2,
        "",
        "tapeway: interrupted: what came across so far stays, run it again\n",
    )


def test_a_whole_store_goes_cassette_by_cassette(
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
    assert err.startswith("tapeway: sqlite:there#c is there already")

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
        (("sqlite:there", "x"), "sqlite:… is a store, and a cassette is asked for: add its name"),
        (("smoke", "postgresql://u:secret@h/d"), "postgresql:… is a store, and a cassette is"),
        (("sqlite:there#no name", "x"), "sqlite:there#no name: 'no name' is no name of a cassette"),
        (("sqlite:there#nix", "x"), "there is no cassette sqlite:there#nix"),
        (("smoke", "memory:#x"), "memory: begins and ends with this command"),
        (("--all", "empty", "sqlite:there"), "there is no cassette in file:empty"),
        (("--all", "--to", "har", "a", "b"), "--all is about stores"),
    ],
)
def test_what_cannot_be_done_is_one_line(
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
