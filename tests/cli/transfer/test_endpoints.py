"""A file of another tool is there whole or not at all, and never in the place of another unasked."""

import os
from pathlib import Path

import pytest

from tapeway.cli.transfer import endpoints
from tapeway.errors import ConfigError, StoreError


def _no_links(source: Path, target: Path) -> None:
    raise PermissionError("no hard links here")


def nothing(text: bytes) -> None:
    """Everything is as it should be."""


@pytest.mark.parametrize("links", [True, False])
def test_a_file_created_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", _no_links)
    file = tmp_path / "a.har"
    file.write_bytes(b"mine")

    with pytest.raises(ConfigError, match="already exists"):
        endpoints.write_file(file, b"yours", nothing, force=False)

    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"mine"]
    endpoints.write_file(tmp_path / "b.har", b"mine", nothing, force=False)
    assert (tmp_path / "b.har").read_bytes() == b"mine"
    (tmp_path / "b.har").unlink()
    endpoints.write_file(file, b"yours", nothing, force=True)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"yours"]


@pytest.mark.parametrize("force", [True, False])
def test_nothing_is_written_if_the_check_fails(tmp_path: Path, *, force: bool) -> None:
    def refuse(text: bytes) -> None:
        assert text == b"text"
        raise StoreError("no")

    with pytest.raises(StoreError, match="no"):
        endpoints.write_file(tmp_path / "a.har", b"text", refuse, force=force)

    assert list(tmp_path.iterdir()) == []


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    endpoints.write_file(tmp_path / "a.har", b"text", nothing, force=False)

    assert (tmp_path / "a.har").stat().st_mode & 0o777 == 0o600
