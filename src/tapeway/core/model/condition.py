"""The condition of a change: If-Match, If-None-Match (RFC 9110 section 13).

A store checks the condition and makes the change in one step. Of two editors of a version,
the second is refused.
"""

from dataclasses import dataclass

from tapeway.errors import AdminError


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The version that a cassette must have to be saved or removed; None for no cassette."""

    version: str | None


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold for a change: the digests in `match` (None for any), `present`, or `absent`."""

    match: frozenset[str] | None = None
    present: bool = False
    absent: bool = False

    @property
    def given(self) -> bool:
        return self.match is not None or self.present or self.absent

    def check(self, digest: str | None) -> None:
        """Raises AdminError (412) where the current digest, None for nothing, does not fulfil it."""
        if self.absent and digest is not None:
            raise _failed("it is there already")
        if self.present and digest is None:
            raise _failed("it is not there")
        if self.match is not None and digest not in self.match:
            raise changed_meanwhile() if digest is not None else _failed("it is not there")


ANY = Condition()


def changed_meanwhile() -> AdminError:
    """The error (412) for a change since the client's read."""
    return _failed("it was changed meanwhile")


def _failed(why: str) -> AdminError:
    return AdminError(
        f"{why}, so nothing was changed: read it again, and send what you want with its ETag",
        status=412,
        code="precondition_failed",
    )
