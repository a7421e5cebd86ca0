"""An exit code means the same in every command, and as the documentation says."""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tapeway.cli import main, terminal
from tests.cli.invocation import run, run_tapeway
from tests.process.privileges import drop_rights

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


NO_RIGHTS = """
import sys
from tapeway.cli.main import main
for arguments in {commands}:
    try:
        main(arguments)
    except SystemExit as ended:
        print("ended:", ended.code, *arguments)
"""


def test_a_cassette_that_may_not_be_read_is_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cut = tmp_path / "cassettes/cut.json"
    cut.write_text(GOOD)
    assert run(capsys, "convert", str(cut), "sqlite:cut.db#cut")[0] == 0
    cut.chmod(0)
    (tmp_path / "cut.db").chmod(0)
    database = ("--store", "sqlite:cut.db")
    listen = ("--listen", "127.0.0.1:0", "--admin-listen", "off")
    commands = [
        *[arguments for arguments in UNREADABLE if arguments[0] != "serve"],
        ("serve", "--cassette", "cut", *listen),
        ("serve", "--mode", "replay", *database, *listen),
        ("serve", "--mode", "auto", *database, *listen),
        *[("cassette", name, *database, "cut") for name in ("show", "scan", "verify")],
        ("cassette", "ls", *database),
    ]

    done = subprocess.run(
        [sys.executable, "-c", NO_RIGHTS.format(commands=commands)],
        preexec_fn=drop_rights,
        capture_output=True,
        text=True,
        timeout=60,
    )

    codes = [line for line in done.stdout.splitlines() if line.startswith("ended: ")]
    assert codes == [f"ended: 2 {' '.join(arguments)}" for arguments in commands], done.stderr


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


@pytest.mark.parametrize(
    ("source", "arguments", "variable", "file"),
    [
        ("--workers", ("serve", "--workers", "2"), "", ""),
        ("--workers", ("serve", "--workers=1"), "", ""),
        ("--workers", ("run", "--workers", "2", "--", "true"), "", ""),
        ("--workers", ("doctor", "--workers", "2", "--", "true"), "", ""),
        ("TAPEWAY_WORKERS", ("serve",), "2", ""),
        ("TAPEWAY_WORKERS", ("run", "--", "true"), "1", ""),
        ("tapeway.toml, line 1: workers", ("serve",), "", "workers = 2\n"),
    ],
)
def test_workers_are_2_wherever_they_are_given_and_what_to_use_instead_is_said(
    source: str,
    arguments: tuple[str, ...],
    variable: str,
    file: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TAPEWAY_WORKERS", variable)
    Path("tapeway.toml").write_text(file)

    code, out, err = run_tapeway(capsys, *arguments)

    said = (
        "tapeway has no workers any more, leave this out; to serve with several processes, start "
    )
    said += "several instances with the same --store postgresql://…"
    assert (code, out, err) == (2, "", f"tapeway: {source}: {said}\n")


@pytest.mark.parametrize("command", ["serve", "run", "doctor"])
def test_no_help_tells_of_workers(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert "workers" not in run_tapeway(capsys, command, "--help")[1]


def leaves(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Each command with its name."""
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from leaves(found, *path, name)
        else:
            yield " ".join((*path, name)), found


def stated(command: click.Command) -> dict[str, str]:
    """The exit codes in a command's help."""
    text = inspect.cleandoc(command.help or "").partition("Exit codes:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^ +(\d+)  +(.*(?:\n(?! +\d+  ).*)*)", text, re.MULTILINE)
    return {code: " ".join(meaning.split()) for code, meaning in found}


COMMANDS = dict(leaves(main.tapeway))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_has_what_each_says_of_its_exit_codes(name: str) -> None:
    rows = [
        line.split(" | ")
        for line in (ROOT / "docs/operation.md").read_text().splitlines()
        if line.startswith(f"| `tapeway {name}` | ")
    ]
    codes = stated(COMMANDS[name])

    assert len(rows) == 1
    _, done, found, unusable, other = [cell.rstrip(" |") for cell in rows[0]]
    others = [f"{code}: {codes[code]}" for code in codes if code not in ("0", "1", "2")]
    assert [done, found, unusable] == [codes.get(text, "") for text in ("0", "1", "2")]
    assert other == "; ".join(others)
    assert {int(code) for code in codes} <= set(DOCUMENTED)
    assert {"0", "2"} <= set(codes)


def test_the_documentation_has_the_codes() -> None:
    codes = {terminal.DONE, terminal.FOUND, terminal.NOT_DONE, main.USAGE, main.FAILURE}

    assert set(DOCUMENTED) == {*codes, 3, main.NOT_FOUND}
    assert "cannot be read" in DOCUMENTED[main.USAGE]
    assert "does not exist" in DOCUMENTED[main.NOT_FOUND]
