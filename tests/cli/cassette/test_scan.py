"""`tapeway cassette scan`, as people and hooks run it."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from tapeway.formats.native.document import encode, write
from tapeway.stores.file.store import FileStore
from tests.cli.full_cassette import NAME, everything
from tests.cli.invocation import KEY, cassette_text, findings, run_tapeway
from tests.stores.recordings import HEAD, record, recording
from tests.support.exchanges import interaction

LEAK = "interactions[1].response.text: openai-key, begins with 'sk-p'"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return run_tapeway(capsys, "cassette", "scan", *arguments)


def found(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return findings(capsys, "scan", *arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with a clean cassette and one that leaks."""
    cassettes = tmp_path / "cassettes"
    (cassettes / "suite").mkdir(parents=True)
    (cassettes / "clean.json").write_bytes(cassette_text("hello"))
    (cassettes / "suite" / "leaky.json").write_bytes(cassette_text("hello", f"key {KEY}"))
    return cassettes


@pytest.mark.parametrize(
    "named",
    [
        (),
        ("suite/leaky",),
        ("clean", "suite/leaky"),
        ("cassettes",),
        ("cassettes/suite/leaky.json",),
    ],
)
def test_a_secret_is_reported_with_file_place_and_kind(
    capsys: pytest.CaptureFixture[str], folder: Path, named: tuple[str, ...]
) -> None:
    assert found(capsys, *named) == (1, f"cassettes/suite/leaky.json: {LEAK}\n", "")


@pytest.mark.parametrize("named", ["clean", "cassettes/clean.json"])
def test_a_clean_cassette_has_no_findings(
    capsys: pytest.CaptureFixture[str], folder: Path, named: str
) -> None:
    assert run(capsys, named) == (0, "1 cassette, 1 interaction: no secret\n", "")


def test_the_last_line_says_what_was_searched(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    said = "2 cassettes, 3 interactions: 1 secret found"
    assert run(capsys)[1].splitlines()[1:] == [said]
    (folder / "broken.json").write_text('{"version": "1", "interactions": [')
    assert run(capsys)[1].splitlines()[1:] == [said.replace(": ", ", 1 not read: ")]
    assert run(capsys, "cassettes/broken.json")[:2] == (2, "")
    (folder / "notes.json").write_text("{}")
    assert run(capsys, "cassettes/notes.json")[:2] == (0, "nothing to search\n")


def test_large_bodies_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(everything())

    assert run(capsys, NAME) == (0, "1 cassette, 7 interactions, 1 large body: no secret\n", "")


def test_a_program_gets_one_list(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, out, _ = run(capsys, "--format", "json")

    assert code == 1
    assert json.loads(out) == [
        {
            "file": "cassettes/suite/leaky.json",
            "interaction": 1,
            "place": "interactions[1].response.text",
            "kind": "openai-key",
            "prefix": "sk-p",
            "deed": "found",
        }
    ]
    assert run(capsys, "clean", "--format", "json") == (0, "[]\n", "")


def test_another_store_is_scanned_if_an_option_names_it(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.parent / "elsewhere").mkdir()
    (folder / "suite" / "leaky.json").rename(folder.parent / "elsewhere" / "x.json")

    assert found(capsys) == (0, "", "")
    assert found(capsys, "--store", "elsewhere") == (1, f"elsewhere/x.json: {LEAK}\n", "")
    monkeypatch.setenv("TAPEWAY_STORE", "file:elsewhere")
    assert found(capsys, "x") == (1, f"elsewhere/x.json: {LEAK}\n", "")
    assert run(capsys, "--store", "memory:")[0] == 2


def test_credentials_of_environment_and_options_are_found(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "clean.json").write_bytes(cassette_text("corr-4f6b2c9d8e1a", "an-4f6b2c9d8e1a73"))
    assert run(capsys, "clean")[0] == 0

    monkeypatch.setenv("MY_API_KEY", "corr-4f6b2c9d8e1a")
    monkeypatch.setenv("TAPEWAY_ADMIN_TOKEN", "an-4f6b2c9d8e1a73")
    code, out, _ = run(capsys, "clean")

    assert code == 1
    assert "interactions[0].response.text: my-api-key, begins with 'corr'" in out
    assert "interactions[1].response.text: " in out


def test_the_head_of_a_cassette_is_scanned(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "clean.json").write_bytes(cassette_text(meta={"note": [KEY]}))

    assert run(capsys, "clean")[1].startswith("cassettes/clean.json: meta.note[0]: openai-key")


async def test_journal_and_large_bodies_are_scanned(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store = FileStore(tmp_path / "cassettes")
    await store.open()
    await record(store, 0)
    await store.append("x", HEAD, recording(1, body=f'{{"a": "{KEY}"}}'.encode()))
    file = await store.keep("large", [b"x " * 1_000_000, KEY.encode(), b" end"])
    try:
        assert (await asyncio.to_thread(found, capsys, "x"))[1] == (
            "cassettes/x.json: interactions[1].response.json.a: openai-key, begins with 'sk-p'\n"
        )
        beside = f"cassettes/large.assets/sha256-{file.digest}"
        code, out, _ = await asyncio.to_thread(found, capsys, beside)
        assert (code, out) == (1, f"{beside}: openai-key, begins with 'sk-p'\n")
    finally:
        await store.close()


def test_files_that_are_no_cassettes_are_skipped_or_refused(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "package.json").write_text("{}")
    (folder / "notes.txt").write_text(KEY)
    files = ("cassettes/package.json", "cassettes/notes.txt")

    assert found(capsys, *files) == (
        0,
        "",
        "".join([f"tapeway: {file} is no cassette: passed over\n" for file in files]),
    )
    assert run(capsys, "--strict", files[0]) == (2, "", f"tapeway: {files[0]} is no cassette\n")
    assert run(capsys)[0] == 1


def test_a_file_that_cannot_be_read_is_not_called_clean(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "broken.json").write_text('{"version": "1", "interactions": [')
    (folder / "odd name.json").write_bytes(cassette_text("x"))

    code, out, err = found(capsys)
    assert (code, out) == (2, f"cassettes/suite/leaky.json: {LEAK}\n")
    assert "cassettes/broken.json line 1" in err
    assert run(capsys, "cassettes/odd name.json")[0] == 2
    assert run(capsys, "nowhere")[0] == 2
    assert run(capsys, "no/such/file.json")[0] == 2
    assert run(capsys, "../x")[0] == 2
    assert run(capsys, "--format", "yaml")[0] == 2


def test_a_name_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    body = b'{"\\u001b[2J\\n": {"password": "correct-horse"}}'
    document = encode(interaction(request_body=body))
    (folder / "clean.json").write_bytes(write(HEAD, [document]))

    code, out, _ = found(capsys, "clean")

    assert code == 1
    assert out == (
        "cassettes/clean.json: interactions[0].request.json.\\u001b[2J\\u000a.password: "
        "password, begins with 'cor'\n"
    )


TAUGHT = "Zq7TnV4mXc9LpR2sWk8HdY3b"


def test_what_one_interaction_teaches_is_found_in_those_before_and_behind_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "cassettes"
    folder.mkdir()
    texts = (f"use {TAUGHT} now", f"HF_TOKEN={TAUGHT}", f"was {TAUGHT} right?")
    (folder / "x.json").write_bytes(cassette_text(*texts))

    code, out, _ = found(capsys)

    assert code == 1
    assert [line.split(": ")[1] for line in out.splitlines()] == [
        f"interactions[{number}].response.text" for number in range(3)
    ]
    assert run_tapeway(capsys, "cassette", "redact")[0] == 0
    assert TAUGHT not in (folder / "x.json").read_text()
    assert found(capsys)[0] == 0


def test_what_the_configuration_allows_is_no_finding(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder.parent / "tapeway.toml").write_text(f'not_secret = ["{KEY[:9]}*"]\n')

    stored = (folder / "suite" / "leaky.json").read_bytes()

    assert found(capsys, "cassettes") == (0, "", "")
    assert run_tapeway(capsys, "cassette", "redact", "cassettes")[0] == 0
    assert (folder / "suite" / "leaky.json").read_bytes() == stored
    for url in ("sqlite:all.db", "file:copies"):
        assert run_tapeway(capsys, "cassette", "convert", "--all", "cassettes", url)[0] == 0
        assert run_tapeway(capsys, "cassette", "redact", "--store", url)[0] == 0
        assert run(capsys, "--store", url)[:2] == (0, "2 cassettes, 3 interactions: no secret\n")
        shown = run_tapeway(capsys, "cassette", "show", "suite/leaky", "1", "--store", url)[1]
        assert KEY in shown


def test_what_the_configuration_allows_is_no_finding_in_the_history(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    def git(*arguments: str) -> None:
        author = ("-c", "user.name=a", "-c", "user.email=a@a.example")
        subprocess.run(["git", *author, *arguments], check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "add")

    assert run(capsys, "--history")[0] == 1
    (folder.parent / "tapeway.toml").write_text('not_secret = ["OpenAI-Key"]\n')
    assert run(capsys, "--history")[0] == 0


def test_a_pattern_that_would_allow_nearly_all_is_refused(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder.parent / "tapeway.toml").write_text('not_secret = ["*k*"]\n')
    code, _, errors = run(capsys, "cassettes")

    assert code == 2
    assert (
        "tapeway.toml, line 1: not_secret: '*k*' would allow too much; write 4 characters" in errors
    )
