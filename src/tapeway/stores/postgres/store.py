"""Cassettes in a PostgreSQL database, which any number of instances on any machines share.

`pool` runs transactions, `instance` is the driver, and `heartbeat` reports over a separate
connection that the instance is alive.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tapeway.core.model.cassette import CassetteHead, Lease, Recording
from tapeway.errors import StoreError, out_of_touch
from tapeway.ports import StoreFacts
from tapeway.stores.postgres import address
from tapeway.stores.postgres.appends import Alone
from tapeway.stores.postgres.errors import reads_only
from tapeway.stores.postgres.instance import GRACE_S, PostgresInstance
from tapeway.stores.postgres.moves import version_found
from tapeway.stores.sql import bodies
from tapeway.stores.sql.coordination import OUT_OF_TOUCH_S
from tapeway.stores.sql.recordings import IndexTaken
from tapeway.stores.sql.statements import Row
from tapeway.stores.sql.store import Driver, SqlStore
from tapeway.stores.support.columns import recording_text


class PostgresStore(SqlStore[PostgresInstance]):
    """Cassettes in one schema of a database; each instance opens its own store.

    `lease_s` is how long a lease outlives its instance, `touch_s` how long an instance serves without
    hearing from the database. Both must be the same for all instances.
    """

    def __init__(
        self, url: str, *, lease_s: float | None = None, touch_s: float = OUT_OF_TOUCH_S
    ) -> None:
        self._address = address.read(url)
        super().__init__(self._address.shown, StoreFacts(durability="primary", paged=True))
        self._lease_s, self._touch_s = float(lease_s or self._address.lease_s), float(touch_s)

    @property
    def shared(self) -> "PostgresStore | None":
        """The store itself: several processes may use it at once.

        None once it is open and nothing can be written: takes and cursors are those of the process.
        """
        return None if self._reads_only else self

    @property
    def _reads_only(self) -> bool:
        return self._opened is not None and self._opened.pool.reads_only

    def _refuse_to_record(self) -> None:
        if self._reads_only:
            raise reads_only(self.url)

    @property
    def trouble(self) -> StoreError | None:
        if self._reads_only:
            return None
        if self._opened is None or not self._opened.member.in_touch:
            return out_of_touch(
                self.url, "" if self._opened is None else self._opened.heartbeat.trouble
            )
        return None

    async def check_reads(self) -> None:
        await self.stat("default")

    async def check_writes(self, name: str | None = None) -> None:
        """Raise only where nothing can be written: a single failing recording raises by itself."""
        self._refuse_to_record()
        if self._opened is not None and self._opened.heartbeat.is_refused:
            await self._report_alive(self._opened)

    async def open(self) -> None:
        """Connect, and create the tables where there are none. Raises StoreAway, StoreError."""
        if self._opened is not None:
            return
        instance = PostgresInstance(self._address, self._lease_s, self._touch_s)
        await instance.open()
        # `primary`: on the disk of the primary; `server`: no further than its memory.
        self.facts = replace(self.facts, durability=instance.pool.durability)
        self._opened = instance

    # Cassettes.

    async def release(self, name: str) -> None:
        """Do nothing: a cassette is always in its final form, and keeps its indexes."""
        self._for_cassette(name)

    async def erase(self) -> Sequence[str]:
        """Remove the large bodies that nothing refers to, and name what only the server can wipe."""
        if not self._driver.removed:
            return []
        while await self._driver.write("remove large bodies", partial(bodies.sweep, GRACE_S)):
            pass
        self._driver.removed = False
        return [
            f"{self.url}: PostgreSQL keeps what was removed in its tables until VACUUM FULL rewrites "
            "them, and in its write-ahead log, replicas and backups until these are gone: see to "
            "them where it must not stay readable"
        ]

    # Recordings.

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        driver, text = self._for_postgres(name), recording_text(recording)
        try:
            await driver.append(name, recording, text)
        except (Alone, IndexTaken):
            await super().append(name, head, recording)

    async def reserve(self, name: str) -> int:
        return await self._for_postgres(name).reserve(name)

    async def _claim(self, driver: Driver, lease: Lease) -> Lease | None:
        try:
            free = await self._driver.claim(lease)
        except StoreError:
            # As where the claim itself failed: it may have been committed.
            self._give_back_later(lease)
            raise
        if not free:
            return await super()._claim(driver, lease)
        await driver.claimed(lease, [])
        return lease

    def _for_postgres(self, name: str) -> PostgresInstance:
        self._for_cassette(name)
        return self._driver

    def _version_found(
        self, version: str | None, digests: Sequence[bytes], found: Sequence[Row]
    ) -> str | None:
        return version_found(version, digests, found)

    async def _before_writing(self) -> None:
        """Instances record concurrently, where anything can be written."""
        self._refuse_to_record()
