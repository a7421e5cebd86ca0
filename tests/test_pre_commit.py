"""The hook for pre-commit: its entry, run as pre-commit runs it."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.invocation import KEY, cassette_text

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def hook() -> dict[str, Any]:
    (found,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert isinstance(found, dict)
    return found


def run(hook: dict[str, Any], folder: Path, *staged: str) -> subprocess.CompletedProcess[str]:
    """pre-commit installs the project and puts its commands first on the path."""
    matching = [name for name in staged if re.search(hook["files"], name)]
    environ = {name: value for name, value in os.environ.items() if "KEY" not in name}
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    return subprocess.run(
        [*shlex.split(hook["entry"]), *matching],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_hook_is_one_that_pre_commit_takes(hook: dict[str, Any]) -> None:
    assert (hook["id"], hook["language"]) == ("tapeway-scan", "python")
    assert set(hook) == {"id", "name", "description", "entry", "language", "files"}


def test_a_commit_with_a_secret_is_stopped_and_one_without_passes(
    hook: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "tests" / "cassettes" / "suite"
    folder.mkdir(parents=True)
    (folder / "a.json").write_bytes(cassette_text("hello"))
    (folder / "b.json").write_bytes(cassette_text(f"key {KEY}"))
    (folder / "package.json").write_text("{}")
    names = {name: f"tests/cassettes/suite/{name}.json" for name in ("a", "b", "package")}

    clean = run(hook, tmp_path, names["a"], names["package"], "src/b.json", "README.md")
    leaky = run(hook, tmp_path, names["a"], names["b"])

    assert (clean.returncode, clean.stdout) == (0, "1 cassette, 1 interaction: no secret\n")
    assert clean.stderr == f"tapeway: {names['package']} is no cassette: passed over\n"
    assert (leaky.returncode, leaky.stderr) == (1, "")
    assert leaky.stdout.startswith(f"{names['b']}: interactions[0].response.text: openai-key")


@pytest.mark.parametrize(
    ("name", "matches"),
    [
        ("cassettes/a.json", True),
        ("tests/cassettes/suite/a.json", True),
        ("cassettes/a.assets/sha256-00", True),
        ("cassettes/a.journal", False),
        ("my-cassettes/a.json", False),
        ("cassettes.json", False),
    ],
)
def test_the_hook_is_given_what_belongs_to_cassettes(
    hook: dict[str, Any], name: str, matches: bool
) -> None:
    assert (re.search(hook["files"], name) is not None) == matches
