"""An exit code means the same in every command, and as the documentation says."""

import re
from pathlib import Path

import pytest

from tapeway.cli import main, terminal
from tests.cli.invocation import run_tapeway

ROOT = Path(__file__).parents[2]
DOCUMENTED = {
    int(code): text
    for code, text in re.findall(
        r"^\| (\d+) \| (.*) \|$", (ROOT / "docs/operation.md").read_text(), re.MULTILINE
    )
}
GOOD = '{"version":"1","created_at":"","run_id":"r","meta":{},"interactions":[]}'
CUT = '{"version":"1","created_at":"","run_id":"r","meta":{},"interactions":[{"kind'

UNREADABLE = [
    ("cassette", "ls"),
    ("cassette", "show", "cut"),
    ("cassette", "diff", "cut", "good"),
    ("cassette", "merge", "cassettes/cut.json", "cassettes/good.json", "cassettes/good.json"),
    ("cassette", "mv", "cut", "other"),
    ("cassette", "convert", "cassettes/cut.json", "other.har"),
    ("cassette", "prune", "--keep-last", "1", "cut"),
    ("cassette", "scan", "cut"),
    ("cassette", "scan", "cassettes/cut.json"),
    ("cassette", "verify", "cut"),
    ("cassette", "redact", "cut"),
    ("verify", "--live", "cut"),
    ("doctor", "cut", "good"),
    ("run", "--mode", "replay", "--cassette", "cut", "--", "true"),
    ("serve", "--mode=replay", "--cassette=cut", "--listen=127.0.0.1:0", "--admin-listen=off"),
]


@pytest.fixture(autouse=True)
def cassettes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "cassettes"
    folder.mkdir()
    (folder / "good.json").write_text(GOOD)
    (folder / "cut.json").write_text(CUT)


@pytest.mark.parametrize("arguments", UNREADABLE, ids=" ".join)
def test_a_cassette_that_cannot_be_read_is_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    code, _, err = run_tapeway(capsys, *arguments)

    assert (code, "cut" in err) == (2, True), err


def test_a_program_that_does_not_exist_is_127(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_tapeway(capsys, "run", "--", "no-such-program-at-all")

    assert (code, "there is no such program" in err) == (127, True)


@pytest.mark.parametrize(
    "arguments", [("cassette", "ls"), ("cassette", "diff", "good", "good"), ("env",)]
)
def test_an_unknown_variable_is_warned_of_in_every_command(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.setenv("TAPEWAY_TYPO", "1")

    assert "unknown variable TAPEWAY_TYPO is ignored" in run_tapeway(capsys, *arguments)[2]


@pytest.mark.parametrize(
    ("command", "option"),
    [(("cassette", "merge"), "--store"), (("doctor",), "--mode"), (("doctor",), "--admin-listen")],
)
def test_no_command_offers_an_option_that_it_refuses(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...], option: str
) -> None:
    assert f"{option} " not in run_tapeway(capsys, *command, "--help")[1]


def test_the_documentation_has_the_codes() -> None:
    codes = {terminal.DONE, terminal.FOUND, terminal.NOT_DONE, main.USAGE, main.FAILURE}

    assert set(DOCUMENTED) == {*codes, 3, main.NOT_FOUND}
    assert "cannot be read" in DOCUMENTED[main.USAGE]
    assert "does not exist" in DOCUMENTED[main.NOT_FOUND]
