"""The tests of a project give their files names that the path alone does not tell."""

from pathlib import Path

import pytest

from tapeway.cli.transfer import folder_of_files
from tapeway.cli.transfer.endpoints import FormatFile
from tapeway.formats.registry import VCR
from tapeway.pytest_plugin.names import cassette_name

TESTS = """
import pytest

@pytest.mark.parametrize("model", ["openai/gpt-4", "a-b", "\\u00e9"])
def test_ask(model): ...

class TestOuter:
    class TestInner:
        def test_ask(self): ...

class Base:
    def test_shared(self): ...

class TestOne(Base): ...
"""
FILES = {
    "cassettes/test_a/test_ask[openai-gpt-4].yaml": "tests/test_a.py::test_ask[openai/gpt-4]",
    "cassettes/test_a/test_ask[a-b].yaml": "tests/test_a.py::test_ask[a-b]",
    "cassettes/test_a/test_ask[-xe9].yaml": r"tests/test_a.py::test_ask[\xe9]",
    "cassettes/test_a/TestInner.test_ask.yaml": "tests/test_a.py::TestOuter::TestInner::test_ask",
    "cassettes/test_a/TestOne.test_shared.yaml": "tests/test_a.py::TestOne::test_shared",
    # As pytest-vcr keeps it.
    "cassettes/TestOne.test_shared.yaml": "tests/test_a.py::TestOne::test_shared",
    # A test that is gone.
    "cassettes/test_a/test_old[x-y].yaml": "tests/test_a.py::test_old[x-y]",
}


def test_a_file_belongs_to_the_test_that_pytest_collects_for_it(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -v\n")
    (tests / "test_a.py").write_text(TESTS, "utf-8")
    sources = [FormatFile(str(tests / file), VCR) for file in FILES]

    found = folder_of_files.named(sources, tests, tmp_path)

    assert {Path(files.shown).relative_to(tests).as_posix(): files.name for files in found} == {
        file: cassette_name(node_id) for file, node_id in FILES.items()
    }


MARKED = """
import pytest

@pytest.mark.vcr
@pytest.mark.default_cassette("shared.yaml")
def test_one(): ...

@pytest.mark.vcr
@pytest.mark.default_cassette("shared.yaml")
def test_two(): ...

@pytest.mark.vcr("extra.yaml", "../common/login.yaml")
def test_three(): ...

@pytest.mark.vcr
def test_four(): ...
"""


def test_the_cassettes_that_markers_name_become_those_of_their_tests(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_m.py").write_text(MARKED)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    vcr\n    default_cassette\n")
    files = [
        "cassettes/test_m/shared.yaml",
        "cassettes/test_m/test_three.yaml",
        "cassettes/test_m/extra.yaml",
        "cassettes/common/login.yaml",
        "cassettes/test_m/test_four.yaml",
        "cassettes/test_m/left_over.yaml",
    ]

    found = folder_of_files.named(
        [FormatFile(str(tests / file), VCR) for file in files], tests, tmp_path
    )

    assert {named.name: [Path(one.shown).name for one in named.sources] for named in found} == {
        "tests/test_m/test_one": ["shared.yaml"],
        "tests/test_m/test_two": ["shared.yaml"],
        "tests/test_m/test_three": ["test_three.yaml", "extra.yaml", "login.yaml"],
        "tests/test_m/test_four": ["test_four.yaml"],
        "tests/test_m/left_over": ["left_over.yaml"],
    }


CLIENT = """
import pytest
from openai import OpenAI

client = OpenAI()

@pytest.mark.parametrize("model", ["openai/gpt-4"])
def test_ask(model): ...
"""


def test_a_module_that_builds_a_client_is_collected_without_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_a.py").write_text(CLIENT)
    source = FormatFile(str(tmp_path / "cassettes/test_a/test_ask[openai-gpt-4].yaml"), VCR)

    (found,) = folder_of_files.named([source], tmp_path, tmp_path)

    assert found.name == cassette_name("test_a.py::test_ask[openai/gpt-4]")


def test_a_module_that_pytest_cannot_import_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_good.py").write_text("def test_it(): ...\n")
    (tmp_path / "test_bad.py").write_text("import no_such_module\n")
    source = FormatFile(str(tmp_path / "cassettes/test_bad/test_ask[a-b].yaml"), VCR)

    folder_of_files.named([source], tmp_path, tmp_path)

    assert "pytest --collect-only fails at test_bad.py" in capsys.readouterr().err
