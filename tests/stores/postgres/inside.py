"""The connections and tables of a store, for tests that hold its locks or let its disk be full."""

from tapeway.stores.postgres.pool import Pool
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.postgres_server import run

_NO_ROOM = """
CREATE OR REPLACE FUNCTION "{schema}".no_room() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$
"""
_FILL = """
CREATE TRIGGER no_room BEFORE INSERT OR UPDATE ON "{schema}"."{table}"
{which} EXECUTE FUNCTION "{schema}".no_room()
"""


def pool_of(store: PostgresStore) -> Pool:
    """The pool of the store itself: a test takes its last connection, or holds a row."""
    # A store shows nobody its pool, and another pool would not be the one under test.
    return store._driver.pool


async def fill(dsn: str, schema: str, table: str, which: str = "FOR EACH STATEMENT") -> None:
    """Let no write to a table find room, or none to `which` rows."""
    await run(dsn, _NO_ROOM.format(schema=schema))
    await run(dsn, _FILL.format(schema=schema, table=table, which=which))


async def make_room(dsn: str, schema: str) -> None:
    """Let all writes find room again."""
    await run(dsn, f'DROP FUNCTION "{schema}".no_room CASCADE')
