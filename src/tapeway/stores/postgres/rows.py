"""An interaction as a row of its table, and back; text of recordings is stored as bytes."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tapeway.core.digests import sha256
from tapeway.core.model.cassette import CassetteHead, RecordingTitle, TakenRecording
from tapeway.errors import CassetteCorrupt
from tapeway.stores.postgres.pool import DriverRow
from tapeway.stores.shared import columns

SELECT_RECORDING = "SELECT number, place, take, document, sha256 FROM @interaction "
"""The columns that `recordings_of` takes."""

SELECT_TITLE = "SELECT number, method, path, query FROM @interaction "
"""The columns that `titles_of` takes."""

INSERT = """
INSERT INTO @interaction (cassette, number, place, take, exchange, route, base, method, path, query,
  method_path, weight, large, document, sha256)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
"""
UPDATE = """
UPDATE @interaction SET place = $3, take = $4, exchange = $5, route = $6, base = $7, method = $8,
  path = $9, query = $10, method_path = $11, weight = $12, large = $13, document = $14, sha256 = $15
WHERE cassette = $1 AND number = $2
"""


@dataclass(frozen=True, slots=True, order=True)
class RecordingSource:
    """The columns by which recordings are counted."""

    exchange: bool
    route: bytes
    base: bytes


def source_of(row: columns.InteractionColumns) -> RecordingSource:
    return RecordingSource(row.exchange, row.route.encode(), row.base.encode())


def values_of(
    row: columns.InteractionColumns, cassette: int, index: int, place: int, take: int
) -> tuple[object, ...]:
    """The arguments of `INSERT` and `UPDATE`."""
    document = row.text.encode()
    return (
        *(cassette, index, place, take, row.exchange, row.route.encode(), row.base.encode()),
        *(row.method.encode(), row.path.encode(), row.query.encode()),
        *(method_path(row.method, row.path), row.weight, bool(row.bodies)),
        *(document, sha256(document).digest()),
    )


def method_path(method: str, path: str) -> bytes:
    """A digest of method and path: entries of an index must be short."""
    return hashlib.sha256(method.encode() + b"\0" + path.encode()).digest()


def indexable(key: bytes) -> bytes:
    """A key, or its digest where it is too long for an index."""
    return key if len(key) <= 64 else hashlib.sha256(key).digest()


def hex_array(keys: Iterable[bytes]) -> list[str]:
    """Keys as one argument: the driver knows arrays of text without asking the server."""
    return [indexable(key).hex() for key in keys]


IN_HEX_ARRAY = "= ANY(ARRAY(SELECT decode(unnest({0}::text[]), 'hex')))"
"""The condition that a column is one of the keys in a `hex_array`."""


def head_values(head: CassetteHead) -> tuple[bytes, bytes, bytes]:
    """The columns of a head. Raises StoreError."""
    meta = columns.head_text(head).encode()
    return (
        columns.column_text(head.created_at).encode(),
        columns.column_text(head.run_id).encode(),
        meta,
    )


def head_of(row: DriverRow, where: str) -> CassetteHead:
    """The head of a cassette. Raises CassetteCorrupt, naming `where`."""
    created_at, run_id, meta = row["created_at"], row["run_id"], row["meta"]
    return columns.head_of(created_at.decode(), run_id.decode(), meta.decode(), where)


def recordings_of(found: Sequence[DriverRow], where: str) -> list[TakenRecording]:
    """The recordings without their large bodies. Raises CassetteCorrupt, naming `where`."""
    return [_recording_of(row, where) for row in found]


def titles_of(found: Iterable[DriverRow]) -> list[RecordingTitle]:
    return [
        RecordingTitle(row["number"], row["method"].decode(), (row["path"] + row["query"]).decode())
        for row in found
    ]


def _recording_of(row: DriverRow, where: str) -> TakenRecording:
    index, document = row["number"], row["document"]
    if sha256(document).digest() != row["sha256"]:
        raise CassetteCorrupt(
            f"{where}, interaction {index}: it is not what was recorded; restore it or remove it"
        )
    item = columns.interaction_of(document.decode(), index, where)
    return TakenRecording(item, row["take"], row["place"])
