"""What goes by itself once nobody needs it any more."""

import asyncio
import hashlib
import random
from contextlib import suppress

from tapeway.errors import StoreError
from tapeway.stores import postgres_bodies, postgres_control, postgres_turns
from tapeway.stores import postgres_driver as driver
from tapeway.stores.postgres_pool import Pool, Session

_EVERY_S = 300.0

_OVER = (
    "DELETE FROM @attempt WHERE came < clock_timestamp() - interval '1 hour'",
    "DELETE FROM @instance WHERE seen < clock_timestamp() - interval '1 hour'",
    "DELETE FROM @lease WHERE expires < clock_timestamp() - interval '1 hour'",
)


async def keep(pool: Pool) -> None:
    """Look after it now and then, until cancelled; one instance at a time."""
    while True:
        await asyncio.sleep(_EVERY_S * random.uniform(0.5, 1.5))
        with suppress(StoreError):
            await pool.write("sweep", sweep, limit=driver.LONG_S, durable=False)


async def sweep(session: Session) -> None:
    """Remove it all, unless another instance is at it."""
    name = f"tapeway sweep {session.schema}".encode()
    lock = int.from_bytes(hashlib.sha256(name).digest()[:8], signed=True)
    found = await session.row("SELECT pg_try_advisory_xact_lock($1) AS mine", lock)
    if found is None or not found["mine"]:
        return
    for sql in _OVER:
        await session.run(sql)
    await postgres_bodies.sweep(session)
    control = await postgres_control.in_force(session)
    if control is not None:
        await postgres_turns.sweep(session, control)
