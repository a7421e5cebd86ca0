"""A process that opens a SQLite file with upgrades of its own: `upgrading_process FILE`.

It says `ready`, waits for a line, opens the store, and says how many recordings `x` has.
"""

import asyncio
import sys
import time
from pathlib import Path

import apsw

from tapeway.stores.sqlite import schema
from tapeway.stores.sqlite.store import SqliteStore


def upgrade_2_to_3(connection: apsw.Connection) -> None:
    """Fails where it was done before, and takes long enough for others to come meanwhile."""
    connection.execute("CREATE TABLE upgraded (step TEXT NOT NULL) STRICT")
    connection.execute("INSERT INTO upgraded VALUES ('2 to 3')")
    time.sleep(0.2)


def upgrade_3_to_4(connection: apsw.Connection) -> None:
    connection.execute("INSERT INTO upgraded VALUES ('3 to 4')")
    connection.execute("ALTER TABLE cassette ADD COLUMN note TEXT NOT NULL DEFAULT 'upgraded'")


UPGRADES = {2: upgrade_2_to_3, 3: upgrade_3_to_4}


async def _recordings(file: Path) -> int:
    store = SqliteStore(file)
    await store.open()
    try:
        outline = await store.outline("x")
        return outline.count if outline else 0
    finally:
        await store.close()


if __name__ == "__main__":
    schema.VERSION = 4
    schema.UPGRADES.update(UPGRADES)
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    print(asyncio.run(_recordings(Path(sys.argv[1]))), flush=True)  # noqa: T201
