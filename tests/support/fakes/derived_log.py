"""The log of cassettes that a store in memory keeps as lists: what has changed since the last look."""

from collections.abc import Sequence
from itertools import count

from tapeway.core.matching.rules import rules_of_meta
from tapeway.core.model.cassette import CassetteHead, LogPage, LogRow, TakenRecording
from tapeway.core.model.control import SeenCassette
from tapeway.stores.support.columns import filed_key

PAGE = 1000


class DerivedLog:
    """The log of one cassette of a store."""

    tokens = count(1)

    def __init__(self) -> None:
        self.token = ""
        self.rows: list[LogRow] = []
        self._of: tuple[object, CassetteHead] | None = None
        self._known: dict[int, tuple[TakenRecording, LogRow]] = {}

    def follow(
        self, identity: object, head: CassetteHead, recordings: Sequence[TakenRecording]
    ) -> None:
        """Take note of what a cassette holds now; another `identity` or head has another log."""
        if self._of is None or self._of[0] is not identity or self._of[1] != head:
            self.token, self.rows, self._known = f"t{next(self.tokens)}", [], {}
            self._of = identity, head
        there = {recording.item.index: recording for recording in recordings}
        for number, (before, row) in list(self._known.items()):
            now = there.get(number)
            if now is None or now.item != before.item or now.place != before.place:
                del self._known[number]
                self._drop(row)
        for number, recording in there.items():
            if number not in self._known:
                key, marks = filed_key(recording.item, rules_of_meta(head.meta))
                row = LogRow(
                    len(self.rows) + 1, number, recording.place, recording.take, key, marks, True
                )
                self.rows.append(row)
                self._known[number] = recording, row

    def _drop(self, row: LogRow) -> None:
        self.rows[row.revision - 1] = row._replace(live=False)
        self.rows.append(row._replace(revision=len(self.rows) + 1, live=False, marks=0))

    def page(self, seen: int) -> LogPage:
        """The rows after a revision."""
        return LogPage(self.token, len(self.rows), self.rows[seen : seen + PAGE])

    def is_as_seen(self, seen: SeenCassette) -> bool:
        """Whether nothing that a decision depended on has changed."""
        if self.token != seen.token:
            return False
        later = self.rows[seen.revision :]
        if not seen.keys:
            return not later
        return not any(row.key is None or row.key in seen.keys for row in later)
