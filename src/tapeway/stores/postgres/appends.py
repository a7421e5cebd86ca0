"""Recordings, claims and numbers that wait together, each kind in one transaction.

Locks are taken in one order: the cassette, leases by key, cursors by key, counts, what was used. So
does a recording in a transaction of its own (`operations/recordings.py`), but for the counts, which it
takes before the cursor: other rows of them.
"""

import secrets
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple
from uuid import uuid4

from tapeway.core.model.cassette import Lease, Recording
from tapeway.core.model.control import CursorState
from tapeway.core.model.interaction import exchange_of
from tapeway.errors import StoreAway, StoreError, fenced
from tapeway.stores.postgres.errors import FAULTS, state_of
from tapeway.stores.postgres.gathering import Gathering
from tapeway.stores.postgres.operations import rows
from tapeway.stores.postgres.operations.coordination import Member
from tapeway.stores.postgres.operations.cursors import HIGHEST, first_version
from tapeway.stores.postgres.operations.recordings import IndexTaken
from tapeway.stores.postgres.operations.rows import hexes, indexable, numbers
from tapeway.stores.postgres.pool import (
    APPENDING_CONNECTIONS,
    PATIENCE_S,
    SETTINGS,
    TAKEN,
    DriverRow,
    Pool,
    Session,
)
from tapeway.stores.support.background_tasks import BackgroundTasks
from tapeway.stores.support.columns import InteractionColumns, columns_of, rules_of

SHARDS = 16
"""Rows of counts of a cassette: each transaction draws one, and seldom waits for another."""

MOST_BYTES = 2 * 1024 * 1024
"""Documents of one transaction: a statement has to end within some seconds."""

MOST_METAS = 1000
"""Cassettes whose metadata is known; beyond that, all are forgotten."""

_LARGE = 256 * 1024
"""A larger document is recorded on its own: in an array it takes twice the room."""

_TRIES = 8
"""How often a recording is tried together with others: each try, another instance moved its cursor."""

_CASSETTE = "SELECT meta, generation, coming_generation FROM @cassette WHERE name = $1"
# What a lock was waited for is compared again: the snapshot is older than the lock. Where the cassette
# has changed in between, nothing is replaced: what stands there by now would be missed.
_WRITE = """
WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', $5, true)),
item AS MATERIALIZED (
  SELECT number::bigint, take::bigint, exchange::boolean, decode(route, 'hex') AS route,
    decode(base, 'hex') AS base, decode(method, 'hex') AS method, decode(path, 'hex') AS path,
    decode(query, 'hex') AS query, decode(method_path, 'hex') AS method_path,
    weight::bigint, size::bigint, decode(forward, 'hex') AS forward,
    decode(backward, 'hex') AS backward, decode(document, 'hex') AS document,
    decode(sha256, 'hex') AS sha256, decode(lease, 'hex') AS lease, fence::bigint,
    decode(key, 'hex') AS key, before::bigint, decode(state, 'hex') AS state, version::bigint,
    decode(match_key, 'hex') AS match_key, marks::integer
  FROM quick, unnest($9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[],
    $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[],
    $22::text[], $23::text[], $24::text[], $25::text[], $26::text[], $27::text[], $28::text[],
    $29::text[], $30::text[], $31::text[])
  AS given (number, take, exchange, route, base, method, path, query, method_path, weight, size,
    forward, backward, document, sha256, lease, fence, key, before, state, version, match_key, marks)
), seen AS MATERIALIZED (
  SELECT revision FROM @cassette WHERE name = $1::text
), locked AS MATERIALIZED (
  SELECT id, generation, revision = (SELECT revision FROM seen) AS fresh FROM @cassette
  WHERE name = $1::text AND generation = $2::text::bigint AND meta = decode($3::text, 'hex')
    AND coming_generation IS NULL
  FOR NO KEY UPDATE
), held AS MATERIALIZED (
  SELECT lease.fence FROM @lease AS lease JOIN item ON lease.key = item.lease,
    (SELECT count(*) FROM locked) AS first
  WHERE lease.name = $1::text AND lease.fence = item.fence AND lease.instance = $4
  ORDER BY lease.key FOR UPDATE OF lease
), good AS MATERIALIZED (
  SELECT item.*, locked.id AS cassette, locked.generation FROM item, locked
  WHERE (fence IS NULL OR fence IN (SELECT fence FROM held))
    AND NOT EXISTS (SELECT FROM @interaction AS i WHERE i.cassette = locked.id AND i.number = item.number)
    {fresh}
), begun AS (
  INSERT INTO @turn AS turn (name, take, key, state, version)
  SELECT $1::text, take, key, state, version FROM good WHERE key IS NOT NULL AND before IS NULL
  ORDER BY take, key
  ON CONFLICT (name, take, key) DO NOTHING RETURNING take, key
), locked_turn AS MATERIALIZED (
  SELECT turn.take, turn.key FROM @turn AS turn JOIN good USING (take, key),
    (SELECT count(*) FROM begun) AS first
  WHERE turn.name = $1::text AND turn.version = good.before
  ORDER BY turn.take, turn.key FOR UPDATE OF turn
), advanced AS (
  UPDATE @turn AS turn SET state = good.state, version = good.before + 1
  FROM good JOIN locked_turn USING (take, key)
  WHERE turn.name = $1::text AND turn.take = good.take AND turn.key = good.key
  RETURNING turn.take, turn.key
), moved AS MATERIALIZED (
  SELECT * FROM good WHERE key IS NULL
    OR (take, key) IN (SELECT take, key FROM begun UNION ALL SELECT take, key FROM advanced)
{removed}), added AS (
  INSERT INTO @interaction (cassette, number, place, take, exchange, route, base, method, path,
    query, method_path, weight, size, forward, backward, document, sha256)
  SELECT cassette, number, {place}, take, exchange, route, base, method, path, query, method_path,
    weight, size, forward, backward, document, sha256
  FROM {placed} ORDER BY number RETURNING number
), found_by AS (
  INSERT INTO @key (cassette, generation, digest, number)
  SELECT moved.cassette, moved.generation, decode(digest, 'hex'), number
  FROM unnest($7::text[], $8::text[]) AS given (of, digest) JOIN moved ON moved.number = of::bigint
  ORDER BY number, digest
{entry}), head AS (
  UPDATE @cassette SET revision = revision + (SELECT count(*) FROM {logged})
  WHERE id = (SELECT id FROM locked) RETURNING revision - (SELECT count(*) FROM {logged}) AS base
), logged AS (
  INSERT INTO @log (cassette, revision, number, place, take, key, marks, live)
  SELECT cassette, head.base + row_number() OVER (ORDER BY {order}), number, {place}, take, {entry_key}, marks,
    {live}
  FROM {logged}, head
), counted AS (
  INSERT INTO @source AS source (cassette, shard, exchange, route, base, count, size, next, modified_at)
  SELECT locked.id, $6::text::integer, exchange, route, base, sum(count), sum(size), max(next), :now
  FROM locked, (
    SELECT exchange, route, base, 1 AS count, size, number + 1 AS next FROM moved JOIN added USING (number)
    {uncounted}) AS counts
  GROUP BY locked.id, exchange, route, base
  ORDER BY exchange, route, base
  ON CONFLICT (cassette, shard, exchange, route, base) DO UPDATE SET
    count = source.count + excluded.count, size = source.size + excluded.size,
    next = greatest(source.next, excluded.next), modified_at = excluded.modified_at
  RETURNING 1
), freed AS (
  DELETE FROM @lease AS lease USING moved
  WHERE lease.name = $1::text AND lease.key = moved.lease AND lease.fence = moved.fence
{forgotten}), used AS (
  INSERT INTO @touched AS touched (name, take, number)
  SELECT $1::text, take, number FROM moved, (SELECT count(*) FROM counted) AS first
  WHERE key IS NOT NULL AND exchange ORDER BY number
  ON CONFLICT (name, number) DO UPDATE SET take = excluded.take WHERE touched.take < excluded.take
), noted AS (
  INSERT INTO @attempt (id, result)
  SELECT $32::text::uuid, convert_to(coalesce(string_agg(number::text, ' '), ''), 'UTF8') FROM added
)
SELECT item.number, moved.number IS NOT NULL AS added, locked.id IS NOT NULL AS there, locked.fresh,
  item.fence IS NULL OR item.fence IN (SELECT fence FROM held) AS held,
  good.number IS NOT NULL AS free, turn.state, turn.version
FROM item LEFT JOIN locked ON true LEFT JOIN good USING (number) LEFT JOIN moved USING (number)
LEFT JOIN @turn AS turn ON turn.name = $1::text AND turn.take = item.take AND turn.key = item.key
"""
"""Writes what can be written of these recordings, in one snapshot, and tells of the others why not.

Attempt $32 keeps what was added, if the answer is lost. The cursor of a recording is a new one, or has
the version `before`.
"""
_ADD = _WRITE.format(
    fresh="",
    removed="",
    placed="moved",
    place="number",
    entry="",
    logged="moved",
    order="number",
    entry_key="match_key",
    live="true",
    uncounted="",
    forgotten="",
)
_REPLACE = _WRITE.format(
    fresh="AND (locked.fresh OR item.number <> ALL($33::text[]::bigint[]))",
    removed="""), removed AS (
  DELETE FROM @interaction AS i USING moved
    JOIN unnest($33::text[], $34::text[]) AS given (of, old) ON moved.number = of::bigint
  WHERE i.cassette = moved.cassette AND i.number = old::bigint
  RETURNING i.number, i.place, i.exchange, i.route, i.base, i.size, moved.number AS by
), placed AS MATERIALIZED (
  SELECT moved.*, coalesce((SELECT min(removed.place) FROM removed WHERE by = moved.number),
    moved.number) AS place
  FROM moved
), idle AS (
  UPDATE @body AS body SET idle_since = 0 WHERE idle_since IS NULL
    AND id = ANY(ARRAY(SELECT u.body FROM @usage u JOIN removed USING (number)
      WHERE u.cassette = (SELECT id FROM locked)))
    AND NOT EXISTS (SELECT FROM @usage u WHERE u.body = body.id
      AND NOT (u.cassette = (SELECT id FROM locked) AND u.number IN (SELECT number FROM removed)))
""",
    placed="placed",
    place="place",
    entry="""), old AS (
  UPDATE @log AS log SET live = false FROM removed
  WHERE log.cassette = (SELECT id FROM locked) AND log.number = removed.number AND log.live
  RETURNING log.cassette, log.number, log.place, log.take, log.key
), entry AS MATERIALIZED (
  SELECT *, 0 AS marks, false AS live FROM old
  UNION ALL SELECT cassette, number, place, take, match_key, marks, true FROM placed
""",
    logged="entry",
    order="live, number",
    entry_key="key",
    live="live",
    uncounted="UNION ALL SELECT exchange, route, base, -1, -size, 0 FROM removed",
    forgotten="""), forgotten AS (
  DELETE FROM @touched WHERE name = $1::text AND number IN (SELECT number FROM removed)
""",
)
"""For recordings of which some replace others."""

_ADDED = "SELECT result FROM @attempt WHERE id = $1::text::uuid"
_SETTING = "WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', {}, true))"
_RESERVE = f"""
{_SETTING.format("'off'")}
INSERT INTO @numbering AS numbering (name, next)
SELECT $1::text, ({HIGHEST}) + $2::text::bigint FROM quick
ON CONFLICT (name) DO UPDATE SET
  next = greatest(numbering.next + $2::text::bigint, excluded.next)
RETURNING next
"""  # noqa: S608
_CLAIM = f"""
{_SETTING.format("$5")}
INSERT INTO @lease (name, key, fence, instance, since)
SELECT name, decode(key, 'hex'), fence::bigint, $4, :now
FROM quick, unnest($1::text[], $2::text[], $3::text[]) AS asked (name, key, fence)
ORDER BY name, key ON CONFLICT (name, key) DO NOTHING RETURNING fence
"""  # noqa: S608
_CLAIMED = """
SELECT fence FROM @lease WHERE instance = $1 AND fence = ANY($2::text[]::bigint[])
"""


class Meta(NamedTuple):
    """Under which rules the columns of a recording are made."""

    text: bytes
    generation: int


@dataclass(slots=True, eq=False)
class Append:
    """A recording on its way, with its document and the cursor as it was seen."""

    recording: Recording
    text: bytes
    columns: InteractionColumns
    turn: CursorState | None = None

    @property
    def number(self) -> int:
        return self.recording.interaction.index

    @property
    def cursor(self) -> tuple[int, bytes] | None:
        step = self.recording.step
        return None if step is None else (step.take, indexable(step.key))

    @property
    def places(self) -> Collection[Hashable]:
        """What only one recording of a transaction may have."""
        places = [self.number, *self.recording.supersedes, self.cursor]
        return [place for place in places if place is not None]


class _Later(Exception):
    """Its cursor is another one by now, or the rules are."""


class Alone(Exception):
    """A recording that has to be made in a transaction of its own."""


class Appends:
    """What an instance is about to write, gathered by cassette."""

    def __init__(self, pool: Pool, member: Member, background: BackgroundTasks) -> None:
        """Its connections are made like those of `pool`."""
        self._pool = Pool(replace(pool.address, connections=APPENDING_CONNECTIONS), SETTINGS)
        self._pool.pooled, self._pool.sync = pool.pooled, pool.sync
        self._member = member
        self._background = background
        self._recordings: dict[str, Gathering[tuple[Meta, Append], None]] = {}
        self._numbers: dict[str, Gathering[None, int]] = {}
        self._claims = Gathering[Lease, bool](self._claim, background.spawn)
        self._metas: dict[str, Meta] = {}
        """The last seen of a cassette: columns are made before anything is locked."""

    async def close(self) -> None:
        """Close the connections, once nothing is under way."""
        await self._pool.close()

    async def append(self, name: str, recording: Recording, text: bytes) -> None:
        """Record it. Raises StoreError, IndexTaken, Fenced, and Alone where nothing was tried."""
        exchange = exchange_of(recording.interaction)
        files = () if exchange is None else (exchange.request.file, exchange.response.file)
        if (
            recording.goes_on is not None
            or len(text) > _LARGE
            or any(file is not None for file in files)
        ):
            raise Alone
        meta, turn = self._metas.get(name), None
        for _ in range(_TRIES):
            meta = meta or await self._meta(name)
            made = columns_of(recording.interaction, text, rules_of(meta.text))
            append = Append(recording, text, made, turn)
            try:
                return await self._add(name, meta, append)
            except _Later:
                meta, turn = self._metas.get(name), append.turn
        raise Alone

    async def _add(self, name: str, meta: Meta, append: Append) -> None:
        gathering = self._recordings.get(name)
        if gathering is None:
            self._recordings[name] = gathering = Gathering(
                partial(self._record, name),
                self._background.spawn,
                apart=lambda one: one[1].places,
                size=lambda one: len(one[1].text),
                most_size=MOST_BYTES,
            )
        try:
            await gathering.add((meta, append))
        finally:
            # Names can be made up: none stays that nobody waits for.
            if not gathering.waiting and self._recordings.get(name) is gathering:
                del self._recordings[name]

    async def _meta(self, name: str) -> Meta:
        """What is known of a cassette. Raises Alone where there is none, and while its rules change."""
        rows_found = await self._pool.read(
            f"read '{name}'", lambda session: session.rows(_CASSETTE, name)
        )
        if not rows_found or rows_found[0]["coming_generation"] is not None:
            raise Alone
        meta = Meta(rows_found[0]["meta"], rows_found[0]["generation"])
        if len(self._metas) >= MOST_METAS:
            self._metas.clear()
        self._metas[name] = meta
        return meta

    async def reserve(self, name: str) -> int:
        """An index that nobody else gets. Raises StoreError."""
        gathering = self._numbers.get(name)
        if gathering is None:
            make = partial(self._reserve, name)
            self._numbers[name] = gathering = Gathering(make, self._background.spawn)
        try:
            return await gathering.add(None)
        finally:
            if not gathering.waiting and self._numbers.get(name) is gathering:
                del self._numbers[name]

    async def claim(self, lease: Lease) -> bool:
        """Whether the lease was free. Raises StoreError."""
        return await self._claims.add(lease)

    async def _record(
        self, name: str, given: Sequence[tuple[Meta, Append]]
    ) -> Sequence[Exception | None]:
        meta = given[-1][0]
        batch = [one for under, one in given if under == meta]
        try:
            outcome = await self._write(name, meta, batch)
        except StoreAway:
            raise
        except StoreError:
            if len(given) == 1:
                raise
            # One that cannot be stored must not keep the others out.
            return [await self._alone(name, *one) for one in given]
        results = dict(zip(map(id, batch), outcome, strict=True))
        return [results.get(id(one), _Later()) for _, one in given]

    async def _alone(self, name: str, meta: Meta, append: Append) -> Exception | None:
        try:
            (result,) = await self._record(name, [(meta, append)])
        except StoreError as exc:
            return exc
        return result

    async def _write(
        self, name: str, meta: Meta, batch: Sequence[Append]
    ) -> Sequence[Exception | None]:
        """What became of each recording. Raises StoreError."""
        attempt, tried = str(uuid4()), list[bool]()
        keys = [
            (str(one.number), key)
            for one in batch
            for key in dict.fromkeys(hexes(one.columns.keys))
        ]
        over = [(str(one.number), str(old)) for one in batch for old in one.recording.supersedes]
        arguments = (
            *(name, str(meta.generation), meta.text.hex(), self._member.id, self._pool.sync),
            *(str(secrets.randbelow(SHARDS)), [of for of, _ in keys], [key for _, key in keys]),
            *[list(column) for column in zip(*map(_row, batch), strict=True)],
            attempt,
            *([of for of, _ in over], [old for _, old in over]),
        )
        if over:
            sql = _REPLACE
        else:
            sql, arguments = _ADD, arguments[:-2]

        async def write(session: Session) -> Mapping[int, DriverRow] | Collection[int]:
            again = bool(tried)
            tried.append(True)
            try:
                return {row["number"]: row for row in await session.rows(sql, *arguments)}
            except FAULTS as exc:
                # An earlier run was committed, or is about to be.
                if not again or state_of(exc) != TAKEN:
                    raise
            row = await session.row(_ADDED, attempt)
            return frozenset() if row is None else frozenset(map(int, row["result"].split()))

        found = await self._pool.read(f"record into '{name}'", write, patience=PATIENCE_S)
        if not isinstance(found, Mapping):
            return [None if one.number in found else _Later() for one in batch]
        return [self._result(name, meta, one, found[one.number]) for one in batch]

    def _result(self, name: str, meta: Meta, one: Append, row: DriverRow) -> Exception | None:
        if row["added"]:
            return None
        if not row["there"]:
            if self._metas.get(name) == meta:
                del self._metas[name]
            return _Later()
        if not row["held"]:
            return fenced(name)
        stale = one.recording.supersedes and not row["fresh"]
        if not row["free"] and not stale:
            return IndexTaken(f"another recording has index {one.number}")
        one.turn = None if row["version"] is None else CursorState(row["state"], row["version"])
        return _Later()

    async def _reserve(self, name: str, batch: Sequence[None]) -> Sequence[int]:
        async def reserve(session: Session) -> int:
            row = await session.row(_RESERVE, name, str(len(batch)))
            assert row is not None  # noqa: S101 - an upsert returns its row
            return int(row["next"])

        # A recording makes its number durable, and a number that is taken is found out.
        after = await self._pool.read(f"number the recordings of '{name}'", reserve)
        return range(after - len(batch), after)

    async def _claim(self, batch: Sequence[Lease]) -> Sequence[bool]:
        tried = list[bool]()

        async def claim(session: Session) -> Collection[int]:
            again = bool(tried)
            tried.append(True)
            names, keys = [lease.name for lease in batch], hexes(lease.key for lease in batch)
            fences = numbers(lease.fence for lease in batch)
            arguments = names, keys, fences, self._member.id, self._pool.sync
            made = await session.rows(_CLAIM, *arguments)
            if again:
                # The first run may have been committed.
                made = await session.rows(_CLAIMED, self._member.id, fences)
            return {row["fence"] for row in made}

        claimed = await self._pool.read("claim leases", claim)
        return [lease.fence in claimed for lease in batch]


def _row(one: Append) -> Sequence[str | None]:
    """The arguments of `_ADD` for a recording: texts, which the driver knows without the server."""
    lease, step, cursor, turn = one.recording.lease, one.recording.step, one.cursor, one.turn
    # In the order of `rows.INSERT`.
    (_, _, exchange, *octets, weight, size, forward, backward, document, digest, _, _) = (
        rows.values_of(one.columns, 0, one.number, 0, 0)
    )
    return (
        str(one.number),
        str(0 if step is None else step.take),
        str(exchange),
        *[_hex(value) for value in octets],
        None if weight is None else str(weight),
        str(size),
        *[_hex(value) for value in (forward, backward, document, digest)],
        *((None, None) if lease is None else (indexable(lease.key).hex(), str(lease.fence))),
        None if cursor is None else cursor[1].hex(),
        None if turn is None else str(turn.version),
        None if step is None else step.advance(None if turn is None else turn.state).hex(),
        None if step is None else str(first_version()),
        _hex(one.columns.filed.key),
        str(one.columns.filed.marks),
    )


def _hex(value: object) -> str | None:
    return value.hex() if isinstance(value, bytes) else None
