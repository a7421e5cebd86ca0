"""Each test of the plugin has the plugin of one of the two packages; under `--all` it has each."""

from zlib import crc32

import pytest

from tests.pytest_plugin import inner
from tests.support.thoroughness import runs_everything


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    turn = crc32(metafunc.definition.nodeid.encode()) % len(inner.PACKAGES)
    chosen = inner.PACKAGES if runs_everything() else inner.PACKAGES[turn:][:1]
    metafunc.parametrize("plugin_package", chosen, indirect=True)


@pytest.fixture(autouse=True)
def plugin_package(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The package whose plugin inner runs of pytest have."""
    monkeypatch.setattr(inner, "package", request.param)
    return str(request.param)
