"""The connections of a store, for tests that look into its tables or hold its locks."""

from tapeway.stores.postgres.pool import Pool
from tapeway.stores.postgres.store import PostgresStore


def pool_of(store: PostgresStore) -> Pool:
    """The pool of the store itself: a test takes its last connection, or holds a row."""
    # A store shows nobody its pool, and another pool would not be the one under test.
    return store._driver.pool
