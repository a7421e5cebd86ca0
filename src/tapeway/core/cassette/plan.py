"""What the broker is asked, what it decides, and what it answers.

What every replay makes is a named tuple: a frozen dataclass takes several times as long to make.

A request that no recording answers, and what explains it.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tapeway.core.cassette.cursors import Take
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import Lease
from tapeway.core.model.control import Mode, ModePolicy, Outcome
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import BodyFile, Request, Response
from tapeway.core.text import escape_surrogates

_MOST_PATHS = 2
"""Paths the message names; the answer's document holds the others."""
_LONGEST = 120
_INDEXES = 5
_MOST_BORROWED = 5


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
    named = [_short(str(each["path"])) for each in near.differences[:_MOST_PATHS]]
    more = len(near.differences) - len(named) + near.more
    if more:
        return f"nearest #{near.index} differs at {', '.join(named)} and {more} more"
    return f"nearest #{near.index} differs at {' and '.join(named)}"


def _short(path: str) -> str:
    path = escape_surrogates(path.removeprefix("body."))
    return path if len(path) <= _LONGEST else f"{path[:_LONGEST]}…"


class Incoming(NamedTuple):
    """A request as it came, and whether its route was only read off the path.

    `mode` is the one in force when its head came, however long its body took. `written` is the
    target as it came where a slip in it was forgiven. `digest` is what a large body is known by.
    """

    request: Request
    guessed: bool = False
    mode: Mode | None = None
    written: str | None = None
    digest: BodyFile | None = None


class Replay(NamedTuple):
    """A recording answers; `target` is the redacted one that was asked for.

    `note` says by what it was found where that was not its key.
    """

    cassette: CassetteIndex
    interaction: Interaction
    target: str
    key: bytes
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """The upstream is to be asked; take and rules are those in force when the request came."""

    cassette: CassetteIndex
    take: Take
    rules: ModePolicy
    request: Request
    redacted: Request
    key: bytes
    mark: bytes = b""
    borrowed: tuple[str, ...] = ()
    """Identifiers it carries that recordings of other takes issued: the upstream may not know them."""
    came: Incoming | None = None
    """What it was made of, to decide again by."""
    shared: bool = False
    """Whether other instances record into the same store."""
    lease: Lease | None = None

    @property
    def target(self) -> str:
        return self.redacted.target

    @property
    def note(self) -> str | None:
        """What the journal is to say about it."""
        if not self.borrowed:
            return None
        more = " …" if len(self.borrowed) > _MOST_BORROWED else ""
        return (
            "asked live with identifiers that came from a recording and that the upstream may not "
            f"know: {', '.join(self.borrowed[:_MOST_BORROWED])}{more}"
        )


Plan = Replay | Ask | Miss


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer and where it came from; `index` names the recording, if there is one.

    `note` says why there is none although the status is that of a success.
    """

    outcome: Outcome
    cassette: str
    response: Response
    index: int | None
    key: bytes
    note: str | None = None
    kept: Interaction | None = None
    """What was recorded, as the store holds it."""
