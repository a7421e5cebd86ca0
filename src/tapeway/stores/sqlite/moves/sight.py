"""The file of the recordings, attached to a connection of the shared file."""

import os
from collections.abc import Callable
from math import inf
from pathlib import Path

import apsw

from tapeway.stores.sqlite.location import StoreLocation
from tapeway.stores.sqlite.operations import RECORDINGS

EXAMINE_S = 0.05
"""How long replays of what is remembered go on after the file was replaced."""


class RecordingsInSight:
    """The recordings file attached to a connection, while the path still leads to it."""

    def __init__(
        self,
        location: StoreLocation,
        clock: Callable[[], float],
        connected_to: Callable[[], object],
    ) -> None:
        """`connected_to` gives the identity of the file that was read."""
        self._location = location
        self._clock = clock
        self._connected_to = connected_to
        self._attached_to: object = None
        self._examined = -inf

    @property
    def current(self) -> bool:
        """Whether the file is attached and current, so that `attach` has nothing to do."""
        if self._attached_to is None:
            return False
        return self._was_examined() or self._examine() == self._attached_to

    def attach(self, connection: apsw.Connection) -> None:
        """Attach the file that was read."""
        if self._attached_to is not None and self._was_examined():
            return
        found = self._examine()
        if found == self._attached_to:
            return
        if self._attached_to is not None:
            connection.execute(f"DETACH {RECORDINGS}")
            self._attached_to = None
        if found is not None:
            # Read-only, or every transaction would lock it too.
            how = "mode=ro" if self._location.role == "read" else "immutable=1"
            address = f"{self._location.path.resolve().as_uri()}?{how}"
            connection.execute(f"ATTACH ? AS {RECORDINGS}", (address,))
            self._attached_to = found

    def _was_examined(self) -> bool:
        return self._clock() < self._examined + EXAMINE_S

    def _examine(self) -> object:
        found = self._connected_to()
        # If the file was replaced, the next look-up examines the present file.
        found = found if found == file_identity(self._location.path) else None
        self._examined = self._clock() if found == self._attached_to else -inf
        return found


def file_identity(path: Path) -> tuple[int, int] | None:
    """The identity of the file at a path; None without a file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
