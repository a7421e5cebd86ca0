"""The tables of a PostgreSQL store, and how they come into being.

Names, routes and whatever a recording holds are bytes: `text` can hold neither NUL nor half a
character. Where a cassette need not exist yet, rows are kept by its name.
"""

import hashlib
import logging

from tapeway.errors import StoreError
from tapeway.stores.postgres.pool import LONG_S, Pool, Session

log = logging.getLogger(__name__)

VERSION = 1

_CREATE = """
CREATE TABLE @version (number integer PRIMARY KEY);

CREATE TABLE @cassette (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE,
  revision bigint NOT NULL DEFAULT 0,
  created_at bytea NOT NULL,
  run_id bytea NOT NULL,
  meta bytea NOT NULL,
  changed timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The next index and place of a cassette, also before it has its first recording.
CREATE TABLE @counter (
  name text COLLATE "C" PRIMARY KEY,
  next_index bigint NOT NULL,
  next_place bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE @interaction (
  cassette bigint NOT NULL REFERENCES @cassette ON DELETE CASCADE,
  index bigint NOT NULL,
  place bigint NOT NULL,
  take bigint NOT NULL,
  http boolean NOT NULL,
  route bytea NOT NULL,
  base bytea NOT NULL,
  method bytea NOT NULL,
  path bytea NOT NULL,
  query bytea NOT NULL,
  spot bytea NOT NULL,
  weight bigint,
  large boolean NOT NULL,
  document bytea NOT NULL,
  sha256 bytea NOT NULL,
  CONSTRAINT one_of_an_index PRIMARY KEY (cassette, index)
);
CREATE INDEX ON @interaction (cassette, place, index);
CREATE INDEX ON @interaction (cassette, spot, place);

CREATE TABLE @key (
  cassette bigint NOT NULL,
  key bytea NOT NULL,
  index bigint NOT NULL,
  PRIMARY KEY (cassette, key, index),
  FOREIGN KEY (cassette, index) REFERENCES @interaction ON DELETE CASCADE
);
CREATE INDEX ON @key (cassette, index);

-- How many recordings a cassette has and where they came from, in rows enough that those who
-- record at the same time seldom wait for each other.
CREATE TABLE @tally (
  cassette bigint NOT NULL REFERENCES @cassette ON DELETE CASCADE,
  shard smallint NOT NULL,
  http boolean NOT NULL,
  route bytea NOT NULL,
  base bytea NOT NULL,
  count bigint NOT NULL,
  bytes bigint NOT NULL,
  changes bigint NOT NULL,
  changed timestamptz NOT NULL,
  PRIMARY KEY (cassette, shard, http, route, base)
) WITH (fillfactor = 50);

CREATE TABLE @body (
  digest bytea PRIMARY KEY,
  size bigint NOT NULL,
  upload uuid NOT NULL UNIQUE,
  idle timestamptz DEFAULT clock_timestamp()
);
CREATE TABLE @piece (
  upload uuid NOT NULL,
  number bigint NOT NULL,
  data bytea NOT NULL,
  came timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (upload, number)
);
ALTER TABLE @piece ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE @body_use (
  digest bytea NOT NULL CONSTRAINT a_body_that_was_kept REFERENCES @body,
  cassette bigint NOT NULL,
  index bigint NOT NULL,
  PRIMARY KEY (digest, cassette, index),
  FOREIGN KEY (cassette, index) REFERENCES @interaction ON DELETE CASCADE
);
CREATE INDEX ON @body_use (cassette, index);

-- What tells whether a transaction took place whose connection was lost.
CREATE TABLE @attempt (
  id uuid PRIMARY KEY,
  came timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE @turn (
  name text COLLATE "C" NOT NULL,
  take bigint NOT NULL,
  key bytea NOT NULL,
  state bytea NOT NULL,
  version bigint NOT NULL,
  attempt uuid NOT NULL,
  PRIMARY KEY (name, take, key)
) WITH (fillfactor = 70);
CREATE TABLE @touched (
  name text COLLATE "C" NOT NULL,
  take bigint NOT NULL,
  index bigint NOT NULL,
  PRIMARY KEY (name, take, index)
);

CREATE SEQUENCE @fence;
CREATE TABLE @lease (
  name text COLLATE "C" NOT NULL,
  key bytea NOT NULL,
  owner uuid NOT NULL,
  attempt uuid NOT NULL,
  fence bigint NOT NULL,
  expires timestamptz NOT NULL,
  PRIMARY KEY (name, key)
) WITH (fillfactor = 50);

CREATE TABLE @control (
  sole boolean PRIMARY KEY DEFAULT true CHECK (sole),
  generation bigint NOT NULL,
  attempt uuid,
  said bytea
) WITH (fillfactor = 50);
INSERT INTO @control (generation) VALUES (0);
CREATE TABLE @instance (
  id uuid PRIMARY KEY,
  name text NOT NULL,
  applied bigint NOT NULL,
  seen timestamptz NOT NULL
) WITH (fillfactor = 50);

INSERT INTO @version VALUES (1);
"""


async def prepare(pool: Pool) -> None:
    """Make the tables if nobody has; look at what the server promises.

    Raises StoreError for tables of a newer tapeway, and where the role may not make them.
    """
    await _look(pool)
    if await pool.read("look at its tables", _version) is None:
        limit = LONG_S
        await pool.write("make its tables", _create, limit=limit)
    found = await pool.read("look at its tables", _version)
    if found is None or found > VERSION:
        raise StoreError(
            f"{pool.address.shown}: its tables are of version {found}, and this tapeway knows "
            f"{VERSION}: update tapeway, or use another ?schema="
        )


async def _look(pool: Pool) -> None:
    between, sync, fsync = await pool.write("look at the server", _settings, durable=False)
    if not between:
        pool.pooled = False
        await pool.forget()
    if sync == "off":
        log.warning("%s: synchronous_commit is off; recordings turn it on", pool.address.shown)
    else:
        pool.sync = sync
    if fsync == "off":
        pool.durability = "server"
        log.warning(
            "%s: the server has fsync off: a crash of its machine can lose recordings",
            pool.address.shown,
        )


async def _settings(session: Session) -> tuple[bool, str, str]:
    found = await session.row(
        "SELECT pg_backend_pid() AS pid, current_setting('fsync') AS fsync, "
        "coalesce((SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'), 'on') "
        "AS sync"
    )
    assert found is not None  # noqa: S101 - a SELECT without FROM gives one row
    between = session.connection.get_server_pid() != found["pid"]
    return between, found["sync"], found["fsync"]


async def _version(session: Session) -> int | None:
    # Not by to_regclass(): that may remember that there was none when another has just made it.
    there = "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'version'"
    if not await session.rows(there, session.schema):
        return None
    found = await session.row("SELECT max(number) AS number FROM @version")
    return None if found is None else found["number"]


async def _create(session: Session) -> None:
    schema = session.schema
    lock = int.from_bytes(hashlib.sha256(f"tapeway {schema}".encode()).digest()[:8], signed=True)
    await session.run("SELECT pg_advisory_xact_lock($1)", lock)
    if await _version(session) is not None:
        return
    if not await session.rows("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema):
        await session.run(f'CREATE SCHEMA "{schema}"')
    await session.run(_CREATE)
