"""Commands on cassettes in YAML, by name, by file and by folder."""

import re
from pathlib import Path

import pytest

from tapeway.cli.cassette_arguments import open_cassette
from tapeway.formats.cassette_file import JSON, YAML
from tapeway.stores.sqlite.store import SqliteStore
from tests.cli.invocation import KEY, cassette_text, findings, run, run_tapeway, written
from tests.support.exchanges import interaction

LEAK = "interactions[1].response.text: openai-key, begins with 'sk-p'"


@pytest.fixture(params=["leaky.yaml", "leaky.yml"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A cassette that leaks, in a folder that is no store of anything else."""
    (tmp_path / "cassettes").mkdir()
    path = tmp_path / "cassettes" / str(request.param)
    path.write_bytes(YAML.save(JSON.load(cassette_text("hello", f"key {KEY}\nand so on"))))
    return path


@pytest.mark.parametrize("named", [(), ("leaky",), ("cassettes",), ("FILE",)])
def test_a_secret_is_found_and_replaced(
    capsys: pytest.CaptureFixture[str], file: Path, named: tuple[str, ...]
) -> None:
    shown = f"cassettes/{file.name}"
    arguments = [shown if argument == "FILE" else argument for argument in named]

    code, out, _ = findings(capsys, "scan", *arguments)
    assert (code, out) == (1, f"{shown}: {LEAK}\n")

    assert run(capsys, "redact", *arguments)[0] == 0
    assert findings(capsys, "scan", *arguments) == (0, "", "")
    assert KEY not in file.read_text()
    assert "      text: hello\n" in file.read_text()
    assert [path.name for path in file.parent.iterdir() if path.suffix == ".json"] == []


@pytest.mark.parametrize(
    "text",
    [
        "services:\n  web: {}\n",
        "interactions:\n- request: {method: GET}\n  response: {}\nversion: 1\n",
    ],
)
def test_other_tools_files_are_skipped_or_refused(
    capsys: pytest.CaptureFixture[str], file: Path, text: str
) -> None:
    other = file.with_name("other.yaml")
    other.write_text(text)

    note = "tapeway: cassettes/other.yaml is no cassette: passed over\n"
    assert run(capsys, "scan", "cassettes/other.yaml") == (0, "nothing to search\n", note)
    assert run(capsys, "scan", "--strict", "cassettes/other.yaml")[0] == 2


def test_a_cassette_with_two_files_is_not_called_clean(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    file.with_suffix(".json").write_bytes(cassette_text("hello"))

    code, _, err = run(capsys, "scan")

    assert code == 2
    assert "are both there" in err


async def test_a_file_named_on_the_command_line_is_the_cassette_it_holds(file: Path) -> None:
    async with open_cassette(f"cassettes/{file.name}", "memory:") as found:
        assert len((await found.load()).interactions) == 2


@pytest.mark.parametrize("store", ["./nope", "file:nope", "nope?format=yaml", "sqlite:nope"])
@pytest.mark.parametrize("command", ["ls", "verify", "scan", "redact", "convert"])
def test_a_store_that_is_not_there_is_not_taken_for_an_empty_one(
    capsys: pytest.CaptureFixture[str], command: str, store: str
) -> None:
    given = ("--all", store, "memory:") if command == "convert" else ("--store", store)

    code, out, err = run(capsys, command, *given)

    assert (code, out) == (2, "")
    assert re.fullmatch(r"tapeway: there is no store .*nope.*: nope does not exist; .*\n", err)
    assert not Path("nope").exists()


@pytest.mark.parametrize("command", ["ls", "verify", "scan", "redact"])
def test_a_store_that_is_empty_has_nothing_wrong(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    Path("there").mkdir()

    assert run(capsys, command, "--store", "there")[0] == 0


@pytest.mark.parametrize("command", [("show", "leeky"), ("diff", "leeky", "leaky")])
def test_a_cassette_that_does_not_exist_is_named_with_those_that_come_near(
    capsys: pytest.CaptureFixture[str], file: Path, command: tuple[str, ...]
) -> None:
    found = run(capsys, *command)

    said = "tapeway: there is no cassette leeky in file:cassettes; is leaky meant?\n"
    assert (file.exists(), found) == (True, (2, "", said))


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "cassettes/leaky.json"),
        ("show", "no/such/file.yaml"),
        ("verify", "cassettes/leaky.json"),
        ("diff", "cassettes/leaky.json", "sqlite:x.db#leaky"),
        ("mv", "cassettes/leaky.json", "cassettes/new.json"),
        ("prune", "cassettes/leaky.json", "--keep-last=1"),
        ("scan", "cassettes/leaky.json"),
        ("scan", "cassettes"),
        ("redact", "cassettes/leaky.json"),
        ("convert", "cassettes/leaky.json", "cassettes/new.har"),
    ],
)
def test_a_store_beside_a_file_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    written("leaky", interaction())

    code, out, err = run(capsys, *arguments, "--store", "sqlite:other.db")

    said = f"tapeway: --store is not used, because the argument names a file: {arguments[1]}. "
    assert (code, out) == (2, "")
    assert err.startswith(said)
    assert not Path("cassettes/new.har").exists()


def test_doctor_refuses_a_store_beside_files_too(capsys: pytest.CaptureFixture[str]) -> None:
    written("leaky", interaction())
    files = ("cassettes/leaky.json", "cassettes/leaky.json")

    code, _, err = run_tapeway(capsys, "doctor", *files, "--store", "elsewhere")

    assert (code, "--store is not used" in err) == (2, True)
    assert run_tapeway(capsys, "doctor", "leaky", files[0], "--store", "cassettes")[0] == 0


def test_a_store_beside_two_others_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "convert", "--all", "a", "b", "--store", "here")[0] == 2


@pytest.mark.parametrize(
    "arguments",
    [("diff", "leaky", "cassettes/leaky.json"), ("convert", "leaky", "new.har"), ("verify",)],
)
def test_a_store_beside_a_name_is_asked(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
) -> None:
    written("leaky", interaction())

    assert run(capsys, *arguments, "--store", "cassettes")[0] == 0
    # What is set for all commands is no word about this one.
    monkeypatch.setenv("TAPEWAY_STORE", "elsewhere")
    assert run(capsys, "verify", "cassettes/leaky.json")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("scan",),
        ("scan", "a", "b", "sqlite:calls.db#c"),
        ("verify",),
        ("verify", "a", "b"),
        ("redact",),
        ("redact", "--dry-run"),
        ("prune", "--keep-last", "1", "a", "b"),
        ("ls",),
        ("rm", "a", "b", "c"),
    ],
    ids=" ".join,
)
def test_a_command_opens_a_database_once(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.json").write_bytes(cassette_text("hello", "bye"))
    for name in "abc":
        assert run(capsys, "convert", "one.json", f"sqlite:calls.db#{name}")[0] == 0
    opened: list[str] = []
    open_it = SqliteStore.open

    async def count(self: SqliteStore) -> None:
        opened.append(self.url)
        await open_it(self)

    monkeypatch.setattr(SqliteStore, "open", count)
    code, _, err = run(capsys, arguments[0], "--store", "sqlite:calls.db", *arguments[1:])

    assert (code, err) == (0, "")
    assert opened == ["sqlite:calls.db"]
