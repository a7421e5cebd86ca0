"""What SQLite executes, for tests that count it or hold it up."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import apsw


class Statements:
    """What SQLite executed, and a gate at which transactions wait."""

    def __init__(self) -> None:
        self.executed: list[str] = []
        self.on_the_loop = 0
        """Transactions that the event loop began."""
        self.gate = threading.Event()
        self.gate.set()

    def watch(self, connection: apsw.Connection) -> None:
        """Follow a new connection."""
        connection.exec_trace = self._follow

    def _follow(self, _: apsw.Cursor, sql: str, __: object) -> bool:
        self.executed.append(" ".join(sql.split()))
        if sql.startswith("BEGIN"):
            if threading.current_thread() is not threading.main_thread():
                assert self.gate.wait(10)
            else:
                self.on_the_loop += 1
                if not self.gate.is_set():
                    raise apsw.BusyError("the test holds the file")
        return True

    def count(self, beginning: str) -> int:
        """How many statements began so."""
        return sum(text.startswith(beginning) for text in self.executed)


@contextmanager
def watched() -> Iterator[Statements]:
    """Follow all connections that are made inside the block."""
    found = Statements()
    apsw.connection_hooks.append(found.watch)
    try:
        yield found
    finally:
        found.gate.set()
        apsw.connection_hooks.remove(found.watch)
