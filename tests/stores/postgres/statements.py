"""What a store asks of PostgreSQL, for tests that count it, hold it up, or lose its connection."""

import asyncio
from collections.abc import Sequence
from typing import Literal

import pytest

from tapeway.stores.postgres.pool import DriverRow, Session

Cut = Literal["before", "after"]


class Statements:
    """The statements that return rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.executed: list[str] = []
        self.gate = asyncio.Event()
        """Those that move waiting cursors wait at it."""
        self.gate.set()
        self.arguments: Sequence[object] = ()
        """Of the last of those."""
        self.cuts: list[Cut] = []
        """Of these the connection is lost: before the server has run it, or after."""
        self._rows = Session.rows
        monkeypatch.setattr(Session, "rows", lambda *args: self.follow(*args))

    def count(self, part: str) -> int:
        """How many statements hold this."""
        return sum(part in statement for statement in self.executed)

    @property
    def moves(self) -> int:
        """How many moved waiting cursors."""
        return sum(map(_moves, self.executed))

    async def follow(self, session: Session, sql: str, *args: object) -> Sequence[DriverRow]:
        self.executed.append(sql)
        if not _moves(sql):
            return await self._rows(session, sql, *args)
        self.arguments = args
        await self.gate.wait()
        cut = self.cuts.pop(0) if self.cuts else None
        found = [] if cut == "before" else await self._rows(session, sql, *args)
        if cut is not None:
            session.connection.terminate()
            raise ConnectionResetError
        return found


def _moves(sql: str) -> bool:
    return "AS made FROM made" in sql
