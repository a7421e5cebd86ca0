"""`tapeway cassette redact`: the secrets go, all else stays."""

import asyncio
import fcntl
import json
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.stores.file.store import FileStore
from tapeway.stores.sqlite import writer
from tests.cli.invocation import KEY, cassette_text, findings, run
from tests.stores.recordings import facts
from tests.support.canary import sightings

SESSION = "0123456789abcdef01234567"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A cassette with two secrets among what is none."""
    folder = tmp_path / "cassettes"
    folder.mkdir()
    file = folder / "x.json"
    file.write_bytes(
        cassette_text("hello", f"key {KEY} and {KEY} in a text with a line of its own", "bye")
    )
    return file


def test_a_secret_becomes_a_placeholder_and_all_else_stays(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    before = file.read_text()
    line = "cassettes/x.json: replaced: interactions[1].response.text: openai-key, begins with 'sk-p'\n"

    assert run(capsys, "redact") == (
        0,
        f"{line * 2}1 cassette, 3 interactions: 2 secrets replaced\n",
        "",
    )

    after = file.read_text()
    mark = after[after.index("REDACTED.") :].partition(" ")[0]
    assert after == before.replace(KEY, mark)
    assert sightings({"key": KEY}, {"file": after.encode(), "said": line.encode()}) == []
    assert findings(capsys, "scan") == (0, "", "")


def test_a_dry_run_lists_what_would_be_replaced_and_changes_nothing(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    before = facts(file)
    line = "interactions[1].response.text: openai-key, begins with 'sk-p'\n"

    code, out, err = run(capsys, "redact", "--dry-run")

    assert (code, err) == (0, "")
    assert out == (
        f"cassettes/x.json: would be replaced: {line}" * 2
        + "1 cassette, 3 interactions: 2 secrets would be replaced\n"
    )
    assert facts(file) == before
    deeds = json.loads(run(capsys, "redact", "x", "--dry-run", "--format=json")[1])
    assert [replaced["deed"] for replaced in deeds] == ["would be replaced"] * 2


def test_what_was_redacted_is_not_touched_again(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    run(capsys, "redact", "x")
    before = facts(file)

    assert findings(capsys, "redact", "x") == (0, "", "")
    assert facts(file) == before


async def test_one_secret_has_one_placeholder_in_a_cassette_and_another_in_the_next(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    other = json.loads(file.read_text()) | {"run_id": "run-2"}
    (file.parent / "y.json").write_text(json.dumps(other))

    await asyncio.to_thread(run, capsys, "redact")

    texts = {path: json.loads(path.read_text()) for path in file.parent.glob("*.json")}
    marks = [text["interactions"][1]["response"]["text"].split()[1:4:2] for text in texts.values()]
    assert all(one == same for one, same in marks)
    assert marks[0] != marks[1]
    for name in ("x", "y"):
        found = await FileStore(file.parent).load(name, writable=False)
        assert isinstance(found, StoredCassette)
        assert len(found.interactions) == 3


def test_a_cassette_that_is_recorded_into_is_refused(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    before = file.read_bytes()
    with (file.parent / ".x.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, out, err = run(capsys, "redact")

    assert (code, out) == (2, "")
    assert "records into this cassette" in err
    assert file.read_bytes() == before
    assert run(capsys, "redact")[0] == 0


def test_a_secret_that_cannot_be_replaced_is_reported_as_still_there(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    body = file.parent / "x.assets" / f"sha256-{'0' * 64}"
    body.parent.mkdir()
    body.write_bytes(KEY.encode())
    document = json.loads(file.read_text())
    reference = {"sha256": "0" * 64, "size": len(KEY)}
    document["interactions"][0]["response"] = {"status_code": 200, "body_file": reference}
    file.write_text(json.dumps(document))

    code, out, _ = run(capsys, "redact", "x")

    assert code == 1
    assert (
        "cassettes/x.json: still there: interactions[0].response.body_file: openai-key, "
        "begins with 'sk-p'\n"
    ) in out
    assert out.count("replaced: interactions[1].response.text") == 2
    assert body.read_bytes() == KEY.encode()


def test_an_unreadable_cassette_is_named_and_left_alone(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    broken = file.parent / "broken.json"
    broken.write_text('{"version": "1", "interactions": [')

    code, out, err = run(capsys, "redact")

    assert code == 2
    assert out.count("x.json: replaced") == 2
    assert "cassettes/broken.json line 1" in err
    assert broken.read_text() == '{"version": "1", "interactions": ['


def test_a_program_gets_the_outcome_of_each_secret(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    code, out, _ = run(capsys, "redact", "--format", "json")

    assert code == 0
    assert [item["deed"] for item in json.loads(out)] == ["replaced", "replaced"]


def test_where_another_process_reads_the_file_it_says_what_is_left(
    capsys: pytest.CaptureFixture[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "WIPE_MS", 20)
    assert run(capsys, "convert", "--no-redact", str(file), "sqlite:calls.db#x")[0] == 0
    assert KEY.encode() in Path("calls.db").read_bytes()
    with closing(apsw.Connection("calls.db")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM recordings").fetchall()
        code, _, err = run(capsys, "redact", "x", "--store", "sqlite:calls.db")
    assert code == 0
    assert "calls.db: what was removed may still be readable in the file or its -wal" in err
    assert "stop all processes that use the file" in err

    assert run(capsys, "ls", "--store", "sqlite:calls.db")[0] == 0
    assert not any(KEY.encode() in path.read_bytes() for path in Path().glob("calls.db*"))
