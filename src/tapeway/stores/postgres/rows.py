"""An interaction as a row of its table, and back. What recordings hold is bytes there."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tapeway.core.model.cassette import CassetteHead, TakenRecording, Titled
from tapeway.errors import CassetteCorrupt
from tapeway.stores.postgres.pool import DriverRow as Line
from tapeway.stores.shared import columns

FIND = "SELECT number, take, document, sha256 FROM @interaction "
"""What `found` reads."""

TITLE = "SELECT number, method, path, query FROM @interaction "
"""What `titled` reads."""

ADD = """
INSERT INTO @interaction (cassette, number, place, take, exchange, route, base, method, path, query,
  method_path, weight, large, document, sha256)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
"""
CHANGE = """
UPDATE @interaction SET place = $3, take = $4, exchange = $5, route = $6, base = $7, method = $8,
  path = $9, query = $10, method_path = $11, weight = $12, large = $13, document = $14, sha256 = $15
WHERE cassette = $1 AND number = $2
"""


@dataclass(frozen=True, slots=True, order=True)
class RecordingSource:
    """What recordings are counted by."""

    exchange: bool
    route: bytes
    base: bytes


def source(made: columns.InteractionColumns) -> RecordingSource:
    return RecordingSource(made.exchange, made.route.encode(), made.base.encode())


def values(
    made: columns.InteractionColumns, cassette: int, index: int, place: int, take: int
) -> tuple[object, ...]:
    """The arguments of `ADD` and `CHANGE`."""
    document = made.text.encode()
    return (
        *(cassette, index, place, take, made.exchange, made.route.encode(), made.base.encode()),
        *(made.method.encode(), made.path.encode(), made.query.encode()),
        *(method_path(made.method, made.path), made.weight, bool(made.bodies)),
        *(document, hashlib.sha256(document).digest()),
    )


def method_path(method: str, path: str) -> bytes:
    """What stands for a method and path in an index, whose entries may not be long."""
    return hashlib.sha256(method.encode() + b"\0" + path.encode()).digest()


def short(key: bytes) -> bytes:
    """What stands for a key in an index."""
    return key if len(key) <= 64 else hashlib.sha256(key).digest()


def listed(keys: Iterable[bytes]) -> list[str]:
    """Keys as an argument: arrays of text are those the driver knows without asking the server."""
    return [short(key).hex() for key in keys]


AMONG = "= ANY(ARRAY(SELECT decode(unnest({0}::text[]), 'hex')))"
"""The condition that a column is one of the `listed` keys."""


def head_text(head: CassetteHead) -> tuple[bytes, bytes, bytes]:
    """A head as it is stored. Raises StoreError."""
    meta = columns.head_text(head).encode()
    return columns.column(head.created_at).encode(), columns.column(head.run_id).encode(), meta


def head(line: Line, place: str) -> CassetteHead:
    """The head of a cassette. Raises CassetteCorrupt, naming the place."""
    created_at, run_id, meta = line["created_at"], line["run_id"], line["meta"]
    return columns.head_of(created_at.decode(), run_id.decode(), meta.decode(), place)


def found(lines: Sequence[Line], place: str) -> list[TakenRecording]:
    """The recordings, their large bodies not found yet. Raises CassetteCorrupt, naming the place."""
    return [_found(line, place) for line in lines]


def titled(lines: Iterable[Line]) -> list[Titled]:
    return [
        Titled(line["number"], line["method"].decode(), (line["path"] + line["query"]).decode())
        for line in lines
    ]


def _found(line: Line, place: str) -> TakenRecording:
    index, document = line["number"], line["document"]
    if hashlib.sha256(document).digest() != line["sha256"]:
        raise CassetteCorrupt(
            f"{place}, interaction {index}: it is not what was recorded; restore it or remove it"
        )
    return TakenRecording(columns.held_of(document.decode(), index, place), line["take"])
