"""Leases: the right of one instance to call the upstream for all. A lease is a row with fence and
expiry.

All times are the server's. An instance that was suspended until its lease expired finds its fence
gone, whatever its own clock shows.
"""

from uuid import UUID

from tapeway.core.model.cassette import Lease
from tapeway.errors import Fenced
from tapeway.stores.postgres.coordination.notifications import lease_topic
from tapeway.stores.postgres.pool import Session
from tapeway.stores.sql.rows import indexable
from tapeway.stores.sql.statements import Op, run

_CLAIM = """
INSERT INTO @lease AS lease (name, key, instance, fence, expires)
VALUES ($1, $2, $3, nextval('@fence'), clock_timestamp() + $4 * interval '1 second')
ON CONFLICT (name, key) DO UPDATE SET instance = excluded.instance, fence = excluded.fence,
  expires = excluded.expires
WHERE lease.expires <= clock_timestamp()
RETURNING fence
"""
_GIVE_BACK = "DELETE FROM @lease WHERE name = $1 AND key = $2 AND instance = $3 AND fence = $4"
_HELD = "SELECT 1 FROM @lease WHERE name = $1 AND key = $2 AND expires > clock_timestamp()"
_FENCES = "SELECT fence FROM @lease WHERE name = $1 AND expires > clock_timestamp()"
_RENEW = """
UPDATE @lease SET expires = clock_timestamp() + $3 * interval '1 second'
WHERE instance = $1 AND fence = ANY($2::text[]::bigint[])
"""


class HeldLeases:
    """The leases that one instance holds."""

    def __init__(self, instance: UUID, expiry_s: float) -> None:
        self.instance = instance
        self.expiry_s = expiry_s
        self._held: dict[int, Lease] = {}

    async def claim(self, session: Session, name: str, key: bytes) -> int:
        """The fence of the lease that this instance has now, 0 where another one holds it."""
        found = await session.row(_CLAIM, name, indexable(key), self.instance, self.expiry_s)
        return 0 if found is None else int(found["fence"])

    def remember(self, lease: Lease) -> None:
        """Renew a lease from now on."""
        self._held[lease.fence] = lease

    def forget(self, lease: Lease) -> None:
        """Stop renewing a lease."""
        self._held.pop(lease.fence, None)

    async def release_lease(self, session: Session, lease: Lease) -> None:
        await session.run(_GIVE_BACK, lease.name, indexable(lease.key), self.instance, lease.fence)

    def use(self, lease: Lease) -> Op[None]:
        """End a lease in the transaction of its recording. Raises Fenced where it is not held."""
        mine = lease.name, indexable(lease.key), self.instance, lease.fence
        if not (yield from run(_GIVE_BACK, *mine)):
            raise Fenced(f"another instance records the same into cassette '{lease.name}' by now")

    async def renew(self, session: Session) -> None:
        """Renew all leases in one statement."""
        if self._held:
            fences = [str(fence) for fence in self._held]
            await session.run(_RENEW, self.instance, fences, self.expiry_s)

    async def leave(self, session: Session) -> None:
        """Release all leases."""
        self._held.clear()
        await session.run("DELETE FROM @lease WHERE instance = $1", self.instance)

    def topics(self) -> list[str]:
        """The topics that others may wait for."""
        return [lease_topic(lease.name, lease.key) for lease in self._held.values()]


async def is_held(session: Session, name: str, key: bytes) -> bool:
    return await session.row(_HELD, name, indexable(key)) is not None


async def fences(session: Session, name: str) -> frozenset[int]:
    """The fences of the leases of a cassette that have not expired."""
    return frozenset([row["fence"] for row in await session.rows(_FENCES, name)])
