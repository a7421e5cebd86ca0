"""Commands run in an empty folder, without options from outside, and leave logging as it was."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.logging_state import logging_restored


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("TAPEWAY_"):
            monkeypatch.delenv(name)
    with logging_restored():
        yield
