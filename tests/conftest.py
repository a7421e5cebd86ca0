"""What every test session shares."""

import asyncio
import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from tests.stores.contract import matrix
from tests.stores.postgres_server import PostgresServer, running

# No deadline: a busy machine is not a fault of the code.
settings.register_profile("tapeway", deadline=None)
settings.load_profile("tapeway")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server of our own, which may be stopped; it runs again when a test is over."""
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_dsn(request: pytest.FixtureRequest) -> str:
    """Where tests find a database: that of `TAPEWAY_TEST_POSTGRES_DSN`, or of our own server."""
    if given := os.environ.get("TAPEWAY_TEST_POSTGRES_DSN"):
        return given
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.dsn


def pytest_configure() -> None:
    """Let nobody get an event loop by asking for one, as from Python 3.14 on.

    Before, pytest-asyncio gets a new one by asking, and a test that calls asyncio.run() leaves it
    behind unclosed: a warning, and so a failure, in whichever test the collector runs.
    """
    asyncio.set_event_loop(None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write out the half characters in what a test logged: workers can pass on UTF-8 alone."""
    report = yield
    report.sections = [
        (title, text.encode("utf-8", "backslashreplace").decode("utf-8"))
        for title, text in report.sections
    ]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which store was shown to keep which promise, wherever the tests have run."""
    reports = [
        each
        for found in terminalreporter.stats.values()
        for each in found
        if isinstance(each, pytest.TestReport)
    ]
    if found := list(matrix.results(reports)):
        terminalreporter.section("what each store was shown to keep")
        for line in matrix.lines(found):
            terminalreporter.line(line)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the shape of the code first: what it reports explains failures further down."""
    items.sort(key=lambda item: item.path.name != "test_import_direction.py")
