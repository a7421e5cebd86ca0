"""Which files of a folder are brought over, and which test each of them belongs to."""

from pathlib import Path

import pytest

from tapeway.cli.transfer import folder_of_files
from tapeway.cli.transfer.endpoints import FormatFile
from tapeway.formats.registry import VCR
from tapeway.pytest_plugin.names import cassette_name


def name_of(file: str, folder: str, root: Path) -> str:
    (found,) = folder_of_files.named([FormatFile(str(root / file), VCR)], root / folder, root)
    return found.name


@pytest.mark.parametrize(
    ("file", "node_id"),
    [
        ("cassettes/test_a/test_x.yaml", "test_a.py::test_x"),
        ("tests/cassettes/test_a/test_x.yml", "tests/test_a.py::test_x"),
        ("tests/api/cassettes/test_a/TestT.test_x.json", "tests/api/test_a.py::TestT::test_x"),
        ("tests/cassettes/test_a/test_x[1.5].yaml", "tests/test_a.py::test_x[1.5]"),
        ("tests/cassettes/test_a/test_x[gpt-4.1-a b].yaml", "tests/test_a.py::test_x[gpt-4.1-a b]"),
        ("tests/cassettes/test_a/test_x[[]].yaml", "tests/test_a.py::test_x[[]]"),
        ("cassettes/test_a/test_x.yaml.gz", "test_a.py::test_x"),
    ],
)
def test_a_file_gets_the_name_that_the_plugin_gives_to_its_test(
    tmp_path: Path, file: str, node_id: str
) -> None:
    for folder in (file.partition("/")[0], file.partition("cassettes/")[0] + "cassettes", "."):
        assert name_of(file, folder, tmp_path) == cassette_name(node_id)


def test_the_folder_may_have_any_name(tmp_path: Path) -> None:
    file = "tests/vcr_files/test_a/test_x[a b].yaml"

    assert name_of(file, "tests/vcr_files", tmp_path) == cassette_name(
        "tests/test_a.py::test_x[a b]"
    )


def test_a_folder_outside_the_project_has_the_names_of_its_own_tree(tmp_path: Path) -> None:
    file = tmp_path / "old/cassettes/test_a/test_x.yaml"

    (found,) = folder_of_files.named(
        [FormatFile(str(file), VCR)], tmp_path / "old/cassettes", tmp_path / "project"
    )

    assert found.name == "test_a/test_x"


def test_one_folder_above_all_tests_belongs_to_the_modules_there_are(tmp_path: Path) -> None:
    tmp_path.joinpath("test_a.py").touch()

    assert name_of("tests/cassettes/test_a/test_x.yaml", "tests", tmp_path) == "test_a/test_x"
    assert name_of("tests/cassettes/test_b/test_x.yaml", "tests", tmp_path) == "tests/test_b/test_x"


def test_names_that_differ_in_case_alone_get_digits_as_in_the_plugin(tmp_path: Path) -> None:
    files = [f"cassettes/test_a/test_x[{character}].yaml" for character in "aA"]

    found = folder_of_files.named(
        [FormatFile(str(tmp_path / file), VCR) for file in files], tmp_path / "cassettes", tmp_path
    )

    assert len({named.name.lower() for named in found}) == 2


def test_files_are_found_in_nested_folders_but_not_in_hidden_ones(tmp_path: Path) -> None:
    wanted = ["a.yaml", "b/c d[1].yml", "b/d/e.json", "f.yaml.gz"]
    for path in (*wanted, ".git/x.yaml", ".hidden.yaml", "notes.txt"):
        tmp_path.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
        tmp_path.joinpath(path).touch()

    assert folder_of_files.find(tmp_path) == [tmp_path / path for path in wanted]
