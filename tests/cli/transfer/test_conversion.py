"""One cassette through every store there is, and what each command says where a store fails it."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from tapeway.cli.main import main
from tapeway.stores.file.store import FileStore
from tests.cli.full_cassette import STORES, store_of
from tests.cli.invocation import run, written
from tests.stores.recordings import HEAD, recording
from tests.support import fork_server
from tests.support.exchanges import interaction

KILLED = """
import os, signal, sys
from tapeway.cli.main import main
from tapeway.cli.transfer import batches
from tapeway.stores.postgres.store import PostgresStore
from tapeway.stores.sqlite.store import SqliteStore
from tapeway.stores.whole import WholeCassettes

left = [2]

def dying(extend):
    async def some(*given):
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        await extend(*given)

    return some

batches.MAX_ITEMS = 20
for kind in (WholeCassettes, PostgresStore, SqliteStore):
    kind.extend = dying(kind.extend)
main()
"""
COMMANDS = {
    "show": ("show",),
    "diff": ("diff", "other"),
    "verify": ("verify",),
    "scan": ("scan",),
    "redact": ("redact",),
    "convert": ("convert", "other.json"),
    "prune": ("prune", "--keep-last=1"),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty store of each sort."""
    postgres = request.getfixturevalue("postgres_dsn") if request.param == "postgresql" else ""
    with store_of(request.param, tmp_path, postgres) as url:
        yield url


async def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    # Commands have an event loop of their own.
    return await asyncio.to_thread(run, capsys, *arguments)


async def test_a_wrong_index_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    written("x", *[recording(index).interaction for index in range(3)])
    assert (await command(capsys, "convert", "x", "sqlite:one.db#x"))[0] == 0
    connection = apsw.Connection("one.db")
    connection.execute("UPDATE recordings SET key = (SELECT max(key) FROM recordings)")
    connection.close()

    code, out, err = await command(capsys, "verify", "--store", "sqlite:one.db")

    assert (code, err) == (1, "")
    wrong = [line for line in out.splitlines() if "its row says something else" in line]
    assert len(wrong) == 2


@pytest.mark.slow
def test_a_killed_conversion_leaves_a_cassette_that_says_so_and_begins_anew(
    capsys: pytest.CaptureFixture[str], store: str
) -> None:
    file = written("big", *[recording(index).interaction for index in range(90)])
    there = f"{store}#big"
    killed = subprocess.run(
        [*fork_server.command(), "-c", KILLED, "cassette", "convert", "big", there],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (killed.returncode, killed.stdout, killed.stderr) == (-signal.SIGKILL, b"", b"")
    (listed,) = json.loads(run(capsys, "ls", "--format=json", "--store", store)[1])
    assert (listed["interactions"], listed["unfinished"]) == (40, True)
    left = f"{store}#{listed['name']}"
    assert left == there or left.startswith(f"{there}.converting-")
    assert run(capsys, "verify", left)[0] == 1
    assert run(capsys, "convert", left, "other")[0] == 2

    code, out, _ = run(capsys, "convert", "big", there)
    assert (code, ": 90 of 90 interactions, sha256:" in out) == (0, True)
    assert run(capsys, "convert", there, "back")[0] == 0
    assert Path("cassettes/back.json").read_bytes() == file.read_bytes()


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
        options = [argument if argument != "other" else "cassettes/other.json" for argument in rest]
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


async def test_a_cassette_being_recorded_into_is_not_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
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
