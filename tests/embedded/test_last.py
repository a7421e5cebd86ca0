"""The report that every run leaves: where it is, and that no repository takes it."""

from pathlib import Path

from tapeway.embedded.last import last_url, own_folder, write_last


def test_its_folder_is_one_that_git_ignores(tmp_path: Path) -> None:
    write_last(tmp_path, "é")

    assert (tmp_path / ".tapeway/last.html").read_bytes() == "é".encode()
    assert (tmp_path / ".tapeway/.gitignore").read_text() == "*\n"
    assert last_url(tmp_path) == f"{tmp_path.as_uri()}/.tapeway/last.html"


def test_what_a_user_lets_git_see_there_stays(tmp_path: Path) -> None:
    (own_folder(tmp_path) / ".gitignore").write_text("last.html\n")

    write_last(tmp_path, "again")

    assert (tmp_path / ".tapeway/.gitignore").read_text() == "last.html\n"
