"""What the broker is asked, what it decides, and what it answers.

What every replay makes is a named tuple: a frozen dataclass takes several times as long to make.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tapeway.core.cassette import Cassette
from tapeway.core.miss import Miss
from tapeway.core.model import BodyFile, Interaction, Lease, Request, Response
from tapeway.core.modes import Mode, ModeRules, Outcome
from tapeway.core.take import Take

_NAMED = 5


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

    cassette: Cassette
    interaction: Interaction
    target: str
    key: bytes
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """The upstream is to be asked; take and rules are those in force when the request came."""

    cassette: Cassette
    take: Take
    rules: ModeRules
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
        more = " …" if len(self.borrowed) > _NAMED else ""
        return (
            "asked live with identifiers that came from a recording and that the upstream may not "
            f"know: {', '.join(self.borrowed[:_NAMED])}{more}"
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
