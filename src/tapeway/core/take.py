"""One run through a cassette: its cursors, and what it recorded."""

from collections import Counter
from dataclasses import dataclass, field

from tapeway.core.renaming import Bindings


@dataclass(slots=True)
class Take:
    """What one run has asked for, been given and recorded so far."""

    number: int
    cursors: dict[bytes, int] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    again: Counter[int] = field(default_factory=Counter)
    recorded: set[tuple[bytes, bytes]] = field(default_factory=set)
    marks: dict[bytes, bytes] = field(default_factory=dict)
    bindings: Bindings = field(default_factory=Bindings)

    def ask(self, cursor: bytes, mark: bytes) -> None:
        """Note a turn, and with the first one the credential it was asked with."""
        turn = self.cursors.get(cursor, 0)
        self.cursors[cursor] = turn + 1
        if mark and turn == 0:
            self.marks[cursor] = mark

    def asked_with(self, cursor: bytes) -> bytes | None:
        """The credential of the first turn, None where there was none yet."""
        return self.marks.get(cursor, b"") if cursor in self.cursors else None
