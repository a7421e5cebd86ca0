"""The store `shelf:FILE` of a package outside of tapeway: a file of Python's own `sqlite3`."""

import asyncio
import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tapeway.core.http.routing import check_cassette_name
from tapeway.core.model.cassette import CassetteHead, CassetteStat, Recording, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, replace_large_bodies
from tapeway.core.model.messages import BodyFile
from tapeway.errors import ConfigError, StoreError, closed
from tapeway.ports import StoreFacts
from tapeway.stores.opening import StoreAddress
from tapeway.stores.support.columns import (
    head_of,
    head_text,
    imported_text,
    interaction_of,
    recording_text,
)
from tapeway.stores.support.large_bodies import damaged, write_temporary
from tapeway.stores.whole import WholeCassettes

_TABLES = """
CREATE TABLE IF NOT EXISTS change (number INTEGER PRIMARY KEY AUTOINCREMENT);
CREATE TABLE IF NOT EXISTS cassette (name PRIMARY KEY, created_at, run_id, meta, at, change);
CREATE TABLE IF NOT EXISTS interaction (cassette, number INTEGER, added, place, text);
CREATE TABLE IF NOT EXISTS body (cassette, digest, content, PRIMARY KEY (cassette, digest));
"""
_UNUSED = """DELETE FROM body WHERE cassette = ?1 AND NOT EXISTS (
    SELECT 1 FROM interaction WHERE cassette = ?1 AND instr(text, digest))"""


def open_shelf(address: StoreAddress) -> "ShelfStore":
    """The store of an address, which tapeway finds by the entry point."""
    if not (path := address.rest.removeprefix("//")):
        raise ConfigError(f"the store '{address.url}' names no file: use shelf:calls.shelf")
    return ShelfStore(Path(path))


class ShelfStore(WholeCassettes):
    """Cassettes in one file. Their large bodies are in it too."""

    def __init__(self, path: Path) -> None:
        self.url = f"shelf:{path}"
        self.facts = StoreFacts(durability="disk", file=path)
        self._path = path
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        if self._connection is not None:
            return
        try:
            self._connection = sqlite3.connect(self._path, isolation_level=None)
            self._connection.executescript(_TABLES)
        except sqlite3.Error as exc:
            self._connection = None
            raise StoreError(f"{self._path}: it cannot be used ({exc})") from exc

    async def close(self, within_s: float = math.inf) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def names(self) -> Sequence[str]:
        return [name for (name,) in self._all("SELECT name FROM cassette ORDER BY name")]

    async def stat(self, name: str) -> CassetteStat | None:
        check_cassette_name(name)
        sql = "SELECT coalesce(sum(length(text)), 0) FROM interaction WHERE cassette = ?"
        ((size,),) = self._all(sql, name)
        for at, change in self._all("SELECT at, change FROM cassette WHERE name = ?", name):
            return CassetteStat(size, at, str(change))
        return None

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        check_cassette_name(name)
        with self._transaction():
            heads = self._all("SELECT created_at, run_id, meta FROM cassette WHERE name = ?", name)
            rows = self._all(
                "SELECT number, text FROM interaction WHERE cassette = ? "
                "ORDER BY added, place, rowid",
                name,
            )
            items = [self._read(name, number, text) for number, text in rows]
        for created_at, run_id, meta in heads:
            return StoredCassette(head_of(created_at, run_id, meta, self.url), tuple(items))
        return None

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        check_cassette_name(name)
        text, number = recording_text(recording), recording.interaction.index
        with self._transaction():
            place = (1, number)
            for index in recording.supersedes:
                earlier = (name, index)
                sql = "SELECT added, place FROM interaction WHERE cassette = ? AND number = ?"
                place = min([place, *self._all(sql, *earlier)])
                self._all("DELETE FROM interaction WHERE cassette = ? AND number = ?", *earlier)
            if not self._all("SELECT 1 FROM cassette WHERE name = ?", name):
                self._put_head(name, head)
            self._put(name, number, *place, text)
            self._changed(name)

    async def put(self, name: str, cassette: StoredCassette) -> None:
        check_cassette_name(name)
        items = [
            replace(interaction, index=at) for at, interaction in enumerate(cassette.interactions)
        ]
        texts = [imported_text(item) for item in items]
        with self._transaction():
            self._put_head(name, cassette.head)
            self._all("DELETE FROM interaction WHERE cassette = ?", name)
            for at, text in enumerate(texts):
                self._put(name, at, 0, at, text)
            self._all(_UNUSED, name)
            self._changed(name)

    async def release(self, name: str) -> None:
        stored = await self.load(name, writable=True)
        if stored and any(
            interaction.index != at for at, interaction in enumerate(stored.interactions)
        ):
            await self.save(name, stored)

    async def delete(self, name: str) -> bool:
        existed = await self.stat(name) is not None
        with self._transaction():
            self._all("DELETE FROM interaction WHERE cassette = ?", name)
            self._all("DELETE FROM body WHERE cassette = ?", name)
            self._all("DELETE FROM cassette WHERE name = ?", name)
        return existed

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        check_cassette_name(name)
        content = await asyncio.to_thread(b"".join, pieces)
        file, _ = write_temporary([content])
        self._all("INSERT OR REPLACE INTO body VALUES (?, ?, ?)", name, file.digest, content)
        return file

    def _read(self, name: str, number: int, text: bytes) -> AnyInteraction:
        def stored(file: BodyFile) -> BodyFile:
            sql = "SELECT content FROM body WHERE cassette = ? AND digest = ?"
            for (content,) in self._all(sql, name, file.digest):
                return replace(write_temporary([content])[0], parts=file.parts)
            raise damaged(self.url, file.digest)

        return replace_large_bodies(interaction_of(text, number, self.url), stored)

    def _put_head(self, name: str, head: CassetteHead) -> None:
        fields = (head.created_at, head.run_id, head_text(head), "", 0)
        self._all("INSERT OR REPLACE INTO cassette VALUES (?, ?, ?, ?, ?, ?)", name, *fields)

    def _put(self, name: str, *row: object) -> None:
        self._all("INSERT INTO interaction VALUES (?, ?, ?, ?, ?)", name, *row)

    def _changed(self, name: str) -> None:
        """Note the time, and a number that no other change has."""
        self._all("INSERT INTO change DEFAULT VALUES")
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        change = self._all("SELECT max(number) FROM change")[0][0]
        self._all("UPDATE cassette SET at = ?, change = ? WHERE name = ?", now, change, name)

    def _all(self, sql: str, *values: object) -> list[Any]:
        if self._connection is None:
            raise closed(self.url)
        return self._connection.execute(sql, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._all("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._all("ROLLBACK")
            raise
        self._all("COMMIT")
