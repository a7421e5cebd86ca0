"""One cassette through every store there is, and what each command says where a store fails it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from tapeway.cli.main import main
from tapeway.core.json_text import Json
from tapeway.core.model import (
    BodyFile,
    CassetteHead,
    ForeignInteraction,
    Interaction,
    ResponseChunk,
    StoredCassette,
)
from tapeway.stores.file import FileStore
from tapeway.stores.sqlite import SqliteStore
from tests.cli.commands import run, written
from tests.formats.exchanges import interaction
from tests.shell import background
from tests.stores.postgres_server import fresh
from tests.stores.recordings import HEAD, recording

META: dict[str, Json] = {
    "tapeway_version": "0",
    "rules": {"ignore": ["query.at"]},
    "é": [None, 1.5],
}
LARGE = b"large " * 300_000
ASSETS = "cassettes/suite/all.assets"
COMMANDS = {
    "show": ("show",),
    "diff": ("diff", "other"),
    "verify": ("verify",),
    "scan": ("scan",),
    "redact": ("redact",),
    "convert": ("convert", "other.json"),
    "prune": ("prune", "--keep-last=1"),
}


async def everything() -> Path:
    """A cassette with all that a cassette may hold, as tapeway writes it."""
    store = FileStore(Path("cassettes"))
    await store.open()
    kept = await store.keep("suite/all", [LARGE])
    plain = interaction()
    file = BodyFile(kept.path, kept.size, kept.digest)
    items: list[Interaction | ForeignInteraction] = [
        plain,
        replace(plain, response=replace(plain.response, chunks=(), file=file)),
        ForeignInteraction(2, {"kind": "tool", "request": {"name": "f"}, "response": {"n": 1}}),
        interaction(target="/v1/é?a=1&at=2", chunks=(ResponseChunk(b"\xff\x00", 1.25),)),
        # The same request again, and again.
        *[replace(plain, response=replace(plain.response, chunks=())) for _ in range(2)],
        ForeignInteraction(6, {"kind": "retrieval", "request": {}, "error": {"type": "E"}}),
    ]
    numbered = [replace(each, index=at) for at, each in enumerate(items)]
    head = CassetteHead(HEAD.created_at, HEAD.run_id, META)
    await store.save("suite/all", StoredCassette(head, tuple(numbered)))
    await store.close()
    return Path("cassettes/suite/all.json")


@pytest.fixture
async def postgres(postgres_dsn: str) -> AsyncIterator[str]:
    async with fresh(postgres_dsn) as url:
        yield url


@pytest.fixture
def far(tmp_path: Path) -> Iterator[str]:
    """The admin address of another tapeway."""
    tapeway = Path(sys.executable).parent / "tapeway"
    listen = "--listen 127.0.0.1:0 --admin-listen 127.0.0.1:0"
    with background(f"{tapeway} serve --store far {listen}", os.environ, tmp_path) as ready:
        yield ready["admin"]


async def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    # Commands have an event loop of their own.
    return await asyncio.to_thread(run, capsys, *arguments)


@pytest.mark.slow
async def test_a_cassette_goes_through_all_stores_and_comes_back_byte_for_byte(
    capsys: pytest.CaptureFixture[str], postgres: str, far: str
) -> None:
    file = await everything()
    stations = [
        "suite/all",
        "sqlite:./one.db#suite/all",
        f"{postgres}#all",
        f"{far}#far/all",
        "sqlite:two.db#a",
        "file:./back?format=yaml#suite/yaml",
        "file:./again#suite/all",
    ]
    digests: set[str] = set()
    for here, there in pairwise(stations):
        code, out, err = await command(capsys, "convert", here, there)
        assert (code, err) == (0, "")
        assert ": 7 of 7 interactions, sha256:" in out
        digests.add(out.partition("sha256:")[2])
        assert await command(capsys, "diff", here, there, "--headers") == (
            0,
            (await command(capsys, "diff", here, there))[1],
            "",
        )
        assert (await command(capsys, "verify", there))[0] == 0

    assert len(digests) == 1
    assert Path("again/suite/all.json").read_bytes() == file.read_bytes()
    (body,) = Path("again/suite/all.assets").iterdir()
    assert body.read_bytes() == LARGE
    assert "synthetic-pass" not in (await command(capsys, "verify", stations[2]))[1]


@pytest.mark.slow
async def test_each_command_works_on_every_store(
    capsys: pytest.CaptureFixture[str], postgres: str, far: str
) -> None:
    await everything()
    for store in ("sqlite:./one.db", postgres, far):
        assert (await command(capsys, "convert", "--all", "cassettes", store))[0] == 0
        listed = await command(capsys, "ls", "--store", store)
        assert (listed[0], listed[1].split()[:2]) == (0, ["suite/all", "7"])
        there = ("suite/all", "--store", store)
        for arguments in (("show",), ("show", "--format=json"), ("show", "--messages")):
            name, *options = arguments
            here = await command(capsys, name, "suite/all", *options)
            assert await command(capsys, name, *there, *options) == here
        assert await command(capsys, "show", *there, "3") == await command(
            capsys, "show", "suite/all", "3"
        )
        assert (await command(capsys, "show", *there, "9"))[0] == 2
        assert await command(capsys, "scan", *there) == (0, "", "")
        assert (await command(capsys, "verify", "--store", store))[0] == 0
        pruned = await command(capsys, "prune", *there, "--keep-last", "1")
        assert pruned[1].endswith("3 of 7 interactions dropped, 4 left\n")
        left = await command(capsys, "show", *there)
        # A file numbers what is left anew.
        numbers = "0123" if store == far else "2356"
        assert [line[:2] for line in left[1].splitlines()] == [f"#{each}" for each in numbers]
        assert (await command(capsys, "verify", *there))[0] == 0


async def test_an_index_that_is_wrong_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    written("x", *[recording(index).interaction for index in range(3)])
    assert (await command(capsys, "convert", "x", "sqlite:one.db#x"))[0] == 0
    connection = apsw.Connection("one.db")
    first, second = [each for (each,) in connection.execute("SELECT id FROM interaction LIMIT 2")]
    connection.execute("UPDATE key SET interaction = ? WHERE interaction = ?", (second, first))
    connection.close()

    code, out, err = await command(capsys, "verify", "sqlite:one.db#x")

    assert (code, err) == (1, "")
    assert out.splitlines() == [
        "sqlite:one.db#x: #0: the store does not find it by its request",
        "sqlite:one.db#x: #1: the store finds it by a request it does not have",
    ]


async def test_what_was_pruned_from_a_database_is_a_cassette(
    capsys: pytest.CaptureFixture[str],
) -> None:
    items = [recording(index).exchange for index in range(4)]
    written("x", *items[:2], replace(items[0], tags=("later",)), *items[2:])
    assert (await command(capsys, "convert", "x", "sqlite:one.db#x"))[0] == 0
    assert (await command(capsys, "prune", "sqlite:one.db#x", "--keep-last=1"))[0] == 0
    assert (await command(capsys, "convert", "sqlite:one.db#x", "left"))[0] == 0

    assert (await command(capsys, "prune", "x", "--keep-last=1"))[0] == 0
    assert Path("cassettes/left.json").read_bytes() == Path("cassettes/x.json").read_bytes()


@pytest.mark.slow
async def test_what_was_killed_goes_on_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    count = 2000
    written("big", *[recording(index).interaction for index in range(count)])
    there = "sqlite:./one.db#big"
    tapeway = str(Path(sys.executable).parent / "tapeway")
    process = subprocess.Popen(  # noqa: ASYNC220 - it is not waited for
        [tapeway, "cassette", "convert", "--no-redact", "big", there], stdout=subprocess.PIPE
    )
    store = SqliteStore(Path("one.db"))
    await store.open()
    try:
        async with asyncio.timeout(60):
            outline = None
            while outline is None or not outline.count:
                assert process.poll() is None
                outline = await store.outline("big")
        process.send_signal(signal.SIGKILL)
        out, _ = process.communicate()
        broken = await store.outline("big")
    finally:
        process.kill()
        await store.close()
    assert out == b""
    assert broken is not None
    assert 0 < broken.count <= count
    assert (await command(capsys, "verify", there))[0] == 1
    assert (await command(capsys, "ls", "--store=sqlite:./one.db"))[1].endswith("unfinished\n")

    code, out_, _ = await command(capsys, "convert", "--no-redact", "big", there)
    assert (code, out_.partition(",")[0]) == (0, "sqlite:one.db#big: 2000 of 2000 interactions")
    assert (await command(capsys, "convert", "--no-redact", there, "back"))[0] == 0
    assert Path("cassettes/back.json").read_bytes() == Path("cassettes/big.json").read_bytes()


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("postgresql://u:pass-word-1@127.0.0.1:1/x", "postgresql://u:***@127.0.0.1:1/x"),
        ("postgresql://u:pass-word-1@h:port/x", "postgresql"),
        ("nosuch://u:pass-word-1@h/x", "there is no store of the kind nosuch:"),
        ("sqlite:text.db", "text.db"),
        ("sqlite:new.db", "there is no cassette x in sqlite:new.db"),
    ],
)
def test_a_store_that_fails_is_one_line(
    capsys: pytest.CaptureFixture[str], name: str, store: str, said: str
) -> None:
    written("other", interaction())
    Path("text.db").write_text("no database, " * 500)
    first, *rest = COMMANDS[name]

    for arguments in ((f"{store}#x",), ("x", "--store", store)):
        options = [each if each != "other" else "cassettes/other.json" for each in rest]
        code, out, err = run(capsys, first, *arguments, *options)

        assert (code, out if name != "verify" else "") == (2, ""), err
        assert err.startswith("tapeway: ")
        assert err.count("\n") == 1
        assert "pass-word-1" not in err
        assert said.replace(" x in sqlite:new.db", "") in err


def test_no_password_is_shown_in_documents_or_by_the_doctor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for address in ("postgresql://u:pass-word-1@127.0.0.1:1/x#x", "nosuch://u:pass-word-1@h#x"):
        for arguments in (
            ("cassette", "verify", "--format=json", address),
            ("cassette", "convert", "--from=har", address, "x"),
            ("cassette", "convert", "--to=har", "x", address),
            ("doctor", address, address),
        ):
            with pytest.raises(SystemExit) as ended:
                main([*arguments])
            assert ended.value.code
            assert "pass-word-1" not in "".join(capsys.readouterr())


async def test_what_somebody_records_into_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    store = FileStore(Path("cassettes"))
    await store.open()
    for index in range(2):
        await store.append("x", HEAD, replace(recording(index)))
    written("other", interaction())
    try:
        for arguments in (
            ("prune", "x", "--keep-last=1"),
            ("convert", "other", "x", "--force"),
        ):
            code, out, err = await command(capsys, *arguments)
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert "x" in err
    finally:
        await store.close()
