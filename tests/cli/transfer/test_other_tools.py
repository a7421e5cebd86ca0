"""Recordings of other tools, brought over and replayed by a server."""

import asyncio
import gzip
from pathlib import Path

import pytest

from tapeway.cli.transfer.folder_of_files import find
from tests.cli.invocation import KEY, run
from tests.formats.other_tools.samples import DD_APM, HTTPRR, NOCK, POLLY, RUBY, SAMPLES, Sample
from tests.process.serving import Tapeway

TYPED = ("Content-Type", "application/json")
by_file = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.file)


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(sample: Sample, folder: str = "old") -> Path:
    file = Path(folder, sample.file)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(sample.text)
    return file


@by_file
def test_a_converted_file_answers_as_its_tool_would(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, sample: Sample
) -> None:
    code, out, err = run(capsys, "convert", str(written(sample)), "new")

    count = len(sample.asked) or 1
    assert (code, f"{count} of {count + sample.left_out} interactions" in out) == (
        1 if sample.left_out else 0,
        True,
    ), err
    assert err.count("left out") == sample.left_out
    assert KEY not in Path("cassettes/new.json").read_text()
    assert KEY not in out + err
    asyncio.run(ask_all(sample, tmp_path))


async def ask_all(sample: Sample, folder: Path) -> None:
    async with Tapeway(folder, "--mode", "replay", "--cassette", "new") as tapeway:
        for response in sample.asked:
            answer = await tapeway.ask(response.target, response.body, TYPED)
            assert (answer.status, answer.body) == (response.status, response.answer), answer
            assert not answer.values(b"content-encoding")
            assert {name: answer.values(name) for name in response.fields} == response.fields
            assert len(answer.chunks) == response.chunks


def test_a_folder_of_all_of_them_is_brought_over_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for sample in SAMPLES:
        written(sample, f"old/{sample.format}")

    code, out, _ = run(capsys, "convert", "--all", "old")

    assert (code, out.count("sha256:")) == (1, len(SAMPLES))
    for sample in SAMPLES:
        stem = Path(sample.file).stem
        assert f"file:cassettes#{sample.format}/{stem}" in out
    assert run(capsys, "ls")[0] == 0


@by_file
@pytest.mark.parametrize("command", [("show",), ("convert",)])
def test_a_command_that_is_given_such_a_file_names_the_tool_and_the_command(
    capsys: pytest.CaptureFixture[str], sample: Sample, command: tuple[str, ...]
) -> None:
    file = written(sample, "cassettes")
    is_candidate = file.suffix in (".json", ".yaml", ".yml")
    argument = file.stem if is_candidate else str(file)
    if command == ("convert",) and not is_candidate:
        return

    code, _, err = run(capsys, *command, argument, *["b"] * (command == ("convert",)))

    assert code == 2
    wanted = "--all cassettes" if is_candidate else f"{file} NAME"
    assert err == (
        f"tapeway: {file} holds recordings of {sample.tool}: to bring them over, run tapeway "
        f"cassette convert {wanted}\n"
    )


def test_files_of_polly_have_the_name_of_their_folder(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("__recordings__/things_1/reads_2")
    folder.mkdir(parents=True)
    (folder / "recording.har").write_bytes(POLLY.text)

    _, out, _ = run(capsys, "convert", "--all", "__recordings__")

    assert "file:cassettes#things_1/reads_2: 4 of 4" in out


def test_compressed_files_are_read_too(capsys: pytest.CaptureFixture[str]) -> None:
    Path("old").mkdir()
    for sample in (HTTPRR, NOCK, RUBY):
        Path("old", f"{sample.file}.gz").write_bytes(gzip.compress(sample.text))

    code, out, _ = run(capsys, "convert", "--all", "old")

    assert (code, out.count("sha256:")) == (0, 3)
    assert "file:cassettes#trace: 2 of 2" in out


def test_a_file_that_holds_no_recording_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    written(DD_APM)
    Path("old/package.json").write_text('{"name": "things"}')
    Path("old/broken.json").write_text('{"interactions": [')

    code, out, err = run(capsys, "convert", "--all", "old")

    assert (code, out.count("sha256:")) == (2, 1)
    assert "old/package.json: its format is not recognised" in err
    assert "old/broken.json line 1: " in err


def test_any_file_that_begins_as_a_trace_or_a_flow_is_found(tmp_path: Path) -> None:
    for sample in SAMPLES:
        written(sample, str(tmp_path))
    (tmp_path / "notes.txt").write_text("12 of them")

    assert {files.name for files in find(tmp_path)} == {sample.file for sample in SAMPLES}


def test_all_files_of_a_folder_may_become_one_cassette(capsys: pytest.CaptureFixture[str]) -> None:
    for sample in (DD_APM, NOCK):
        written(sample)

    code, out, _ = run(capsys, "convert", "old", "one")

    assert (code, "one: 4 of 4 interactions" in out) == (0, True)
    assert run(capsys, "show", "one")[1].count("\n") == 4
    assert run(capsys, "convert", "old", "one")[:2] == (code, out)
