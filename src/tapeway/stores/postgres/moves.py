"""The waiting steps of cursors: one statement makes all, while the next steps gather.

The statement goes over a separate connection, so that a busy pool delays no replay.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from tapeway.core.digests import sha256
from tapeway.core.model.control import STAYED, CursorMove, CursorState
from tapeway.errors import StoreFull, copy_of
from tapeway.ports import MoveDone
from tapeway.stores.postgres import errors
from tapeway.stores.postgres.operations.cassette_rows import CASSETTE_VERSION
from tapeway.stores.postgres.operations.rows import hexes
from tapeway.stores.postgres.pool import SETTINGS, Pool, Session
from tapeway.stores.postgres.pool import DriverRow as Row

_Step = tuple[CursorMove, MoveDone]
_Asked = tuple[str, str | None]
"""A cassette, and what is compared."""

MOST = 100
"""Cursors that are moved by one statement."""

MOST_KNOWN = 4096
"""Look-ups whose last version is known; beyond that, all are forgotten."""

_UNCHANGED = """
CASE WHEN versions.version = given.whole THEN true
WHEN given.found IS NULL OR versions.since <> given.since THEN false
ELSE given.found = (
  SELECT encode(sha256(convert_to(coalesce(string_agg(
    i.number || ':' || i.place || ':' || encode(i.sha256, 'hex'), ' ' ORDER BY i.place, i.number
  ), ''), 'UTF8')), 'hex')
  FROM @interaction i WHERE i.cassette = versions.cassette AND i.number = ANY(ARRAY(
    SELECT k.number FROM @key k
    WHERE k.cassette = versions.cassette AND k.generation = versions.generation
    AND k.digest = ANY(ARRAY(SELECT decode(unnest(string_to_array(given.digests, ',')), 'hex')))
  ))
) END
"""
"""Whether a look-up would find the same in the statement's snapshot: in a cassette without any change,
or under the same digests.
"""
_GIVEN = """
nullif(split_part({0}, ' ', 1), '') AS whole, nullif(split_part({0}, ' ', 2), '') AS digests,
nullif(split_part({0}, ' ', 3), '') AS found, rtrim(split_part({0}, ' ', 1), '0123456789') AS since
"""
"""The parts of a text of `version_found`. `since` is the version without the count of changes of
recordings: it differs once the rules have changed, or the cassette is another one.
"""
_PRESENT = f"""
SELECT name, id AS cassette, generation, version, rtrim(version, '0123456789') AS since
FROM (
  SELECT held.name, held.id, held.generation, ({CASSETTE_VERSION.format("held.name")}) AS version
  FROM @cassette AS held WHERE held.name = ANY(ARRAY(SELECT DISTINCT name FROM {{0}}))
) AS present
"""  # noqa: S608
_VERSIONS = f"""
SELECT asked.name, ({CASSETTE_VERSION.format("asked.name")}) AS version,
  (SELECT generation FROM @control) AS in_force
FROM unnest($1::text[]) AS asked (name)
"""  # noqa: S608
_COMPARE = f"""
WITH given AS MATERIALIZED (
  SELECT number, name, {_GIVEN.format("text")}
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS asked (name, text, number)
), versions AS MATERIALIZED ({_PRESENT.format("given")})
SELECT coalesce({_UNCHANGED}, false) AS same, versions.version,
  (SELECT generation FROM @control) AS in_force
FROM given LEFT JOIN versions USING (name) ORDER BY given.number
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
    decode(state, 'hex') AS state, {_GIVEN.format("text")}
  FROM quick, unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
    $7::text[], $8::text[])
    WITH ORDINALITY AS asked (name, take, key, before, steps, state, text, in_force, number)
  WHERE in_force IS NULL OR in_force::bigint = (SELECT generation FROM @control)
  ORDER BY name, take, key
), versions AS MATERIALIZED ({_PRESENT.format("wanted")}
), unchanged AS MATERIALIZED (
  SELECT given.* FROM wanted AS given LEFT JOIN versions USING (name)
  WHERE given.whole IS NULL OR {{same}}
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
SELECT made, ARRAY(SELECT version || ' ' || name FROM versions) AS versions FROM told
"""  # noqa: S608
_MADE = "SELECT made FROM @mover WHERE id = $1::text::uuid AND attempt = $2::text::uuid"
_MOVE_BRIEF = _MOVE.format(free=_FREE, patience="200ms", same="versions.version = given.whole")
"""For cassettes that have not changed: less to begin and to end for the server."""
_MOVE_FREE = _MOVE.format(free=_FREE, patience="200ms", same=_UNCHANGED)
_MOVE_AGAIN = _MOVE.format(free="", patience="2s", same=_UNCHANGED)
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
        return (
            move.before is last
            and _compared(move) == _compared(last)
            and move.generation == last.generation
        )


def version_found(
    version: str | None, digests: Sequence[bytes], found: Sequence[Row]
) -> str | None:
    """A version that differs once a look-up by these digests finds other rows.

    A change of other recordings does not matter: it costs a comparison of what is found.
    """
    if version is None or not digests:
        return version
    rows = [f"{number}:{place}:{digest.hex()}" for place, number, _, _, digest in found]
    return f"{version} {','.join(hexes(digests))} {sha256(' '.join(rows).encode()).hexdigest()}"


class _UnchangedAt:
    """At which version of the cassette what a look-up found was last seen unchanged.

    Only the next change of the cassette makes the server compare it again.
    """

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}

    def add(self, found: str | None, version: str | None) -> None:
        """Note that what was found was still there at this version of the cassette."""
        if found is None or version is None or " " not in found:
            return
        if len(self._versions) >= MOST_KNOWN:
            self._versions.clear()
        self._versions[found] = version

    def of(self, found: str | None) -> str | None:
        """The text to compare: what was found, with the last version at which it was unchanged."""
        if found is None or (version := self._versions.get(found)) is None:
            return found
        return f"{version} {found.partition(' ')[2]}"


def _version_in(found: str | None) -> str | None:
    """The version of the whole cassette."""
    return None if found is None else found.partition(" ")[0]


def _compared(move: CursorMove) -> str | None:
    """What a step compares: what was found, or the version of the whole cassette."""
    version = move.cassette_version
    return _version_in(version) if move.whole else version


class WaitingMoves:
    """Made in the order they were added, on the event loop; one statement is under way at a time."""

    def __init__(self, pool: Pool, spawn: Callable[[Coroutine[None, None, None]], None]) -> None:
        """The connection is made like those of `pool`; `spawn` runs a task."""
        self._pool = Pool(replace(pool.address, connections=1), SETTINGS)
        self._pool.pooled = pool.pooled
        self._id = str(uuid4())
        self._unchanged_at = _UnchangedAt()
        self._changing = set[str]()
        """Cassettes that had changed when they were compared last."""
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
        unchanged, in_force = await self._unchanged(
            {(move.name, _compared(move)) for move in staying}
        )
        for move in staying:
            if move.generation not in (None, in_force):
                continue
            if (move.name, _compared(move)) in unchanged:
                move.after = STAYED

    async def _unchanged(self, asked: Collection[_Asked]) -> tuple[Collection[_Asked], int | None]:
        """Those of which the store would find the same, and what is in force. Raises StoreError."""
        known, changing = self._unchanged_at, self._changing
        unchanged, in_force = set[_Asked](), None
        if names := list({name for name, _ in asked} - changing):
            rows = await self._pool.read(
                "compare cassettes", lambda session: session.rows(_VERSIONS, names)
            )
            versions = {row["name"]: row["version"] for row in rows}
            in_force = rows[0]["in_force"]
            for name, found in asked:
                if name in versions and _version_in(known.of(found)) == versions[name]:
                    unchanged.add((name, found))
                elif name in versions:
                    changing.add(name)
        if rest := [one for one in asked if one not in unchanged and one[0] in changing]:
            of_rest = [name for name, _ in rest], [known.of(found) for _, found in rest]
            rows = await self._pool.read(
                "compare cassettes", lambda session: session.rows(_COMPARE, *of_rest)
            )
            in_force = rows[0]["in_force"]
            for (name, found), (same, version, _) in zip(rest, rows, strict=True):
                if same:
                    unchanged.add((name, found))
                self._note(name, found, version, same=same)
        return unchanged, in_force

    def _note(self, name: str, found: str | None, version: str | None, *, same: bool) -> None:
        """Note what was compared with the version of a cassette."""
        if _version_in(self._unchanged_at.of(found)) == version:
            self._changing.discard(name)
        elif same:
            self._unchanged_at.add(found, version)

    async def _make(self, chains: Sequence[_Chain]) -> None:
        """Make the possible steps; `after` of the remaining steps stays None. Raises StoreError.

        Raises StoreAway where nobody knows whether the steps were made.
        """
        brief = not any(chain.last.name in self._changing for chain in chains)
        arguments = _arguments(chains, self._unchanged_at)
        work = partial(
            _move, arguments, self._id, str(uuid4()), [], _MOVE_BRIEF if brief else _MOVE_FREE
        )
        made, versions = await self._pool.read("advance cursors", work)
        again = list[_Chain]()
        for number, chain in enumerate(chains):
            move, last = chain.last, made.get(number)
            found, version = _compared(move), versions.get(move.name)
            if last is not None:
                steps = chain.steps
                for at, (step, _) in enumerate(steps, last + 1 - len(steps)):
                    step.after = CursorState(step.state or b"", at)
            elif brief and _version_in(self._unchanged_at.of(found)) not in (None, version):
                again.append(chain)
            if found is not None and not brief:
                self._note(move.name, found, version, same=last is not None)
        if again:
            self._changing.update(chain.last.name for chain in again)
            await self._make(again)


async def _move(
    arguments: Sequence[object],
    mover: str,
    attempt: str,
    tried: list[bool],
    first: str,
    session: Session,
) -> tuple[Mapping[int, int], Mapping[str, str]]:
    """The new versions of moved cursors, by position, and the present versions of cassettes, by name.

    A cursor under change by another transaction is missing. `tried` is not empty after a first run
    whose connection was lost: the second run does not repeat steps of the first run.
    """
    again = bool(tried)
    tried.append(True)
    try:
        sql = _MOVE_AGAIN if again else first
        moved = await session.row(sql, *arguments, mover, attempt)
        versions = [] if moved is None or again else moved["versions"]
        if again:
            moved = await session.row(_MADE, mover, attempt)
    except errors.FAULTS as exc:
        if errors.state_of(exc) != _LOCKED or again:
            raise
        moved, versions = None, []
    made: str = "" if moved is None else moved["made"]
    pairs = [part.split(":") for part in made.split()]
    # A name may hold anything but the versions hold no space.
    present = {name: version for version, _, name in [text.partition(" ") for text in versions]}
    return {int(number) - 1: int(version) for number, version in pairs}, present


def _arguments(chains: Sequence[_Chain], known: "_UnchangedAt") -> Sequence[object]:
    """Arrays of text: the driver knows them without asking the server."""
    used = [
        (str(number), str(move.touched))
        for number, chain in enumerate(chains, 1)
        for move, _ in chain.steps
        if move.touched is not None
    ]
    return (
        [chain.last.name for chain in chains],
        [str(chain.last.take) for chain in chains],
        hexes([chain.last.key for chain in chains]),
        [str(chain.version) for chain in chains],
        [str(len(chain.steps)) for chain in chains],
        [(chain.last.state or b"").hex() for chain in chains],
        [known.of(_compared(chain.last)) for chain in chains],
        [None if chain.last.generation is None else str(chain.last.generation) for chain in chains],
        [step for step, _ in used],
        [number for _, number in used],
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
