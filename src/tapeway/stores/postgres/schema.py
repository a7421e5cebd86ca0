"""The tables of a PostgreSQL store, and how they are created."""

import hashlib
import logging

from tapeway.core.correlation.index import ALIKE_BYTES, ISSUED_BYTES
from tapeway.errors import StoreError
from tapeway.stores.postgres.operations.cassettes import log_of_all
from tapeway.stores.postgres.pool import LONG_S, Pool, Session
from tapeway.stores.postgres.tables import BODIES, CURSORS, LOG, RECORDINGS
from tapeway.stores.support.format_versions import refuse_other_version

log = logging.getLogger(__name__)

VERSION = 10
UPGRADED = 9
"""The version that is brought over when it is opened."""

_CREATE = """
CREATE TABLE @version (number integer PRIMARY KEY);

-- What a transaction came to that must not be made twice, for the case that its answer is lost.
CREATE TABLE @attempt (
  id uuid PRIMARY KEY,
  result bytea,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Which cursors an instance moved last, for the case that the answer is lost.
CREATE TABLE @mover (
  id uuid PRIMARY KEY,
  attempt uuid NOT NULL,
  made text NOT NULL,
  seen timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
"""


# A change of rules that is under way begins anew. Recordings are found in memory, and by digests only
# those that differ in identifiers.
_TO_LOG = f"""
ALTER TABLE @source DROP COLUMN changes;
DROP TRIGGER touched_added ON @touched;
DROP TRIGGER touched_removed ON @touched;
DROP FUNCTION @count_touched;
DROP FUNCTION @count_untouched;
DROP TABLE @used;
DELETE FROM @key WHERE length(digest) NOT IN ({ALIKE_BYTES}, {ISSUED_BYTES});
ALTER TABLE @instance DROP COLUMN process, DROP COLUMN generation;
UPDATE @cassette SET coming_meta = NULL, coming_generation = NULL, revision = 0;
"""  # noqa: S608 - numbers

# Bodies are not compressed once more.
_MORE = "ALTER TABLE @piece ALTER COLUMN data SET STORAGE EXTERNAL;"


async def prepare(pool: Pool) -> None:
    """Create the tables where there are none, and read the server's settings of durability.

    Raises StoreError for tables of another version, and for a role without the right to create
    tables.
    """
    await _examine_server(pool)
    version = await pool.read("read the version of its tables", _stored_version)
    if version is None:
        await pool.write("make its tables", _create_tables, limit=LONG_S)
    else:
        if version == UPGRADED:
            await pool.write("upgrade its tables", _upgrade, limit=LONG_S)
            version = VERSION
        refuse_other_version(version, VERSION, pool.address.shown, StoreError)
        pool.reads_only = await pool.read("read its rights", _reads_only)


async def _examine_server(pool: Pool) -> None:
    place = pool.address.shown
    if pool.address.ignored:
        log.warning("%s: without effect here: %s", place, ", ".join(pool.address.ignored))
    pooled, sync, fsync, most = await pool.snapshot("read its settings", _settings)
    if not pooled:
        pool.pooled = False
        await pool.renew_connections()
        if pool.most_connections > most:
            log.warning(
                "%s: this process may open %d connections, and the server accepts %d from all its "
                "clients: give fewer with ?connections=, or raise max_connections",
                place,
                pool.most_connections,
                most,
            )
    if sync == "off":
        log.warning("%s: synchronous_commit is off; recordings turn it on", place)
    else:
        pool.sync = sync
    if fsync == "off":
        pool.durability = "server"
        log.warning(
            "%s: the server has fsync off: a crash of its machine can lose recordings", place
        )


async def _settings(session: Session) -> tuple[bool, str, str, int]:
    """Whether there is a pooler, synchronous_commit, fsync, and connections for ordinary roles."""
    row = await session.row(
        "SELECT pg_backend_pid() AS pid, current_setting('fsync') AS fsync, "
        "coalesce((SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'), 'on') "
        "AS sync, current_setting('max_connections')::int "
        "- current_setting('superuser_reserved_connections')::int AS most"
    )
    assert row is not None  # noqa: S101 - a SELECT without FROM gives one row
    pooled = session.connection.get_server_pid() != row["pid"]
    return pooled, row["sync"], row["fsync"], row["most"]


async def _reads_only(session: Session) -> bool:
    """Whether nothing can be written: by a standby, the sessions' default, or the rights of the role."""
    row = await session.row(
        "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean "
        "OR NOT (has_table_privilege('@control', 'UPDATE') "
        "AND has_table_privilege('@turn', 'INSERT')) AS reads_only"
    )
    return row is not None and bool(row["reads_only"])


async def _stored_version(session: Session) -> int | None:
    # Not by to_regclass(): the server may have cached a missing table.
    there = "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'version'"
    if not await session.rows(there, session.schema):
        return None
    row = await session.row("SELECT max(number) AS number FROM @version")
    return None if row is None else row["number"]


async def _lock(session: Session) -> None:
    """Let no other instance make or upgrade tables until the end."""
    digest = hashlib.sha256(f"tapeway {session.schema}".encode()).digest()
    await session.run("SELECT pg_advisory_xact_lock($1)", int.from_bytes(digest[:8], signed=True))


async def _upgrade(session: Session) -> None:
    """Give the cassettes of the version before their logs."""
    await _lock(session)
    if await _stored_version(session) != UPGRADED:
        # Another instance has upgraded them.
        return
    await session.run(_TO_LOG + LOG)
    for id_, meta in await session.rows("SELECT id, meta FROM @cassette ORDER BY id"):
        await log_of_all(id_, meta, session)
    await session.run("UPDATE @version SET number = $1", VERSION)


async def _create_tables(session: Session) -> None:
    schema = session.schema
    await _lock(session)
    if await _stored_version(session) is not None:
        # Another instance has created them.
        return
    if not await session.rows("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema):
        await session.run(f'CREATE SCHEMA "{schema}"')
    await session.run(_CREATE + RECORDINGS + LOG + BODIES + CURSORS + _MORE)
    await session.run("INSERT INTO @version VALUES ($1)", VERSION)
