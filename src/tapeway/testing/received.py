"""One request as it arrived, with the answer it got."""

from dataclasses import dataclass

from tapeway.testing.answer import Answer


@dataclass(frozen=True, slots=True)
class Received:
    """Header fields keep order, case and repeats; `body` is as sent, content coding included.

    `plain` is the answer before its content coding; the same where it has none.
    """

    method: str
    target: str
    version: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    raw: bytes
    connection: int
    answer: Answer
    plain: Answer

    def header(self, name: str) -> str | None:
        """The first field of that name in any case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)
