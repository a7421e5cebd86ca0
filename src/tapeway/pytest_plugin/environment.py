"""The variables that a test run sets for its clients, and their values before."""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Self

Values = Mapping[str, str | None]
"""Values of variables; None for a variable that is not set."""


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """The same variables as they were, and as they lead clients to the proxy."""

    before: Values
    changed: Values

    @classmethod
    def of(cls, changed: Mapping[str, str]) -> Self:
        """Set variables."""
        before = {name: os.environ.get(name) for name in changed}
        os.environ.update(changed)
        return cls(before, changed)

    def restore(self) -> None:
        """Give each variable its value of before."""
        for name, value in self.before.items():
            _set(name, value)

    def without(self) -> AbstractContextManager[None]:
        """A block in which variables are as before, but those that somebody else changed since."""
        return _exchanged(self.changed, self.before)

    def within(self) -> AbstractContextManager[None]:
        """A block inside `without` in which variables lead to the proxy."""
        return _exchanged(self.before, self.changed)


@contextmanager
def _exchanged(here: Values, inside: Values) -> Iterator[None]:
    names = [name for name, value in here.items() if os.environ.get(name) == value]
    for name in names:
        _set(name, inside[name])
    try:
        yield
    finally:
        for name in names:
            if os.environ.get(name) == inside[name]:
                _set(name, here[name])


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
