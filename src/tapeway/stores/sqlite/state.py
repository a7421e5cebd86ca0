"""What a SQLite file tells of itself: the takes that ever began, the leases that were taken over, and
whether something was removed since it was wiped.
"""

from tapeway.core.model.cassette import Lease
from tapeway.errors import Fenced
from tapeway.stores.sql.statements import Op, row, run

TABLES = """
-- `removed` is the number of the last change after which the file has to be wiped, or 0.
CREATE TABLE state (
    id TEXT NOT NULL, changes INTEGER NOT NULL, takes INTEGER NOT NULL, removed INTEGER NOT NULL
) STRICT;
CREATE TABLE fence (
    name TEXT NOT NULL, key BLOB NOT NULL, fence INTEGER NOT NULL, PRIMARY KEY (name, key)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER interaction_removed AFTER DELETE ON interaction BEGIN
    UPDATE state SET removed = changes;
END;
CREATE TRIGGER interaction_replaced AFTER UPDATE OF document ON interaction BEGIN
    UPDATE state SET removed = changes;
END;
CREATE TRIGGER head_replaced AFTER UPDATE OF meta ON cassette BEGIN
    UPDATE state SET removed = changes;
END;
CREATE TRIGGER piece_removed AFTER DELETE ON piece BEGIN
    UPDATE state SET removed = changes;
END;
"""


def takes() -> Op[int]:
    """How many takes ever began."""
    found = yield from row("SELECT takes FROM state")
    return 0 if found is None else int(found[0])


def note_takes(count: int) -> Op[int]:
    """Store how many takes ever began."""
    return (yield from run("UPDATE state SET takes = $1 WHERE takes < $1", count))


def needs_wiping() -> Op[bool]:
    """Whether something was removed since the file was wiped."""
    found = yield from row("SELECT removed FROM state")
    return found is not None and bool(found[0])


def highest_fence() -> Op[int]:
    """The highest fence of a lease that was ever taken over."""
    found = yield from row("SELECT coalesce(max(fence), 0) FROM fence")
    return 0 if found is None else int(found[0])


def fence(lease: Lease) -> Op[int]:
    """From now on, refuse recordings by earlier owners of a lease."""
    return (
        yield from run(
            "INSERT INTO fence VALUES ($1, $2, $3) "
            "ON CONFLICT DO UPDATE SET fence = max(fence, excluded.fence)",
            *(lease.name, lease.key, lease.fence),
        )
    )


def refuse_fenced(lease: Lease, place: str) -> Op[None]:
    """Raise Fenced for a lease that another process took over."""
    newest = yield from row(
        "SELECT fence FROM fence WHERE name = $1 AND key = $2", lease.name, lease.key
    )
    if newest is not None and newest[0] > lease.fence:
        raise Fenced(
            f"{place}: another process records the same for cassette '{lease.name}' by now: this "
            "answer was not written"
        )
