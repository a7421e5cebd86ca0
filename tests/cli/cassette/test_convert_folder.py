"""`tapeway cassette convert --all FOLDER`: a folder of VCR.py, brought over."""

import gzip
from pathlib import Path

import pytest

from tapeway.core.model.interaction import Interaction
from tapeway.formats.native.document import load
from tapeway.pytest_plugin.names import cassette_name
from tests.cli.invocation import KEY, cassette_text, run
from tests.formats.other_tools.example_files import text

CASSETTE = f"""interactions:
- request:
    body: '{{"q": 1}}'
    headers:
      authorization:
      - Bearer {KEY}
    method: POST
    uri: https://api.openai.com/v1/chat/completions
  response:
    body:
      string: '{{"a": 1}}'
    headers: {{}}
    status:
      code: 200
      message: OK
version: 1
"""


@pytest.fixture
def folder() -> Path:
    """The folder of a project that was recorded with pytest-recording, with two cassettes."""
    found = Path("cassettes")
    for name in ("test_x", "T.test_y[a b-1.5]"):
        file = found / "test_a" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(CASSETTE)
    return found


def written(out: str) -> list[str]:
    """The cassettes that a conversion wrote."""
    return [line.partition(": ")[0] for line in out.splitlines() if "sha256:" in line]


def answer(name: str) -> bytes:
    """The body of a cassette's only recording."""
    (item,) = load(Path(f"cassettes/{name}.json").read_bytes()).interactions
    assert isinstance(item, Interaction)
    return item.response.body


def test_each_file_becomes_the_cassette_of_its_test_in_the_same_folder(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    old = {path: path.read_bytes() for path in folder.rglob("*.yaml")}

    code, out, _ = run(capsys, "convert", "--all", "cassettes")

    assert code == 0
    assert written(out) == [
        f"file:cassettes#{cassette_name('test_a.py::T::test_y[a b-1.5]')}",
        "file:cassettes#test_a/test_x",
    ]
    assert out.count("replaced: interactions[0].request.headers.authorization") == 2
    assert {path: path.read_bytes() for path in old} == old
    assert KEY not in Path("cassettes/test_a/test_x.json").read_text()
    assert run(capsys, "ls")[0] == run(capsys, "verify")[0] == 0


def test_running_it_again_changes_nothing(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    first = run(capsys, "convert", "--all", "cassettes")
    stored = Path("cassettes/test_a/test_x.json").read_bytes()

    assert run(capsys, "convert", "--all", "cassettes") == first
    assert Path("cassettes/test_a/test_x.json").read_bytes() == stored
    old = folder / "test_a/test_x.yaml"
    old.write_text(old.read_text().replace('"a": 1', '"a": 2'))
    code, _, err = run(capsys, "convert", "--all", "cassettes")
    assert (code, "already exists" in err) == (2, True)
    assert run(capsys, "convert", "--all", "cassettes", "--force")[0] == 0
    assert answer("test_a/test_x") == b'{"a": 2}'
    assert '"a": 2' in old.read_text()


def test_the_store_may_be_another_one(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, out, _ = run(capsys, "convert", "--all", "cassettes", "--store", "sqlite:x.db")

    assert (code, "sqlite:x.db#test_a/test_x: 1 of 1" in out) == (0, True)
    assert not [*folder.rglob("*.json")]


def test_json_and_compressed_files_are_read_too(capsys: pytest.CaptureFixture[str]) -> None:
    old = Path("tests/cassettes/test_a")
    old.mkdir(parents=True)
    (old / "test_j.json").write_bytes(text("vcr_httpx.json"))
    (old / "test_z.yaml.gz").write_bytes(gzip.compress(CASSETTE.encode()))

    code, out, _ = run(capsys, "convert", "--all", "tests")

    assert (code, len(written(out))) == (0, 2)
    assert Path("cassettes/tests/test_a/test_j.json").exists()
    assert Path("cassettes/tests/test_a/test_z.json").exists()


def test_a_json_file_in_the_store_itself_gets_a_cassette_in_yaml_beside_it(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    old = folder / "test_a/test_j.json"
    old.write_bytes(text("vcr_httpx.json"))

    assert run(capsys, "convert", "--all", "cassettes")[0] == 0

    assert old.read_bytes() == text("vcr_httpx.json")
    assert old.with_suffix(".yaml").exists()
    assert run(capsys, "show", "test_a/test_j")[0] == 0


def test_what_cannot_be_read_is_named_and_the_others_are_brought_over(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    bad = folder / "test_a/test_bad.yaml"
    bad.write_text(CASSETTE.replace("method: POST", "method: !!python/name:os.system"))
    (folder / "test_a/cut.yaml.gz").write_bytes(gzip.compress(CASSETTE.encode())[:-9])
    (folder / "own.json").write_bytes(cassette_text("hello"))
    (folder / "openapi.yaml").write_text("openapi: 3.1.0\n")

    code, out, err = run(capsys, "convert", "--all", "cassettes")

    assert (code, len(written(out))) == (2, 2)
    assert "cassettes/test_a/test_bad.yaml line 7: " in err
    assert "cassettes/test_a/cut.yaml.gz" in err
    assert "cassettes/openapi.yaml: its format is not recognised" in err
    assert "own.json" not in err


def test_a_folder_without_any_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()

    assert run(capsys, "convert", "--all", "empty")[0] == 2
    code, _, err = run(capsys, "convert", "--all", "none")
    assert (code, "none: there is no such folder" in err) == (2, True)


@pytest.mark.parametrize(
    "command",
    [
        ("ls",),
        ("show", "test_a/test_x"),
        ("convert", "test_a/test_x", "b"),
        ("rm", "test_a/test_x"),
    ],
)
def test_a_command_that_meets_a_file_of_vcr_says_so_and_how_to_bring_it_over(
    capsys: pytest.CaptureFixture[str], folder: Path, command: tuple[str, ...]
) -> None:
    code, _, err = run(capsys, *command)

    assert code == 2
    assert (
        "cassettes/test_a/test_x.yaml holds recordings of VCR.py: to bring them over, run "
        "tapeway cassette convert --all cassettes\n"
    ) in err
    assert "repair" not in err
    assert (folder / "test_a/test_x.yaml").read_text() == CASSETTE
