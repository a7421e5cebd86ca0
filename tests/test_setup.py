"""What set-up promises: pins for everything, no address of an index, a clear line when it cannot."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PINS = ("constraints.txt", "constraints-litellm.txt")


def _pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(package): pinned for package, pinned in pairs}


def _requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("needed", _requirements(), ids=str)
def test_every_requirement_is_pinned_within_its_bounds(needed: Requirement) -> None:
    assert needed.specifier.contains(_pins("constraints.txt")[canonicalize_name(needed.name)])


RESTED_ON = {"aiohttp", "apsw", "asyncpg", "orjson", "pydantic"}


def _pins_for(which: str) -> dict[str, str]:
    script = [sys.executable, str(ROOT / "scripts/bounds.py"), which]
    shown = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    pairs = (line.split("==") for line in shown.splitlines() if "==" in line)
    return {canonicalize_name(package): pinned for package, pinned in pairs}


def test_the_lowest_libraries_are_the_bounds_of_the_project_and_the_newest_are_free() -> None:
    low, new, pinned = _pins_for("lowest"), _pins_for("newest"), _pins("constraints.txt")
    bounds = {
        requirement.name: {
            Version(one.version) for one in requirement.specifier if one.operator == ">="
        }
        for requirement in _requirements()
        if requirement.name in RESTED_ON
    }

    assert {name: {Version(low[name])} for name in RESTED_ON} == bounds
    assert not RESTED_ON & set(new)
    # What they need may have to be another version too: pydantic names that of its core exactly.
    assert {"pydantic-core", "yarl"} <= set(pinned) - set(new) - set(low)
    assert {name: low[name] for name in new} == new == {name: pinned[name] for name in new}
    assert len(new) > 0.8 * len(pinned)


@pytest.mark.parametrize("name", PINS)
def test_a_pin_is_a_name_and_a_version_and_no_address(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()

    odd = [line for line in lines if not re.fullmatch(r"(#.*)?|[\w.-]+==[\w.]+", line)]

    assert odd == []


def test_the_upstream_given_to_make_reaches_the_proxy() -> None:
    planned = subprocess.run(
        ["make", "--dry-run", "run", "UPSTREAM=https://host.example"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert "tapeway serve --mode auto" in planned.stdout
    assert "--upstream 'https://host.example'" in planned.stdout


def _fake_python(folder: Path, script: str) -> Path:
    python = folder / "python3"
    python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    python.chmod(0o755)
    return python


def _make_environment(tmp_path: Path, python: str) -> subprocess.CompletedProcess[str]:
    """Run the script with a search path that holds no apt-get, so that nothing is installed."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "id"):
        (tools / name).symlink_to(shutil.which(name) or name)
    return subprocess.run(
        ["sh", str(ROOT / "scripts" / "venv"), python, str(tmp_path / "made")],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("", "There is no python9: install Python 3.11 or newer"),
        (
            'case "$1" in -V) echo Python 3.9.2;; *) exit 1;; esac',
            "is Python 3.9.2, tapeway needs 3.11 or newer",
        ),
        (
            'case "$2" in *version_info*) exit 0;; *) exit 1;; esac',
            "'sudo apt-get install python3-venv', then call make again",
        ),
    ],
    ids=["not there", "too old", "without ensurepip"],
)
def test_a_python_that_cannot_be_used_is_one_clear_line(
    tmp_path: Path, script: str, said: str
) -> None:
    made = _make_environment(tmp_path, str(_fake_python(tmp_path, script)) if script else "python9")

    assert made.returncode == 1
    assert said in made.stderr
    assert len(made.stderr.splitlines()) == 1


def test_an_environment_that_works_is_left_alone(tmp_path: Path) -> None:
    ready = tmp_path / "made" / "bin"
    ready.mkdir(parents=True)
    _fake_python(ready, "exit 0").rename(ready / "python")
    newer = _fake_python(tmp_path, 'case "$2" in *version_info*) exit 0;; *) exit 1;; esac')

    made = _make_environment(tmp_path, str(newer))

    assert (made.returncode, made.stderr) == (0, "")
    assert os.listdir(ready) == ["python"]
