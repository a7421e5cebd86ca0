"""Large bodies of a remote store: upload, and download at reading.

A body is downloaded into a file without a name: nothing is left behind however the process ends.
"""

import asyncio
import hashlib
from collections.abc import Iterable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import partial

from tapeway.body_files import TemporaryFile, stream_body
from tapeway.core.model.interaction import AnyInteraction, replace_large_bodies
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteCorrupt, StoreAway, closed
from tapeway.stores.remote.client import RemoteClient, path_of
from tapeway.stores.remote.errors import RemoteRefused, unexpected
from tapeway.stores.support.large_bodies import TemporaryFileCache, write_temporary

_DOWNLOADS_AT_ONCE = 4


class RemoteBodies:
    """The large bodies of one store. Those last used stay here as temporary files."""

    def __init__(self, client: RemoteClient) -> None:
        self._client = client
        self._threads: ThreadPoolExecutor | None = None
        self._cached = TemporaryFileCache()

    def open(self) -> None:
        """Let bodies be read from now on."""
        self._threads = ThreadPoolExecutor(_DOWNLOADS_AT_ONCE, thread_name_prefix="tapeway-bodies")

    def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
        self._cached.clear()

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        """A body, durable at the remote tapeway. Raises StoreError, and what `pieces` raises."""
        path_of(name)
        file, own = await asyncio.to_thread(write_temporary, pieces)
        await self.upload(name, file)
        return replace(file, handle=RemoteBodyFile(self, name, file, own))

    async def upload(self, name: str, file: BodyFile) -> None:
        """Send a body for an interaction that is sent next."""
        answer = await self._client.ask(
            "PUT",
            f"{path_of(name)}/bodies/{file.digest}",
            headers={
                "Content-Type": "application/octet-stream",
                "Content-Length": str(file.size),
            },
            body=lambda: stream_body(file),
        )
        if answer != {"sha256": file.digest, "size": file.size}:
            raise unexpected(self._client.shown)

    def with_bodies(self, name: str, item: AnyInteraction) -> AnyInteraction:
        """The interaction with large bodies that are downloaded when they are opened."""
        return replace_large_bodies(
            item, lambda file: replace(file, handle=RemoteBodyFile(self, name, file))
        )

    def fetch(self, name: str, file: BodyFile) -> TemporaryFile:
        """A body's file. Raises CassetteCorrupt where it is gone, StoreError."""
        if (cached := self._cached.get(file.digest)) is not None:
            return cached
        if (threads := self._threads) is None:
            raise closed(self._client.shown)
        # On a loop of its own: whoever asks is in some thread, and may be on the store's loop.
        download = partial(self._download, name, file)
        try:
            return threads.submit(copy_context().run, lambda: asyncio.run(download())).result()
        except CancelledError:
            raise closed(self._client.shown) from None

    def cache(self, file: BodyFile, temporary: TemporaryFile) -> None:
        """Keep a body here for a while."""
        self._cached.add(file.digest, temporary, file.size)

    async def _download(self, name: str, file: BodyFile) -> TemporaryFile:
        if (cached := self._cached.get(file.digest)) is not None:
            return cached
        client = self._client.for_another_loop()
        await client.open()
        try:
            temporary = await client.retried(lambda: _downloaded(client, name, file))
        except RemoteRefused as exc:
            if exc.remote_code not in ("no_body", "no_cassette"):
                raise
            raise CassetteCorrupt(
                f"{client.shown}: the large body sha256-{file.digest} of cassette '{name}' is "
                "gone, its recording was removed or replaced meanwhile"
            ) from exc
        finally:
            await client.close()
        self.cache(file, temporary)
        return temporary


class RemoteBodyFile(TemporaryFile):
    """A body that is downloaded at opening, unless the upload's file is still here."""

    def __init__(
        self, bodies: RemoteBodies, name: str, file: BodyFile, own: TemporaryFile | None = None
    ) -> None:
        self._bodies = bodies
        self._name = name
        self._file = replace(file, handle=None)
        self._own = own

    def open(self) -> int:
        own = self._own
        return (self._bodies.fetch(self._name, self._file) if own is None else own).open()

    def release(self) -> None:
        """Give its file to the cache: a recording at the remote tapeway refers to it now."""
        if self._own is not None:
            self._bodies.cache(self._file, self._own)
            self._own = None


async def _downloaded(client: RemoteClient, name: str, file: BodyFile) -> TemporaryFile:
    temporary, digest, size = TemporaryFile(None), hashlib.sha256(), 0
    async with client.pieces(f"{path_of(name)}/bodies/{file.digest}") as pieces:
        async for piece in pieces:
            digest.update(piece)
            size += len(piece)
            temporary.write(piece)
    if (size, digest.hexdigest()) != (file.size, file.digest):
        raise StoreAway(f"{client.shown} sent another body than the one asked for")
    return temporary
