"""What a worker is told when it begins."""

import pickle
from dataclasses import dataclass
from typing import cast

from tapeway.server.wiring import Place
from tapeway.settings.options import Settings


@dataclass(frozen=True, slots=True)
class Assignment:
    """The settings, where the admin API is, and the listeners no upstream may lead to.

    It goes through a pipe between the two processes, as it holds what no command line may show.
    """

    settings: Settings
    admin: str | None
    own: tuple[Place, ...]

    def packed(self) -> bytes:
        return pickle.dumps(self)


def unpacked(data: bytes) -> Assignment:
    """What the process above packed."""
    return cast("Assignment", pickle.loads(data))  # noqa: S301 - it started us, and hands us all we do
