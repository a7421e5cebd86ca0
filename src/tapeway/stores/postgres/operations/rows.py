"""An interaction as a row of its table, and back."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from tapeway.core.digests import sha256
from tapeway.core.model.cassette import CassetteHead, RecordingTitle, TakenRecording
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.text import no_pause
from tapeway.errors import CassetteCorrupt
from tapeway.stores.postgres.pool import DriverRow as Row
from tapeway.stores.postgres.pool import Session
from tapeway.stores.support import columns

RECORDING = "place, number, take, document, sha256"
"""The columns that `recordings_of` takes."""

TITLE = "number, method, path, query"
"""The columns that `titles_of` takes."""

INSERT = """
INSERT INTO @interaction (place, take, exchange, route, base, method, path, query, method_path,
  weight, size, forward, backward, document, sha256, cassette, number)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
ON CONFLICT (cassette, number) DO NOTHING
"""
UPDATE = """
UPDATE @interaction SET place = $1, take = $2, exchange = $3, route = $4, base = $5, method = $6,
  path = $7, query = $8, method_path = $9, weight = $10, size = $11, forward = $12, backward = $13,
  document = $14, sha256 = $15
WHERE cassette = $16 AND number = $17
"""
_ADD = """
INSERT INTO @source AS source (cassette, shard, exchange, route, base, count, size, next, modified_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, :now)
ON CONFLICT (cassette, shard, exchange, route, base) DO UPDATE SET
  count = source.count + excluded.count, size = source.size + excluded.size,
  next = greatest(source.next, excluded.next), modified_at = excluded.modified_at
"""
# What was removed comes first: an edited recording has its number again. The cassette's row stays locked
# until the commit, so that revisions become visible in order.
_LOG = """
WITH old AS (
  UPDATE @log SET live = false
  WHERE cassette = $1 AND live AND number = ANY($2::text[]::bigint[])
  RETURNING number, place, take, key, coming_key
), entry AS (
  SELECT *, false AS live, 0 AS marks, number AS at FROM old
  UNION ALL SELECT number::bigint, place::bigint, take::bigint, decode(key, 'hex'),
    decode(coming_key, 'hex'), true, marks::integer, at
  FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
  WITH ORDINALITY AS added (number, place, take, key, coming_key, marks, at)
), head AS (
  UPDATE @cassette SET revision = revision + $9 WHERE id = $1 RETURNING revision - $9 AS base
)
INSERT INTO @log (cassette, revision, number, place, take, key, coming_key, marks, live)
SELECT $1, base + row_number() OVER (ORDER BY live, at), number, place, take, key, coming_key, marks, live
FROM entry, head
"""

CACHED = 256
CACHED_BYTES = 64 * 1024
"""The last recordings found stay in memory, unless their documents are larger: 16 MiB at most."""

Numbered = tuple[int, AnyInteraction, bytes]
"""An interaction with index and document."""


class LogChange:
    """What one transaction changes of a cassette: its log, and its counts.

    The counts are by exchange, route and base, from the columns of a recording.
    """

    def __init__(self) -> None:
        self._by_source: dict[tuple[bool, bytes, bytes], tuple[int, int]] = {}
        self._next = 0
        self._removed: list[int] = []
        self._added: list[tuple[str, str, str, str | None, str | None, str]] = []

    def add(
        self,
        row: columns.InteractionColumns,
        number: int,
        place: int,
        take: int,
        coming_key: bytes | None = None,
    ) -> None:
        """Count a recording that was added; `coming_key` is its match key by the coming rules."""
        self._count((row.exchange, row.route.encode(), row.base.encode()), 1, row.size)
        self._next = max(self._next, number + 1)
        self.log_added(number, place, take, row.filed, coming_key)

    def remove(self, number: int, exchange: object, route: bytes, base: bytes, size: int) -> None:
        """Count a recording that was removed, or is about to be added again."""
        self._count((bool(exchange), route, base), -1, -size)
        self._removed.append(number)

    def log_added(
        self,
        number: int,
        place: int,
        take: int,
        filed: columns.FiledKey,
        coming_key: bytes | None = None,
    ) -> None:
        """Have the log tell of a recording."""
        key, marks = filed
        entry = str(number), str(place), str(take), _hex(key), _hex(coming_key), str(marks)
        self._added.append(entry)

    async def log(self, cassette: int, session: Session) -> None:
        """Add to the log of a cassette that is locked."""
        if not (count := len(self._removed) + len(self._added)):
            return
        added = [list(column) for column in zip(*self._added, strict=True)] or [[]] * 6
        written = await session.run(_LOG, cassette, numbers(self._removed), *added, count)
        if written != count:
            raise CassetteCorrupt(
                f"the log of a cassette lacks {count - written} of its recordings: save it anew"
            )

    async def count(self, cassette: int, shard: int, session: Session) -> None:
        """Write the counts, late in a transaction: it locks a row until the end."""
        for source, change in sorted(self._by_source.items()):
            await session.run(_ADD, cassette, shard, *source, *change, self._next)

    def _count(self, source: tuple[bool, bytes, bytes], count: int, size: int) -> None:
        counted, sized = self._by_source.get(source, (0, 0))
        self._by_source[source] = counted + count, sized + size


def _hex(key: bytes | None) -> str | None:
    return None if key is None else key.hex()


def values_of(
    row: columns.InteractionColumns, cassette: int, number: int, place: int, take: int
) -> tuple[object, ...]:
    """The arguments of `INSERT` and `UPDATE`."""
    return (
        *(place, take, row.exchange, row.route.encode(), row.base.encode()),
        *(row.method.encode(), row.path.encode(), row.query.encode()),
        *(method_path(row.method, row.path), row.weight, row.size),
        *(row.order or (None, None)),
        *(row.text, sha256(row.text).digest(), cassette, number),
    )


def method_path(method: str, path: str) -> bytes:
    """A digest of method and path: entries of an index must be short."""
    return hashlib.sha256(method.encode() + b"\0" + path.encode()).digest()


def indexable(key: bytes) -> bytes:
    """A key, or its digest where it is too long for an index."""
    return key if len(key) <= 64 else hashlib.sha256(key).digest()


def hexes(keys: Iterable[bytes]) -> list[str]:
    """Keys as an argument: the driver knows arrays of text without asking the server."""
    return [indexable(key).hex() for key in keys]


def numbers(given: Iterable[int]) -> list[str]:
    """Numbers as an argument."""
    return [str(number) for number in given]


def head_values(head: CassetteHead) -> tuple[bytes, bytes, bytes]:
    """The columns of a head. Raises StoreError."""
    return (
        columns.column_text(head.created_at).encode(),
        columns.column_text(head.run_id).encode(),
        columns.head_text(head),
    )


def titles_of(rows: Iterable[Row]) -> list[RecordingTitle]:
    return [
        RecordingTitle(number, method.decode(), (path + query).decode())
        for number, method, path, query in rows
    ]


def recordings_of(
    rows: Sequence[Row],
    place: str,
    with_bodies: Callable[[AnyInteraction], AnyInteraction],
    *,
    held: bool = False,
    step: Callable[[], None] = no_pause,
) -> list[TakenRecording]:
    """The recordings of these rows. Raises CassetteCorrupt, naming the place.

    `step` is called after each. With `held`, a recently found recording is the same object, and callers can remember computed
    values.
    """
    decode = _held_or_decoded if held else interaction_of
    recordings: list[TakenRecording] = []
    for at, index, take, document, digest in rows:
        item = with_bodies(decode(document, digest, index, place))
        recordings.append(TakenRecording(item, take, at))
        step()
    return recordings


def _held_or_decoded(document: bytes, digest: bytes, index: int, place: str) -> AnyInteraction:
    if len(document) > CACHED_BYTES:
        return interaction_of(document, digest, index, place)
    return _held(document, digest, index, place)


def interaction_of(document: bytes, digest: bytes, index: int, place: str) -> AnyInteraction:
    """The interaction of a document with this digest. Raises CassetteCorrupt."""
    if sha256(document).digest() != digest:
        raise CassetteCorrupt(
            f"{place}, interaction {index}: it is not what was recorded; restore it or remove it"
        )
    return columns.interaction_of(document, index, place)


_held = lru_cache(maxsize=CACHED)(interaction_of)
