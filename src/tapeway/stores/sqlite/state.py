"""What a SQLite file tells of itself: the takes that ever began, the leases taken over, and whether
something was removed since the last wiping.
"""

from collections.abc import Sequence

from tapeway.core.model.cassette import Lease
from tapeway.errors import Fenced
from tapeway.stores.sql.statements import Op, each, row, run

TABLES = """
-- `removed` is the number of the last change after which the file has to be wiped, or 0.
CREATE TABLE state (
    id TEXT NOT NULL, changes INTEGER NOT NULL, takes INTEGER NOT NULL, removed INTEGER NOT NULL
) STRICT;
-- Leases that were taken over from instances which seemed to have ended.
CREATE TABLE lost (fence INTEGER PRIMARY KEY) STRICT;
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


def lose(fences: Sequence[int]) -> Op[None]:
    """From now on, refuse recordings under these leases."""
    yield from each("INSERT INTO lost VALUES ($1) ON CONFLICT DO NOTHING", [(at,) for at in fences])


def refuse_lost(lease: Lease, place: str) -> Op[None]:
    """Raise Fenced for a lease after a take-over by another process."""
    if (yield from row("SELECT 1 FROM lost WHERE fence = $1", lease.fence)) is not None:
        raise Fenced(
            f"{place}: another process records the same for cassette '{lease.name}' by now: this "
            "answer was not written"
        )
