"""The removal of the cursors of ended takes."""

from tapeway.core.model.control import Control
from tapeway.stores.postgres.pool import Session

BATCH = 2000
"""Rows of ended takes that are removed in one transaction."""

# Each name by one look into the index: DISTINCT would read all rows.
_NAMES = """
WITH RECURSIVE found AS (
  (SELECT name FROM @{table} ORDER BY name LIMIT 1)
  UNION ALL
  SELECT (SELECT name FROM @{table} t WHERE t.name > found.name ORDER BY name LIMIT 1)
  FROM found WHERE found.name IS NOT NULL)
SELECT name FROM found WHERE name IS NOT NULL
"""
_ENDED = """
DELETE FROM @{table} WHERE ctid = ANY(ARRAY(
  SELECT ctid FROM @{table} WHERE name = $1 AND take < $2 LIMIT $3))
"""


async def sweep_some(session: Session, control: Control) -> bool:
    """Remove a batch of the cursors of takes that had ended when this was in force, by index;
    whether there may be more.
    """
    left = BATCH
    for table in ("turn", "touched", "used"):
        for row in await session.rows(_NAMES.format(table=table)):
            name = row["name"]
            sql = _ENDED.format(table=table)
            left -= await session.run(sql, name, control.take_of(name), left)
            if not left:
                return True
    return False
