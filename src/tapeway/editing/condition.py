"""What a change depends on, so that two editors do not overwrite each other (RFC 9110 section 13)."""

from dataclasses import dataclass

from tapeway.errors import AdminError


@dataclass(frozen=True, slots=True)
class Condition:
    """`match` are the digests that may be replaced, None for any; `absent` allows no cassette at all."""

    match: frozenset[str] | None = None
    present: bool = False
    absent: bool = False

    @property
    def given(self) -> bool:
        return self.match is not None or self.present or self.absent

    def check(self, digest: str | None) -> None:
        """Raises AdminError (412) where what is there, None for nothing, is not what was meant."""
        if self.absent and digest is not None:
            raise _failed("it is there already")
        if self.present and digest is None:
            raise _failed("it is not there")
        if self.match is not None and digest not in self.match:
            raise _failed("it is not there" if digest is None else "it was changed meanwhile")


ANY = Condition()


def _failed(why: str) -> AdminError:
    return AdminError(
        f"{why}, so nothing was changed: read it again, and send what you want with its ETag",
        status=412,
        code="precondition_failed",
    )
