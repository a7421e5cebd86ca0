"""The page on stores: what it shows is what happens."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tapeway.cli.main import main
from tapeway.ports import Capabilities
from tapeway.server import lifecycle
from tapeway.settings.options import Settings
from tapeway.stores.file.store import FileStore
from tapeway.workers import supervisor
from tests.stores.contract.kinds import KINDS
from tests.stores.recordings import record
from tests.support.logging_state import logging_restored
from tests.support.markdown import ROOT, blocks

TEXT = (ROOT / "docs/stores.md").read_text("utf-8")
NAMING, MOVING = [block.text for block in blocks("docs/stores.md") if block.language == "sh"]
(PYTHON,) = [block.text for block in blocks("docs/stores.md") if block.language == "python"]


@pytest.mark.parametrize("line", NAMING.splitlines())
def test_every_way_to_name_a_store_is_one(
    line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[Settings] = []
    monkeypatch.setattr(lifecycle, "serve", started.append)
    monkeypatch.setattr(supervisor, "serve", started.append)
    monkeypatch.setattr(supervisor, "serve", started.append)
    monkeypatch.chdir(tmp_path)
    before, program, arguments = line.partition("tapeway serve")
    for setting in shlex.split(before):
        name, _, value = setting.partition("=")
        monkeypatch.setenv(name, value)

    with logging_restored(), pytest.raises(SystemExit) as ended:
        main(["serve", *shlex.split(arguments)])

    assert (program, ended.value.code or 0, len(started)) == ("tapeway serve", 0, 1)


async def _recorded(root: Path) -> None:
    store = FileStore(root)
    await record(store, 0, 1, name="smoke")
    await record(store, 2, name="suite/login")
    await store.close()


def test_cassettes_move_as_shown_and_come_back_as_they_were(tmp_path: Path) -> None:
    asyncio.run(_recorded(tmp_path / "cassettes"))

    done = subprocess.run(
        ["/bin/bash", "-ec", MOVING],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    for name in ("smoke.json", "suite/login.json"):
        moved = (tmp_path / "elsewhere" / name).read_bytes()
        assert moved == (tmp_path / "cassettes" / name).read_bytes()
    assert re.search(r"^suite/login +1 ", done.stdout, re.MULTILINE)


def test_the_example_tells_of_a_change(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PYTHON],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert re.fullmatch(r"\d+ bytes\n", done.stdout)


def test_the_table_has_every_kind_of_store_and_every_level() -> None:
    table = TEXT.partition("## Which one")[2].partition("\n## ")[0]
    for kind in KINDS:
        named = {"file": "file:DIR", "file-yaml": "?format=yaml", "remote": "http"}
        assert named.get(kind.name, kind.name) in table, kind.name
    assert _first_column("What durable") == {"process", "disk", "primary", "remote", "server"}


def test_the_table_for_writers_of_a_store_has_every_capability() -> None:
    assert _first_column("Writing a store") == {each.name for each in fields(Capabilities)}


def _first_column(section: str) -> set[str]:
    text = TEXT.partition(f"## {section}")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
