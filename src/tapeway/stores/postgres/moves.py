"""The waiting steps of cursors: one statement makes all, while the next steps gather.

The statement goes over a separate connection, so that a busy pool delays no replay.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from tapeway.core.model.control import STAYED, CursorMove, CursorState, SeenCassette
from tapeway.errors import StoreFull, copy_of
from tapeway.ports import MoveDone
from tapeway.stores.postgres import errors
from tapeway.stores.postgres.operations.rows import hexes
from tapeway.stores.postgres.pool import SETTINGS, Pool, Session

_Step = tuple[CursorMove, MoveDone]
_Asked = tuple[str, SeenCassette]

MOST = 100
"""Cursors that are moved by one statement."""

_UNCHANGED = """
cassette.token = given.token AND (cassette.revision = given.seen OR (
  given.keys <> '' AND NOT EXISTS (
    SELECT FROM @log AS later
    WHERE later.cassette = cassette.id AND later.revision > given.seen AND (
      later.key IS NULL
      OR later.key = ANY(ARRAY(SELECT decode(unnest(string_to_array(given.keys, ',')), 'hex'))))
)))
"""
"""Whether nothing that a decision depended on has changed, in the statement's snapshot."""
# By a name each and not by a list: only then the server takes the many rows out of its index that a
# cassette has had.
_COMPARE = f"""
SELECT coalesce({_UNCHANGED}, false) AS same, coalesce(cassette.revision, 0) AS revision,
  (SELECT generation FROM @control) AS in_force
FROM (
  SELECT number, name, token, seen::bigint, keys
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
  WITH ORDINALITY AS asked (name, token, seen, keys, number)
) AS given LEFT JOIN @cassette AS cassette ON cassette.name = given.name
ORDER BY given.number
"""  # noqa: S608
_LOCKED = "55P03"
_CURSOR = "{0}.name = {1}.name AND {0}.take = {1}.take AND {0}.key = {1}.key"
# A cursor that a transaction is changing would be refused after the transaction anyway.
_FREE = f"""
AND EXISTS (SELECT FROM @turn AS free WHERE {_CURSOR.format("free", "unchanged")}
  AND free.version = unchanged.before FOR UPDATE SKIP LOCKED)
"""

# Row $11 (the mover) tells which steps attempt $12 made, if the answer is lost: cursors may have
# moved on. All transactions lock rows in one order. Not durable: a cursor need not survive a crash
# of the server.
_MOVE = f"""
WITH quick AS MATERIALIZED (
  SELECT set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '{{patience}}', true)
), wanted AS MATERIALIZED (
  SELECT number, name, take::bigint, decode(key, 'hex') AS key, before::bigint, steps::bigint,
    decode(state, 'hex') AS state, token, seen::bigint, keys
  FROM quick, unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
    $7::text[], $8::text[], $13::text[], $14::text[])
    WITH ORDINALITY AS asked (name, take, key, before, steps, state, token, in_force, seen, keys,
      number)
  WHERE in_force IS NULL OR in_force::bigint = (SELECT generation FROM @control)
  ORDER BY name, take, key
), present AS MATERIALIZED (
  SELECT cassette.* FROM (SELECT DISTINCT name FROM wanted) AS asked
  JOIN @cassette AS cassette ON cassette.name = asked.name
), unchanged AS MATERIALIZED (
  SELECT given.* FROM wanted AS given LEFT JOIN present AS cassette ON cassette.name = given.name
  WHERE given.token IS NULL OR ({_UNCHANGED})
), begun AS (
  INSERT INTO @turn AS turn (name, take, key, state, version)
  SELECT name, take, key, state, (random() * 4611686018427387904)::bigint + steps FROM unchanged WHERE before = 0
  ON CONFLICT (name, take, key) DO NOTHING
  RETURNING name, take, key, version
), advanced AS (
  UPDATE @turn AS turn SET state = unchanged.state, version = before + steps
  FROM unchanged
  WHERE before > 0 AND {_CURSOR.format("turn", "unchanged")} AND turn.version = before
    {{free}}
  RETURNING turn.name, turn.take, turn.key, turn.version
), made AS MATERIALIZED (
  SELECT wanted.*, moved.version FROM wanted
  JOIN (SELECT * FROM begun UNION ALL SELECT * FROM advanced) AS moved USING (name, take, key)
), touched_rows AS (
  INSERT INTO @touched AS touched (name, take, number)
  SELECT DISTINCT made.name, made.take, used.number::bigint
  FROM made JOIN unnest($9::text[], $10::text[]) AS used (step, number)
    ON used.step::bigint = made.number
  WHERE NOT EXISTS (SELECT FROM @touched AS t WHERE t.name = made.name
      AND t.number = used.number::bigint AND t.take >= made.take)
    AND EXISTS (SELECT FROM @interaction WHERE number = used.number::bigint AND exchange
      AND cassette = (SELECT id FROM @cassette AS c WHERE c.name = made.name))
  ORDER BY 1, 2, 3
  ON CONFLICT (name, number) DO UPDATE SET take = excluded.take WHERE touched.take < excluded.take
), told AS MATERIALIZED (
  SELECT coalesce(string_agg(number || ':' || version, ' '), '') AS made FROM made
), noted AS (
  INSERT INTO @mover AS mover (id, attempt, made)
  SELECT $11::text::uuid, $12::text::uuid, made FROM told WHERE made <> ''
  ON CONFLICT (id) DO UPDATE SET attempt = excluded.attempt, seen = clock_timestamp(),
    made = CASE WHEN mover.attempt = excluded.attempt THEN mover.made || ' ' ELSE '' END
      || excluded.made
)
SELECT made, ARRAY(SELECT revision || ' ' || name FROM present) AS revisions FROM told
"""  # noqa: S608
_MADE = "SELECT made FROM @mover WHERE id = $1::text::uuid AND attempt = $2::text::uuid"
_MOVE_FREE = _MOVE.format(free=_FREE, patience="200ms")
_MOVE_AGAIN = _MOVE.format(free="", patience="2s")
"""Its first run may be about to commit."""


@dataclass(slots=True)
class _Chain:
    """Steps of one cursor, each beginning at the state after the step before."""

    version: int
    """The cursor's version before the moves, 0 for a cursor that has not moved yet."""
    steps: list[_Step]

    @property
    def last(self) -> CursorMove:
        return self.steps[-1][0]

    def continues_with(self, move: CursorMove) -> bool:
        last = self.last
        return move.before is last and move.seen == last.seen and move.generation == last.generation


class WaitingMoves:
    """Made in the order they were added, on the event loop; one statement is under way at a time."""

    def __init__(self, pool: Pool, spawn: Callable[[Coroutine[None, None, None]], None]) -> None:
        """The connection is made like those of `pool`; `spawn` runs a task."""
        self._pool = Pool(replace(pool.address, connections=1), SETTINGS)
        self._pool.pooled = pool.pooled
        self._id = str(uuid4())
        self._spawn = spawn
        self._waiting: deque[_Step] = deque()
        self._under_way = False

    def add(self, move: CursorMove, done: MoveDone) -> None:
        """Make a step soon; `done` is called on the event loop, once it is made or refused."""
        self._waiting.append((move, done))
        if not self._under_way:
            self._under_way = True
            self._spawn(self._make_waiting())

    async def close(self) -> None:
        """Close the connection, once no step is under way."""
        await self._pool.close()

    async def _make_waiting(self) -> None:
        try:
            while self._waiting:
                await self._make_some()
        finally:
            self._under_way = False

    async def _make_some(self) -> None:
        staying, refused, chains = self._take()
        _tell(refused, None)
        if staying:
            _tell(staying, await _outcome(self._compare([move for move, _ in staying])))
        if chains:
            outcome = await _outcome(self._make(chains))
            # There may be room for some of them.
            alone = isinstance(outcome, StoreFull) and len(chains) > 1
            for chain in chains:
                _tell(chain.steps, await _outcome(self._make([chain])) if alone else outcome)

    def _take(self) -> tuple[Sequence[_Step], Sequence[_Step], Sequence[_Chain]]:
        """The steps to make now: those that stay, those already refused, and the rest by cursor."""
        staying, refused, later = list[_Step](), list[_Step](), list[_Step]()
        chains: dict[tuple[str, int, bytes], _Chain] = {}
        while self._waiting and len(chains) < MOST:
            step = self._waiting.popleft()
            move = step[0]
            if move.state is None:
                staying.append(step)
                continue
            cursor = (move.name, move.take, move.key)
            chain = chains.get(cursor)
            if chain is not None and not chain.continues_with(move):
                # The result depends on the moves before it.
                later.append(step)
                continue
            if chain is not None:
                chain.steps.append(step)
            elif (version := _version_before(move)) is not None:
                chains[cursor] = _Chain(version, [step])
            else:
                refused.append(step)
        self._waiting.extendleft(reversed(later))
        return staying, refused, list(chains.values())

    async def _compare(self, staying: Sequence[CursorMove]) -> None:
        """Set `after` where the cassette and what is in force are unchanged. Raises StoreError."""
        asked = list(dict.fromkeys([(move.name, move.seen) for move in staying if move.seen]))
        arguments = [name for name, _ in asked], *_seen([seen for _, seen in asked])
        rows = await self._pool.read(
            "compare cassettes", lambda session: session.rows(_COMPARE, *arguments)
        )
        found = dict(zip(asked, rows, strict=True))
        for move in staying:
            if move.seen is None:
                continue
            same, move.revision, in_force = found[move.name, move.seen]
            if same and move.generation in (None, in_force):
                move.after = STAYED

    async def _make(self, chains: Sequence[_Chain]) -> None:
        """Make the possible steps; `after` of the remaining steps stays None. Raises StoreError.

        Raises StoreAway where nobody knows whether the steps were made.
        """
        work = partial(_move, _arguments(chains), self._id, str(uuid4()), [])
        made, revisions = await self._pool.read("advance cursors", work)
        for number, chain in enumerate(chains):
            last, steps = made.get(number), chain.steps
            chain.last.revision = revisions.get(chain.last.name, 0)
            if last is not None:
                for at, (step, _) in enumerate(steps, last + 1 - len(steps)):
                    step.after = CursorState(step.state or b"", at)


async def _move(
    arguments: tuple[Sequence[object], Sequence[object]],
    mover: str,
    attempt: str,
    tried: list[bool],
    session: Session,
) -> tuple[Mapping[int, int], Mapping[str, int]]:
    """The new versions of moved cursors, by position, and the revisions of cassettes, by name.

    A cursor under change by another transaction is missing. `tried` is not empty after a first run
    whose connection was lost: the second run does not repeat steps of the first run.
    """
    again = bool(tried)
    tried.append(True)
    try:
        sql, (first, seen) = _MOVE_AGAIN if again else _MOVE_FREE, arguments
        moved = await session.row(sql, *first, mover, attempt, *seen)
        revisions = [] if moved is None or again else moved["revisions"]
        if again:
            moved = await session.row(_MADE, mover, attempt)
    except errors.FAULTS as exc:
        if errors.state_of(exc) != _LOCKED or again:
            raise
        moved, revisions = None, []
    made: str = "" if moved is None else moved["made"]
    pairs = [part.split(":") for part in made.split()]
    # A name may hold anything but a number holds no space.
    split = [text.partition(" ") for text in revisions]
    present = {name: int(revision) for revision, _, name in split}
    return {int(number) - 1: int(version) for number, version in pairs}, present


def _arguments(chains: Sequence[_Chain]) -> tuple[Sequence[object], Sequence[object]]:
    """Arrays of text: the driver knows them without asking the server."""
    used = [
        (str(number), str(move.touched))
        for number, chain in enumerate(chains, 1)
        for move, _ in chain.steps
        if move.touched is not None
    ]
    tokens, *seen = _seen([chain.last.seen for chain in chains])
    first = (
        [chain.last.name for chain in chains],
        [str(chain.last.take) for chain in chains],
        hexes([chain.last.key for chain in chains]),
        [str(chain.version) for chain in chains],
        [str(len(chain.steps)) for chain in chains],
        [(chain.last.state or b"").hex() for chain in chains],
        tokens,
        [None if chain.last.generation is None else str(chain.last.generation) for chain in chains],
        [step for step, _ in used],
        [number for _, number in used],
    )
    return first, seen


def _seen(given: Sequence[SeenCassette | None]) -> tuple[list[str | None], ...]:
    """Tokens, revisions and keys of what decisions knew; None where nothing is compared."""
    return (
        [seen and seen.token for seen in given],
        [None if seen is None else str(seen.revision) for seen in given],
        [None if seen is None else ",".join([key.hex() for key in seen.keys]) for seen in given],
    )


def _version_before(move: CursorMove) -> int | None:
    """The version of the cursor that a step begins at, None where it is refused already."""
    before = move.before
    if isinstance(before, CursorMove):
        return None if before.after is None else before.after.version
    return 0 if before is None else before.version


async def _outcome(work: Coroutine[None, None, None]) -> Exception | None:
    """The error of some work; whatever it is, callers wait for it."""
    try:
        await work
    except Exception as exc:
        return exc
    return None


def _tell(steps: Sequence[_Step], refused: Exception | None) -> None:
    loop = asyncio.get_running_loop()
    for move, done in steps:
        # Each result separately: an error must not keep the remaining callers waiting.
        loop.call_soon(done, move, refused and copy_of(refused))
