"""The command that records what tests missed."""

import os
import shlex
from collections.abc import Collection
from pathlib import Path

import pytest

_MOST_TESTS = 10
"""A run of more tests is all tests: in mode auto only what is missing costs anything."""


class RecordCommand:
    """Makes the command for tests; a command that tapeway has been told already holds for all."""

    def __init__(self, config: pytest.Config, configured: str | None) -> None:
        self._root = config.rootpath
        self._folder = config.invocation_params.dir
        self._configured = configured

    def of(self, node_ids: Collection[str] = ()) -> str:
        """The command that records what these tests missed, from the folder of this run."""
        if self._configured is not None:
            return self._configured
        named = map(self._argument, node_ids) if len(node_ids) <= _MOST_TESTS else ()
        return shlex.join(["pytest", "--tapeway=auto", *named])

    def _argument(self, node_id: str) -> str:
        """A test as an argument: node ids begin at pytest's root, and arguments at the folder."""
        file, colons, rest = node_id.partition("::")
        path = Path(os.path.relpath(self._root / file, self._folder)).as_posix()
        return f"{path}{colons}{rest}"
