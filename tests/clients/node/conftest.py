"""What the tests of packages/node are made with."""

from functools import partial
from pathlib import Path

import pytest

from tests.clients.node.npm_project import (
    Projects,
    link_packages,
    make_project,
    skip_unless_installed,
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What npm installs is in another environment."""
    for item in items:
        if "workshop" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.elsewhere)


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose subfolders can import all packages."""
    skip_unless_installed()
    folder = tmp_path_factory.mktemp("node")
    link_packages(folder)
    return folder


@pytest.fixture
def project(workshop: Path) -> Projects:
    """Makes fresh copies of programs, by name."""
    return partial(make_project, workshop)
