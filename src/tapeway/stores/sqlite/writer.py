"""The one thread of a process that writes recordings: those that wait share one sync."""

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import apsw

from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.errors import CassetteEdited, StoreError, StoreFull, StorePoisoned, TapewayError
from tapeway.stores.shared.columns import text_of
from tapeway.stores.shared.serial_executor import outcome
from tapeway.stores.sqlite import schema, writes
from tapeway.stores.sqlite.connection import check_small, connect, leaves_doubt
from tapeway.stores.sqlite.location import StoreFileAbsent, StoreLocation
from tapeway.stores.sqlite.rollback_check import RollbackCheck
from tapeway.stores.sqlite.transaction import WriteTransaction, writing
from tapeway.stores.sqlite.worker_thread import WorkerThread

log = logging.getLogger(__name__)

T = TypeVar("T")

_CHECKPOINT_PAGES = 1000
_DEED = "write the recording"


Recorded = tuple[str, int, Recording]
"""What was written: the cassette, the index it got, the recording."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    name: str
    head: CassetteHead
    recording: Recording
    done: "Future[int]"


class RecordingWriter:
    """Writes to a store's file, which is made at the first write.

    After a failed sync nothing is acknowledged until `mend` has brought all that was onto the disk.
    """

    def __init__(self, place: StoreLocation, recorded: Callable[[list[Recorded]], None]) -> None:
        """`recorded` is told what is durable, in the writer's thread, before who waits for it."""
        self._place = place
        self._recorded = recorded
        self._desk = WorkerThread(str(place), _DEED, self._connect)
        self._waiting: deque[_Waiting] = deque()
        self._told = RollbackCheck(place)
        self._file: tuple[int, int] | None = None
        self._behind = 0
        self.poisoned = False

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> int:
        """A recording's index, once it is durable."""
        done: Future[int] = Future()
        self._waiting.append(_Waiting(name, head, recording, done))
        self._desk.in_turn(self._write_waiting)
        return await outcome(done)

    async def run(self, work: Callable[[WriteTransaction], T]) -> T:
        """What a transaction gives, once it is durable."""
        return await outcome(self._desk.in_turn(partial(self._write, work)))

    def now(self, work: Callable[[WriteTransaction], T]) -> T:
        """The same from a thread that may wait."""
        return self._desk.in_turn(partial(self._write, work)).result()

    async def until_done(self, step: Callable[[WriteTransaction], bool]) -> None:
        """A step again and again, in a transaction each, as long as it says there is more."""
        while await self.run(step):
            pass

    async def mend(self) -> None:
        """Bring all that was acknowledged onto the disk anew, after a failure. Raises StoreError."""
        if self.poisoned:
            await outcome(self._desk.in_turn(self._mend))

    async def close(self) -> None:
        await self._desk.close()
        self._told.close()

    def _connect(self) -> apsw.Connection:
        self._place.refuse_read_only()
        try:
            found = self._place.look()
            if not found.st_size:
                self._told.refuse_emptied()
        except StoreFileAbsent:
            self._place.make()
            self._told.begin_anew()
        self._place.close_to_others()
        connection = connect(self._place.path, "write", self._look)
        found = self._place.look()
        self._file = found.st_dev, found.st_ino
        return connection

    def _look(self, connection: apsw.Connection) -> None:
        schema.create(connection, str(self._place))
        check_small(connection)
        self._told.compare(connection)
        schema.upgrade(connection, str(self._place))
        connection.set_wal_hook(self._grown)

    def _grown(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._behind = pages
        return apsw.SQLITE_OK

    def _write_waiting(self) -> None:
        taken: list[tuple[_Waiting, str]] = []
        while self._waiting:
            each = self._waiting.popleft()
            try:
                taken.append((each, text_of(each.recording)))
            except BaseException as exc:
                each.done.set_exception(exc)
        if not taken:
            return
        try:
            results = self._write(partial(self._append_all, taken))
        except BaseException as exc:
            for each, _ in taken:
                each.done.set_exception(_another(exc))
            return
        told = zip(taken, results, strict=True)
        self._recorded([(e.name, n, e.recording) for (e, _), n in told if isinstance(n, int)])
        for (each, _), result in zip(taken, results, strict=True):
            if isinstance(result, int):
                each.done.set_result(result)
            else:
                each.done.set_exception(result)

    def _append_all(
        self, taken: list[tuple[_Waiting, str]], pen: WriteTransaction
    ) -> list[int | TapewayError]:
        results: list[int | TapewayError] = []
        for each, text in taken:
            pen.connection.execute("SAVEPOINT one")
            try:
                results.append(writes.append(pen, each.name, each.head, each.recording, text))
            except TapewayError as exc:
                # Refused, and not for what the disk did: the others go on.
                pen.connection.execute("ROLLBACK TO one")
                results.append(exc)
            pen.connection.execute("RELEASE one")
        return results

    def _write(self, work: Callable[[WriteTransaction], T]) -> T:
        if self.poisoned:
            raise StorePoisoned(
                f"{self._place}: an earlier write failed, so nothing more is acknowledged; check "
                "the disk, then eject a cassette or start again"
            )
        result, change = self._guarded(partial(self._transaction, work))
        self._told.note(change)
        if self._behind > _CHECKPOINT_PAGES:
            # Whoever waits for the result gets it first.
            self._desk.in_turn(self._checkpoint)
        return result

    def _transaction(
        self, work: Callable[[WriteTransaction], T], connection: apsw.Connection
    ) -> tuple[T, int]:
        with writing(connection, str(self._place)) as pen:
            result = work(pen)
        self._refuse_replaced()
        return result, pen.change

    def _refuse_replaced(self) -> None:
        # What was written into a file without a name is gone with this process.
        try:
            found = self._place.look()
        except StoreFileAbsent:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._file:
            raise CassetteEdited(
                f"{self._place} was removed or replaced while it was in use; nothing is recorded "
                "into it any more: stop all processes that use it, then start again"
            )

    def _guarded(self, work: Callable[[apsw.Connection], T]) -> T:
        try:
            return self._desk.do(work)
        except StoreError as exc:
            # One that cannot be opened says so itself, each time.
            if self._desk.connected and leaves_doubt(exc):
                self.poisoned = True
            raise

    def _checkpoint(self) -> None:
        if self.poisoned or self._behind <= _CHECKPOINT_PAGES:
            return
        self._behind = 0
        try:
            self._guarded(lambda connection: connection.wal_checkpoint())
        except StoreFull as exc:
            log.warning("%s", exc.message)
        except StoreError as exc:
            log.error("%s", exc.message)

    def _mend(self) -> None:
        self._desk.drop()

        def anew(connection: apsw.Connection) -> None:
            # Writes all that the log holds into the file, and syncs that.
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            check_small(connection)

        self._desk.do(anew)
        self.poisoned = False


def _another(exc: BaseException) -> BaseException:
    # One exception raised in several tasks would mix up their tracebacks.
    if isinstance(exc, TapewayError):
        return type(exc)(exc.message, status=exc.status, code=exc.code)
    return exc
