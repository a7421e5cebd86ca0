"""What every test session shares."""

import asyncio
import gc
import os
import random
import signal
from collections.abc import Generator, Iterator

import pytest
import trustme

from tests.stores import rotation
from tests.stores.contract import matrix
from tests.stores.postgres_server import PostgresServer, running
from tests.support import fork_server, thoroughness
from tests.support.forked_proxies import forked_proxies as forked_proxies


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


@pytest.fixture(scope="module")
def one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Client packages trust this one: to load all of the world's takes longer than their calls."""
    path = tmp_path_factory.mktemp("certificates") / "one.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(path))
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all",
        action="store_true",
        dest="everything",
        help="run slow tests too, slow matrices in full, and draw more random cases from a fresh seed",
    )


def pytest_configure(config: pytest.Config) -> None:
    thoroughness.choose(everything=config.getoption("everything"))
    # Let nobody get an event loop by asking for one, as from Python 3.14 on. Before, pytest-asyncio
    # gets a new one by asking, and a test that calls asyncio.run() leaves it behind unclosed: a
    # warning, and so a failure, in whichever test the collector runs.
    asyncio.set_event_loop(None)
    _hand_on_no_ignored_hangup()


def _hand_on_no_ignored_hangup() -> None:
    # A process started under nohup ignores SIGHUP, and tapeway keeps to that. A signal that is
    # handled, if by doing nothing, is not ignored in the processes that tests start.
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_sessionstart() -> None:
    """Make no search of the garbage collector through what collecting the tests makes: it stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over all of it from now on."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let a test draw the same numbers in every run, whatever ran before it."""
    if not thoroughness.runs_everything():
        random.seed(item.nodeid)


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
    if found := _contract_results(terminalreporter):
        terminalreporter.section("what each store was shown to keep")
        for line in matrix.lines(found):
            terminalreporter.line(line)
        if _fails_the_run(terminalreporter.config, found):
            terminalreporter.line("a hole fails a run of the whole contract", red=True)


def pytest_unconfigure() -> None:
    fork_server.stop()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of the whole store contract in which a promise was not shown."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if (
        session.exitstatus == pytest.ExitCode.OK
        and reporter is not None
        and _fails_the_run(session.config, _contract_results(reporter))
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _contract_results(reporter: pytest.TerminalReporter) -> list[matrix.Result]:
    reports = [
        report
        for found in reporter.stats.values()
        for report in found
        if isinstance(report, pytest.TestReport)
    ]
    return list(matrix.results(reports))


def _fails_the_run(config: pytest.Config, found: list[matrix.Result]) -> bool:
    return matrix.is_whole(config) and bool(matrix.holes(found))


def _names_tests(config: pytest.Config) -> bool:
    """Whether the command line says which tests to run."""
    return (
        config.args_source is not pytest.Config.ArgsSource.TESTPATHS
        or bool(config.option.keyword)
        or bool(config.option.markexpr)
    )


def _marks(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow or needs another environment, and run the shape of the code first."""
    if not (thoroughness.runs_everything() or _names_tests(config)):
        rotation.sample(config, items)
        left_out = [item for item in items if {"slow", "elsewhere"} & _marks(item)]
        items[:] = [item for item in items if not {"slow", "elsewhere"} & _marks(item)]
        config.hook.pytest_deselected(items=left_out)
    items.sort(key=lambda item: item.path.name != "test_import_direction.py")
