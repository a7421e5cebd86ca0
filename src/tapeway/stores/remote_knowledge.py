"""What this process knows of a cassette on the far side, so that it overwrites nothing else there.

Several tapeways may record into one cassette. Each numbers its recordings by itself, and the far
side gives another index where one is taken already: who supersedes it later need not know.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tapeway.core.json_text import Json
from tapeway.formats.native import document
from tapeway.paging import Placement


@dataclass(frozen=True, slots=True)
class There:
    """An interaction on the far side: under which index, and its digest."""

    index: int
    sha256: str


@dataclass(slots=True)
class Knowledge:
    """One cassette since it was loaded or first appended to.

    `loaded` tells whether it was looked at, `head` is the digest of what it says of itself, empty
    for one that was not there; `appended` whether something was since, and `claimed` whether the
    far side has it in for us.
    """

    loaded: bool = False
    head: str = ""
    items: Placement[There] = field(default_factory=Placement)
    appended: bool = False
    claimed: bool = False

    @property
    def digest(self) -> str | None:
        """The digest of the whole as far as it is known; None where there is none."""
        if not self.head:
            return None
        digests = [there.sha256 for _, there in self.items.items()]
        return document.of_cassette(self.head, digests)

    def look(self, head: str, there: Iterable[There]) -> None:
        """It was loaded: everything has the index that it has there."""
        self.loaded, self.head, self.appended = True, head, False
        self.items = Placement([(each.index, each) for each in there])

    def references(self, supersedes: Iterable[int]) -> list[Json]:
        """How the far side is told what a recording takes the place of."""
        known = [self.items.get(index) for index in supersedes]
        return [{"index": each.index, "sha256": each.sha256} for each in known if each is not None]

    def add(self, index: int, there: There, supersedes: Iterable[int], head: str) -> None:
        """A recording is durable there."""
        self.items.add(index, there, supersedes)
        self.head, self.appended = head, True
