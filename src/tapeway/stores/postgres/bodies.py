"""Large bodies in PostgreSQL: in pieces, one copy per digest; read into temporary files.

A body is written under an upload id, and gets its digest when it is whole.
"""

import asyncio
import hashlib
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from uuid import UUID, uuid4

from tapeway.body_files import TemporaryFile
from tapeway.core.model.cassette import TakenRecording
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteCorrupt, StoreError
from tapeway.stores.postgres.pool import Pool, Session
from tapeway.stores.shared.large_bodies import DamagedBody, damaged, equal_pieces

_PIECES_AT_ONCE = 4
_GRACE_S = 3600.0
"""How long a body stays that no recording has referred to yet: its recording may be under way."""

_PUT = "INSERT INTO @piece (upload, number, data) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
_EXISTING = "SELECT upload FROM @body WHERE digest = $1 FOR NO KEY UPDATE"
_ADOPT = """
INSERT INTO @body AS body (digest, size, upload) VALUES ($1, $2, $3)
ON CONFLICT (digest) DO UPDATE SET size = excluded.size, upload = excluded.upload,
  idle_since = clock_timestamp()
"""
_GET = """
SELECT p.number, p.data FROM @body b JOIN @piece p ON p.upload = b.upload
WHERE b.digest = $1 AND p.number >= $2 ORDER BY p.number LIMIT $3
"""
_SIZE = """
SELECT size FROM @body b WHERE digest = $1 AND EXISTS (
  SELECT 1 FROM @usage u JOIN @cassette c ON c.id = u.cassette
  WHERE u.digest = b.digest AND c.name = $2)
"""
_UNUSED = "NOT EXISTS (SELECT 1 FROM @usage u WHERE u.digest = body.digest)"
# A body that has not been used yet has the time at which it was stored in `idle_since`.
_REMOVE = f"""
WITH gone AS (
  DELETE FROM @body AS body
  WHERE coalesce(idle_since < clock_timestamp() - $1 * interval '1 s', true) AND {_UNUSED}
  RETURNING upload)
DELETE FROM @piece USING gone WHERE piece.upload = gone.upload
"""  # noqa: S608
_ABANDONED = """
DELETE FROM @piece AS piece WHERE upload IN (
  SELECT upload FROM @piece GROUP BY upload
  HAVING max(created_at) < clock_timestamp() - $1 * interval '1 s')
AND NOT EXISTS (SELECT 1 FROM @body b WHERE b.upload = piece.upload)
"""


class Bodies:
    """The large bodies of a store. One that is in use is not read again."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._fetched: weakref.WeakValueDictionary[str, TemporaryFile] = (
            weakref.WeakValueDictionary()
        )

    async def keep(self, pieces: Iterable[bytes]) -> BodyFile:
        """A body, durable on return. It holds no connection while it waits for the next piece."""
        upload, draft, source = uuid4(), _PostgresDraft(), equal_pieces(pieces)
        try:
            while batch := await asyncio.to_thread(draft.take, source):
                await self._put(upload, draft.number, batch)
                draft.number += len(batch)
            digest = draft.digest.digest()
            await self._adopt(upload, digest, draft.size)
        except BaseException:
            await asyncio.shield(self._drop(upload))
            raise
        self._fetched[digest.hex()] = draft.copy
        return BodyFile("", draft.size, digest.hex(), handle=draft.copy)

    async def find(self, name: str, digest: str, where: str) -> BodyFile | None:
        """A body that a recording of this cassette refers to. Raises CassetteCorrupt."""

        async def find(session: Session) -> int | None:
            row = await session.row(_SIZE, bytes.fromhex(digest), name)
            return None if row is None else int(row["size"])

        size = await self._pool.read("find a large body", find)
        return None if size is None else await self._with_file(BodyFile("", size, digest), where)

    async def with_bodies(
        self, found: Sequence[TakenRecording], where: str, *, requests: bool = True
    ) -> Sequence[TakenRecording]:
        """The recordings with the large bodies of responses, and of requests where `requests`.

        Reading a lost or damaged one raises CassetteCorrupt.
        """
        return [
            replace(each, item=await self._with_files(each.item, where, requests))
            if isinstance(each.item, Interaction)
            else each
            for each in found
        ]

    async def _with_files(self, item: Interaction, where: str, requests: bool) -> Interaction:
        request, response = item.request, item.response
        if requests and request.file is not None:
            request = replace(request, file=await self._with_file(request.file, where))
        if response.file is not None:
            response = replace(response, file=await self._with_file(response.file, where))
        if request is item.request and response is item.response:
            return item
        return replace(item, request=request, response=response)

    async def _with_file(self, file: BodyFile, where: str) -> BodyFile:
        if (fetched := self._fetched.get(file.digest)) is None:
            try:
                fetched = await self._fetch(file, where)
            except CassetteCorrupt as exc:
                # Its recording is found all the same: it may be about to be recorded anew.
                return replace(file, handle=DamagedBody(exc))
            self._fetched[file.digest] = fetched
        return replace(file, handle=fetched)

    async def _fetch(self, file: BodyFile, where: str) -> TemporaryFile:
        temporary, number, size, digester = TemporaryFile(None), 0, 0, hashlib.sha256()
        digest = bytes.fromhex(file.digest)

        def add(data: bytes) -> None:
            temporary.write(data)
            digester.update(data)

        while size < file.size:

            async def read(session: Session, number: int = number) -> list[bytes]:
                found = await session.rows(_GET, digest, number, _PIECES_AT_ONCE)
                return [row["data"] for row in found]

            data = b"".join(await self._pool.read("read a large body", read))
            if not data:
                break
            await asyncio.to_thread(add, data)
            number, size = number + _PIECES_AT_ONCE, size + len(data)
        if size != file.size:
            raise CassetteCorrupt(
                f"{where}: the large body sha256-{file.digest} has {size} bytes, not the "
                f"{file.size} that were recorded: restore it"
            )
        if digester.digest() != digest:
            raise damaged(where, file.digest)
        return temporary

    async def _put(self, upload: UUID, number: int, batch: Sequence[bytes]) -> None:
        async def put(session: Session) -> None:
            for at, data in enumerate(batch, number):
                await session.run(_PUT, upload, at, data)

        await self._pool.write("store a large body", put, durable=False)

    async def _adopt(self, upload: UUID, digest: bytes, size: int) -> None:
        async def adopt(session: Session) -> None:
            # The one that is there may be damaged, and only reading it would show that.
            existing = await session.row(_EXISTING, digest)
            await session.run(_ADOPT, digest, size, upload)
            if existing is not None and existing["upload"] != upload:
                await session.run("DELETE FROM @piece WHERE upload = $1", existing["upload"])

        await self._pool.write("store a large body", adopt)

    async def _drop(self, upload: UUID) -> None:
        with suppress(StoreError):
            await self._pool.write(
                "remove a large body",
                lambda session: session.run(
                    "DELETE FROM @piece WHERE upload = $1 AND NOT EXISTS "
                    "(SELECT 1 FROM @body WHERE upload = $1)",
                    upload,
                ),
                durable=False,
            )


async def sweep(session: Session, grace_s: float = _GRACE_S) -> None:
    """Remove bodies whose last recording was removed, and after `grace_s` what was never used."""
    await session.run(_REMOVE, grace_s)
    await session.run(_ABANDONED, grace_s)


class _PostgresDraft:
    """A body being written, with a local copy for the caller."""

    def __init__(self) -> None:
        self.copy = TemporaryFile(None)
        self.digest = hashlib.sha256()
        self.size = 0
        self.number = 0

    def take(self, source: Iterator[bytes]) -> list[bytes]:
        batch = list(islice(source, _PIECES_AT_ONCE))
        for piece in batch:
            self.copy.write(piece)
            self.digest.update(piece)
            self.size += len(piece)
        return batch
