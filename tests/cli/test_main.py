"""`tapeway` itself: every failure is one line on standard error and an exit code."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tapeway.cli.main import main
from tapeway.core.model.cassette import StoredCassette
from tapeway.errors import ConfigError, StoreError
from tapeway.formats.native import document
from tapeway.server import lifecycle
from tapeway.settings.options import Settings
from tests.cli.invocation import run_tapeway
from tests.stores.recordings import HEAD

Result = tuple[int, str, str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    return partial(run_tapeway, capsys)


def serve_with(monkeypatch: pytest.MonkeyPatch, serve: Callable[[Settings], None]) -> None:
    monkeypatch.setattr(lifecycle, "serve", serve)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'. See tapeway --help"),
        (["srve"], "No such command 'srve'. Did you mean 'serve'? See tapeway --help"),
        (["cassette", "shwo"], "No such command 'shwo'. Did you mean 'show'?"),
        (["ls"], "No such command 'ls'. Did you mean 'cassette ls'?"),
        (["--what"], "No such option '--what'."),
        (
            ["serve", "--lisen", "x"],
            "No such option '--lisen'. (Did you mean one of: '--admin-listen', '--listen', '--tls-key'?)",
        ),
        (["cassette", "prune", "--dryrun"], "No such option '--dryrun'. Did you mean '--dry-run'?"),
        (["serve", "more"], "--listen: 'more' is not an address to listen on; give"),
        (["serve", ":1", "more"], "Got unexpected extra argument (more)"),
        (["serve", ":1", "--listen", ":2"], "give the address once: :1, or --listen."),
        (["serve", "--listen"], "Option '--listen' requires an argument."),
        (["serve", "--listen", "8080"], "--listen: '8080' is not an address to listen on; give"),
        (
            ["serve", "--listen", "h:99999"],
            "--listen: 'h:99999' is not an address to listen on; give",
        ),
        (["serve", "--mode", "once"], "--mode: 'once' is not accepted; use replay, record, auto"),
        (
            ["serve", "--upstream", "host"],
            "--upstream: 'host' is not an upstream URL; give http://",
        ),
        (["serve", "--route", "x"], "--route: 'x' is not a built-in route; give x=URL"),
        (["serve", "--max-body", "64MB"], "--max-body: '64MB' is not a size; give"),
        (["serve", "--delivery", "late"], "--delivery: 'late' is not accepted; use buffer, stream"),
        (["serve", "--pace", "2"], "--pace: '2' is not a pace; give none, recorded, or a speed"),
        (["serve", "--cassette", "../x"], "--cassette: a cassette's name is"),
        (["serve", "--admin-listen", "0.0.0.0:1"], "other machines could reach the admin API"),
        (["serve", "--config", "no.toml"], "--config: there is no file no.toml"),
        (["serve", "--drain-timeout", "soon"], "--drain-timeout: 'soon' is not a duration"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_2(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    serve_with(monkeypatch, lambda _: pytest.fail("it must not start"))

    code, out, err = run(*arguments)

    assert (code, out) == (2, "")
    assert err.startswith(f"tapeway: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ConfigError("port 8080 is taken: give another --listen"), 2, "port 8080 is taken: give"),
        (StoreError("the folder cannot be written:\nread-only"), 1, "the folder cannot be written"),
    ],
)
def test_a_failed_start_is_one_line_and_its_own_exit_code(
    run: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: int,
    message: str,
) -> None:
    def serve(_: Settings) -> None:
        raise error

    serve_with(monkeypatch, serve)

    ended, out, err = run("serve")

    assert (ended, out) == (code, "")
    assert err.startswith(f"tapeway: {message}")
    assert err.count("\n") == 1


def test_an_unforeseen_error_names_its_kind_and_place_and_shows_no_value(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(_: Settings) -> None:
        raise RuntimeError("canary")

    serve_with(monkeypatch, serve)

    code, out, err = run("serve")

    assert (code, out) == (1, "")
    assert err.startswith("tapeway: unexpected error: RuntimeError at test_main.py:")
    assert "canary" not in err
    assert "Traceback" not in err


def test_an_output_that_takes_nothing_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "a.json"
    written.write_bytes(document.save(StoredCassette(HEAD)))
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(SystemExit) as ended:
            main(["cassette", "verify", str(written)])

        assert ended.value.code == 1
        assert capsys.readouterr().err == (
            "tapeway: the output cannot be written (No space left on device)\n"
        )


def test_an_interrupt_before_serving_is_one_line(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(_: Settings) -> None:
        raise KeyboardInterrupt

    serve_with(monkeypatch, serve)

    code, _, err = run("serve")

    assert code == 1
    assert err.strip() == "tapeway: interrupted"


def test_a_clean_stop_ends_with_0(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_with(monkeypatch, lambda _: None)

    assert run("serve")[0] == 0


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_printed(run: Callable[..., Result], flag: str) -> None:
    code, out, _ = run(flag)

    assert code == 0
    assert out.startswith("tapeway ")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["serve", "-h"], ["env", "--help"], [], ["cassette"]]
)
def test_help_goes_to_standard_output(run: Callable[..., Result], arguments: list[str]) -> None:
    code, out, err = run(*arguments)

    assert (code, err) == (0, "")
    assert out.startswith("Usage: tapeway")


def test_the_package_is_the_command_too() -> None:
    command = [sys.executable, "-m", "tapeway", "env", "--provider", "openai"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.startswith("export OPENAI_BASE_URL=")
