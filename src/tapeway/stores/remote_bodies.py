"""Large bodies of a remote store: on their way there, and copies of those that came from there.

Copies lie in a folder of this process, by digest, and go when the store is closed.
"""

import asyncio
import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path

from tapeway.core.model import BodyFile, Interaction
from tapeway.core.shared import Held
from tapeway.errors import StoreAway
from tapeway.spool import stream
from tapeway.stores.disk import store_error, write_all
from tapeway.stores.remote_caller import Caller, path_of
from tapeway.stores.remote_refusals import unexpected

_DEED = "keep a large body for a while"


class RemoteBodies:
    """Those of one store."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._folder: Path | None = None
        self._door = asyncio.Lock()

    async def close(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        """A body, durable on the far side on return. Raises StoreError, and what `pieces` raises."""
        path_of(name)
        file = await asyncio.to_thread(self._written, pieces)
        await self.send(name, file)
        return file

    async def send(self, name: str, file: BodyFile) -> None:
        """Have a body on the far side, for an interaction that comes next."""
        said = await self._caller.ask(
            "PUT",
            f"{path_of(name)}/bodies/{file.digest}",
            headers={
                "Content-Type": "application/octet-stream",
                "Content-Length": str(file.size),
            },
            body=lambda: stream(file),
        )
        if said != {"sha256": file.digest, "size": file.size}:
            raise unexpected(self._caller.shown)

    async def at_hand(self, name: str, item: Held) -> Held:
        """The interaction with copies of its large bodies. Raises StoreError."""
        if not isinstance(item, Interaction):
            return item
        request, response = item.request, item.response
        if request.file is not None:
            request = replace(request, file=await self._fetched(name, request.file))
        if response.file is not None:
            response = replace(response, file=await self._fetched(name, response.file))
        if request is item.request and response is item.response:
            return item
        return replace(item, request=request, response=response)

    async def _fetched(self, name: str, file: BodyFile) -> BodyFile:
        async with self._door:
            place = self._place() / f"sha256-{file.digest}"
            if not place.exists():

                async def attempt() -> None:
                    path = f"{path_of(name)}/bodies/{file.digest}"
                    async with self._caller.pieces(path) as pieces:
                        await self._take(place, file, pieces)

                await self._caller.again(attempt)
            return replace(file, path=str(place))

    async def _take(self, place: Path, file: BodyFile, pieces: AsyncIterator[bytes]) -> None:
        draft, digest, size = _Draft(place.parent), hashlib.sha256(), 0
        try:
            async for piece in pieces:
                digest.update(piece)
                size += len(piece)
                await asyncio.to_thread(draft.write, piece)
            if (size, digest.hexdigest()) != (file.size, file.digest):
                raise StoreAway(f"{self._caller.shown} sent another body than the one asked for")
            draft.adopt(place)
        finally:
            draft.close()

    def _written(self, pieces: Iterable[bytes]) -> BodyFile:
        draft, digest, size = _Draft(self._place()), hashlib.sha256(), 0
        try:
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
                draft.write(piece)
            place = self._place() / f"sha256-{digest.hexdigest()}"
            draft.adopt(place)
        finally:
            draft.close()
        return BodyFile(str(place), size, digest.hexdigest())

    def _place(self) -> Path:
        if self._folder is None:
            try:
                self._folder = Path(tempfile.mkdtemp(prefix="tapeway-"))
            except OSError as exc:
                raise store_error(exc, tempfile.gettempdir(), _DEED) from exc
        return self._folder


class _Draft:
    """A copy under construction."""

    def __init__(self, folder: Path) -> None:
        try:
            self._fd, self._name = tempfile.mkstemp(dir=folder)
        except OSError as exc:
            raise store_error(exc, str(folder), _DEED) from exc

    def write(self, piece: bytes) -> None:
        try:
            write_all(self._fd, piece)
        except OSError as exc:
            raise store_error(exc, self._name, _DEED) from exc

    def adopt(self, place: Path) -> None:
        try:
            os.rename(self._name, place)
        except OSError as exc:
            raise store_error(exc, str(place), _DEED) from exc

    def close(self) -> None:
        os.close(self._fd)
        Path(self._name).unlink(missing_ok=True)
