"""Large bodies of a remote store: on their way there, and copies of those that came from there.

A body comes when it is read, into a file without a name: nothing is left behind however the process
ends. Those lately read are at hand.
"""

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import partial

from tapeway.body_files import Temporary, stream
from tapeway.core.model.interaction import AnyInteraction, replace_large_bodies
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteCorrupt, StoreAway, closed
from tapeway.stores.remote.client import RemoteClient, path_of
from tapeway.stores.remote.errors import RemoteRefused, unexpected

_AT_HAND = 256 * 1024 * 1024
_MOST = 64
"""Each is a descriptor."""

_AT_ONCE = 4


class RemoteBodies:
    """Those of one store."""

    def __init__(self, caller: RemoteClient) -> None:
        self._caller = caller
        self._couriers: ThreadPoolExecutor | None = None
        self._guard = threading.Lock()
        self._at_hand: OrderedDict[str, tuple[Temporary, int]] = OrderedDict()

    def open(self) -> None:
        """Let bodies be read from now on."""
        self._couriers = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tapeway-bodies")

    def close(self) -> None:
        """Let go of what is at hand."""
        couriers, self._couriers = self._couriers, None
        if couriers is not None:
            couriers.shutdown(wait=False, cancel_futures=True)
        with self._guard:
            self._at_hand.clear()

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        """A body, durable on the far side on return. Raises StoreError, and what `pieces` raises."""
        path_of(name)
        file, held = await asyncio.to_thread(_written, pieces)
        await self.send(name, file)
        return replace(file, hold=RemoteBodyFile(self, name, file, held))

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

    def lend(self, name: str, item: AnyInteraction) -> AnyInteraction:
        """The interaction with its large bodies within reach."""
        return replace_large_bodies(item, lambda file: self._lent(name, file))

    def fetch(self, name: str, file: BodyFile) -> Temporary:
        """A body's file. Raises CassetteCorrupt where it is gone, StoreError."""
        if (found := self._found(file)) is not None:
            return found
        if (couriers := self._couriers) is None:
            raise closed(self._caller.shown)
        # On a loop of its own: whoever asks is in some thread, and may be on the store's loop.
        errand = partial(self._errand, name, file)
        try:
            return couriers.submit(copy_context().run, errand).result()
        except CancelledError:
            raise closed(self._caller.shown) from None

    def hand(self, file: BodyFile, held: Temporary) -> None:
        """Have a body at hand for a while."""
        with self._guard:
            self._at_hand[file.digest] = held, file.size
            while (
                len(self._at_hand) > _MOST
                or sum(size for _, size in self._at_hand.values()) > _AT_HAND
            ):
                self._at_hand.popitem(last=False)

    def _found(self, file: BodyFile) -> Temporary | None:
        with self._guard:
            if (found := self._at_hand.get(file.digest)) is None:
                return None
            self._at_hand.move_to_end(file.digest)
            return found[0]

    def _lent(self, name: str, file: BodyFile) -> BodyFile:
        return replace(file, hold=RemoteBodyFile(self, name, file))

    def _errand(self, name: str, file: BodyFile) -> Temporary:
        return asyncio.run(self._fetched(name, file))

    async def _fetched(self, name: str, file: BodyFile) -> Temporary:
        if (found := self._found(file)) is not None:
            return found
        caller = self._caller.another()
        await caller.open()
        try:
            held = await caller.again(lambda: _come(caller, name, file))
        except RemoteRefused as exc:
            if exc.said not in ("no_body", "no_cassette"):
                raise
            raise CassetteCorrupt(
                f"{caller.shown}: the large body sha256-{file.digest} of cassette '{name}' is "
                "gone, its recording was removed or replaced meanwhile"
            ) from exc
        finally:
            await caller.close()
        self.hand(file, held)
        return held


class RemoteBodyFile(Temporary):
    """A body that is asked for when it is opened, unless it has just been sent from here."""

    def __init__(
        self, bodies: RemoteBodies, name: str, file: BodyFile, own: Temporary | None = None
    ) -> None:
        self._bodies = bodies
        self._name = name
        self._file = replace(file, hold=None)
        self._own = own

    def open(self) -> int:
        own = self._own
        return (self._bodies.fetch(self._name, self._file) if own is None else own).open()

    def sent(self) -> None:
        """A recording refers to it on the far side: the copy that lies here may go."""
        if self._own is not None:
            self._bodies.hand(self._file, self._own)
            self._own = None


async def _come(caller: RemoteClient, name: str, file: BodyFile) -> Temporary:
    held, digest, size = Temporary(None), hashlib.sha256(), 0
    async with caller.pieces(f"{path_of(name)}/bodies/{file.digest}") as pieces:
        async for piece in pieces:
            digest.update(piece)
            size += len(piece)
            held.write(piece)
    if (size, digest.hexdigest()) != (file.size, file.digest):
        raise StoreAway(f"{caller.shown} sent another body than the one asked for")
    return held


def _written(pieces: Iterable[bytes]) -> tuple[BodyFile, Temporary]:
    held, digest, size = Temporary(None), hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        size += len(piece)
        held.write(piece)
    return BodyFile("", size, digest.hexdigest(), hold=held), held
