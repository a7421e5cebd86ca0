"""The search for secrets at the end of every end-to-end test."""

from collections.abc import Iterator
from typing import Protocol

import pytest

from tests.e2e.leaks import Leaks


class Searched(Protocol):
    """What was let out, and the secrets that must not be in it."""

    def found(self) -> list[str]:
        """Where any of the secrets is seen. There must be secrets, and pages to search."""
        ...


@pytest.fixture
def leaks() -> Leaks:
    """Hands out the secrets of one test; a module whose tests share processes has its own."""
    return Leaks()


@pytest.fixture(autouse=True)
def no_secret_was_let_out(leaks: Searched) -> Iterator[None]:
    """Fails any test that lets a secret out, and any that collects nothing to search."""
    yield
    assert leaks.found() == []
