"""What end-to-end tests share: takes that are recorded once, and the search for secrets."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Protocol

import pytest

from tests.clients.end_to_end.leaks import Leaks
from tests.clients.end_to_end.recorded_run import RecordedRun, taken


class Searched(Protocol):
    """What was let out, and the secrets that must not be in it."""

    def found(self) -> list[str]:
        """Where any of the secrets is seen. There must be secrets, and pages to search."""
        ...


@pytest.fixture(scope="module")
def takes(
    request: pytest.FixtureRequest, one_certificate: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], RecordedRun]]:
    """Records and replays what the module has in RUNS for a route, when it is first asked for."""
    runs = request.module.RUNS
    with ExitStack() as stack:

        @cache
        def take_of(route: str) -> RecordedRun:
            return stack.enter_context(taken(tmp_path_factory.mktemp(route), route, runs[route]))

        yield take_of


@pytest.fixture
def take(takes: Callable[[str], RecordedRun], route: str) -> RecordedRun:
    """The take of the route that the test is about."""
    return takes(route)


@pytest.fixture
def leaks() -> Leaks:
    """Hands out the secrets of one test; a module whose tests share processes has its own."""
    return Leaks()


@pytest.fixture(autouse=True)
def no_secret_was_let_out(leaks: Searched) -> Iterator[None]:
    """Fails any test that lets a secret out, and any that collects nothing to search."""
    yield
    assert leaks.found() == []
