"""Cassettes as the remote tapeway sends them: a whole cassette or a page in one answer.

An answer that breaks off is asked for again.
"""

import asyncio
from collections.abc import Mapping

from tapeway.core.model.cassette import TakenRecording
from tapeway.core.model.interaction import AnyInteraction
from tapeway.errors import StoreAway, StoreError
from tapeway.formats import jsonl
from tapeway.formats.errors import FormatFault
from tapeway.stores.remote.bodies import RemoteBodies
from tapeway.stores.remote.client import RemoteClient, path_of
from tapeway.stores.remote.errors import RemoteRefused


class CassetteCopies:
    """Reads the cassettes of one store."""

    def __init__(self, client: RemoteClient, bodies: RemoteBodies) -> None:
        self._client = client
        self._bodies = bodies

    async def whole(self, name: str) -> tuple[jsonl.CopyEnd, list[AnyInteraction]] | None:
        """All recordings, or None without a cassette. Raises StoreError."""
        return await self._read(name, {})

    async def page(self, name: str, after: int | None, limit: int) -> list[TakenRecording]:
        """The next recordings after an index, or the first. Raises CassetteEdited, StoreError."""
        query = {"limit": str(limit)} | ({} if after is None else {"after": str(after)})
        recordings = await self._read(name, query)
        return (
            [] if recordings is None else [TakenRecording(recording) for recording in recordings[1]]
        )

    async def _read(
        self, name: str, query: Mapping[str, str]
    ) -> tuple[jsonl.CopyEnd, list[AnyInteraction]] | None:
        async def attempt() -> tuple[jsonl.CopyEnd, list[AnyInteraction]]:
            reader, items = jsonl.CopyReader(remember=not query), list[AnyInteraction]()
            async with self._client.pieces(f"{path_of(name)}/copy", query) as pieces:
                async for piece in pieces:
                    items += await asyncio.to_thread(reader.feed, piece)
            try:
                return reader.finish(), items
            except jsonl.IncompleteCopy as exc:
                shown = self._client.shown
                raise StoreAway(f"{shown}: cassette '{name}' came cut ({exc})") from exc

        try:
            end, items = await self._client.retried(attempt)
        except RemoteRefused as exc:
            if exc.remote_code == "no_cassette":
                return None
            raise
        except FormatFault as exc:
            raise StoreError(
                f"{self._client.shown}: cassette '{name}' cannot be read: {exc}"
            ) from exc
        return end, [self._bodies.with_bodies(name, item) for item in items]
