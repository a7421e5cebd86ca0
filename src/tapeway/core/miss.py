"""A request that no recording answers, and what explains it."""

from dataclasses import dataclass

from tapeway.core.differences import legible
from tapeway.core.json_text import Json
from tapeway.core.model import Request

_NAMED = 2
"""Paths the message names; the answer's document holds the others."""

_LONGEST = 120
_INDEXES = 5


@dataclass(frozen=True, slots=True)
class Near:
    """A recording and how its request differs, as people are shown it.

    Each of `differences` has a `path` and of `recorded` and `requested` what there is; `more` is
    how many further ones there are.
    """

    index: int
    differences: tuple[dict[str, Json], ...] = ()
    more: int = 0

    @property
    def document(self) -> dict[str, Json]:
        return {"index": self.index, "differences": list(self.differences), "more": self.more}


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was found out about a miss: the nearest recordings, and rules that make one match.

    `note` says why nothing was looked for.
    """

    nearest: tuple[Near, ...] = ()
    suggestion: str | None = None
    note: str | None = None


NOTHING = Explanation()


@dataclass(frozen=True, slots=True)
class Miss:
    """A redacted request that no recording answers; `used_up` are those that did in this take."""

    cassette: str
    request: Request
    key: bytes
    mark: bytes = b""
    used_up: tuple[int, ...] = ()
    explanation: Explanation = NOTHING
    note: str | None = None
    """Why a recording that holds what is asked for does not answer."""

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def target(self) -> str:
        return self.request.target

    @property
    def message(self) -> str:
        path = self.target.partition("?")[0]
        if self.used_up:
            return (
                f"replay miss: {self.method} {path} is in cassette '{self.cassette}' "
                f"{len(self.used_up)} time(s), all used up in this take: {self._used_up()}"
            )
        said = f"replay miss: {self.method} {path} is not in cassette '{self.cassette}'"
        if self.note is not None:
            return f"{said}; {self.note}"
        if self.explanation.note is not None:
            return f"{said}; {self.explanation.note}"
        return (
            f"{said}; {_nearest(self.explanation.nearest[0])}" if self.explanation.nearest else said
        )

    def _used_up(self) -> str:
        named = ", ".join(f"#{index}" for index in self.used_up[:_INDEXES])
        return named if len(self.used_up) <= _INDEXES else f"{named} …"


def _nearest(near: Near) -> str:
    if not near.differences:
        return f"nearest #{near.index} says the same, but with another credential"
    named = [_short(str(each["path"])) for each in near.differences[:_NAMED]]
    more = len(near.differences) - len(named) + near.more
    if more:
        return f"nearest #{near.index} differs at {', '.join(named)} and {more} more"
    return f"nearest #{near.index} differs at {' and '.join(named)}"


def _short(path: str) -> str:
    path = legible(path.removeprefix("body."))
    return path if len(path) <= _LONGEST else f"{path[:_LONGEST]}…"
