"""The recordings of one cassette on their way to the far side, in order.

While some are on their way, those that come wait and go together then: that is as much as one sync
of a disk on the far side takes.

What this process knows of a cassette on the far side, so that it overwrites nothing else there.

Several tapeways may record into one cassette. Each numbers its recordings by itself, and the far
side gives another index where one is taken already: who supersedes it later need not know.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field

from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.interaction import AnyInteraction, large_bodies
from tapeway.errors import StoreError, TapewayError, describe
from tapeway.formats.native import document
from tapeway.formats.native.document import decode, encode, interaction_digest
from tapeway.stores.remote.bodies import RemoteBodies, RemoteBodyFile
from tapeway.stores.remote.client import RemoteClient, path_of
from tapeway.stores.remote.errors import RemoteRefused, unexpected
from tapeway.stores.shared.recording_order import RecordingOrder

_MOST_TOGETHER = 64
_MOST_OCTETS = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class There:
    """An interaction on the far side: under which index, and its digest."""

    index: int
    sha256: str


@dataclass(slots=True)
class Knowledge:
    """One cassette since it was loaded or first appended to.

    `loaded` tells whether it was looked at, `head` is the digest of what it says of itself, empty
    for one that was not there; `appended` whether something was since, and `claimed` whether the
    far side has it in for us.
    """

    loaded: bool = False
    head: str = ""
    items: RecordingOrder[There] = field(default_factory=RecordingOrder)
    appended: bool = False
    claimed: bool = False

    @property
    def digest(self) -> str | None:
        """The digest of the whole as far as it is known; None where there is none."""
        if not self.head:
            return None
        digests = [there.sha256 for _, there in self.items.items()]
        return document.cassette_digest(self.head, digests)

    def look(self, head: str, there: Iterable[There]) -> None:
        """It was loaded: everything has the index that it has there."""
        self.loaded, self.head, self.appended = True, head, False
        self.items = RecordingOrder([(each.index, each) for each in there])

    def references(self, supersedes: Iterable[int]) -> list[Json]:
        """How the far side is told what a recording takes the place of."""
        known = [self.items.get(index) for index in supersedes]
        return [{"index": each.index, "sha256": each.sha256} for each in known if each is not None]

    def add(self, index: int, there: There, supersedes: Iterable[int], head: str) -> None:
        """A recording is durable there."""
        self.items.add(index, there, supersedes)
        self.head, self.appended = head, True


@dataclass(frozen=True, slots=True)
class Waiting:
    """A recording, as it is written, and who waits for it."""

    head: CassetteHead
    recording: Recording
    text: bytes
    done: "asyncio.Future[None]"


class UploadQueue:
    """Sends what waits, one batch after the other."""

    def __init__(
        self, name: str, caller: RemoteClient, bodies: RemoteBodies, known: Knowledge
    ) -> None:
        self._path = f"{path_of(name)}/interactions"
        self._name = name
        self._caller = caller
        self._bodies = bodies
        self._known = known
        self._waiting: deque[Waiting] = deque()
        self.idle = asyncio.Event()
        self.idle.set()

    def add(self, waiting: Waiting) -> bool:
        """Whether `run` is to be started now: nobody runs it."""
        self._waiting.append(waiting)
        start = self.idle.is_set()
        self.idle.clear()
        return start

    async def run(self) -> None:
        """Send until nothing waits. Raises nothing: each who waits is told."""
        try:
            while self._waiting:
                await self._send_checked(self._batch())
        finally:
            self.idle.set()

    def _batch(self) -> list[Waiting]:
        batch = [self._waiting.popleft()]
        size = len(batch[0].text)
        while self._waiting and len(batch) < _MOST_TOGETHER:
            size += len(self._waiting[0].text)
            if size > _MOST_OCTETS:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _send_checked(self, batch: Sequence[Waiting]) -> None:
        try:
            await self._send(batch)
        except RemoteRefused as exc:
            if len(batch) == 1:
                _fail(batch, exc)
                return
            # Nothing was kept; the others need not suffer for one.
            for each in batch:
                await self._send_checked([each])
        except TapewayError as exc:
            _fail(batch, exc)
        except Exception as exc:
            _fail(batch, StoreError(f"{self._caller.shown}: sending failed ({describe(exc)})"))
        else:
            for each in batch:
                if not each.done.done():
                    each.done.set_result(None)

    async def _send(self, batch: Sequence[Waiting]) -> None:
        key, sent = uuid.uuid4().hex, self._written(batch)
        try:
            said = await self._post(key, sent)
        except RemoteRefused as exc:
            if exc.said != "body_missing":
                raise
            # Another process there forgot what it was sent before.
            for each in batch:
                await self._send_bodies(each.recording.interaction)
            said = await self._post(uuid.uuid4().hex, sent)
        self._take(batch, said)

    async def _post(self, key: str, sent: bytes) -> dict[str, Json]:
        async def body() -> AsyncIterator[bytes]:
            yield sent

        return await self._caller.ask(
            "POST",
            self._path,
            query={"secrets": "keep"},
            headers={
                "Content-Type": "application/json",
                "Content-Length": str(len(sent)),
                "Idempotency-Key": key,
            },
            body=body,
        )

    def _written(self, batch: Sequence[Waiting]) -> bytes:
        about = dump(
            {
                "head": {
                    "created_at": batch[0].head.created_at,
                    "run_id": batch[0].head.run_id,
                    "meta": dict(batch[0].head.meta),
                },
                "supersedes": [self._known.references(each.recording.supersedes) for each in batch],
            }
        )
        # Each document as it was checked, octet for octet.
        documents = b",".join([each.text for each in batch])
        return b'{"interactions":[' + documents + b"]," + about[1:]

    def _take(self, batch: Sequence[Waiting], said: dict[str, Json]) -> None:
        match said:
            case {"head": str(head), "interactions": [*placed]} if len(placed) == len(batch):
                found = [_there(each) for each in placed]
            case _:
                raise unexpected(self._caller.shown)
        for each, there in zip(batch, found, strict=True):
            item = each.recording.interaction
            if there is None or not _same(item, there.sha256):
                raise unexpected(self._caller.shown)
            self._known.add(item.index, there, each.recording.supersedes, head)
            for file in large_bodies(item):
                if isinstance(file.hold, RemoteBodyFile):
                    file.hold.sent()

    async def _send_bodies(self, item: AnyInteraction) -> None:
        for file in large_bodies(item):
            await self._bodies.send(self._name, file)


def _there(said: Json) -> There | None:
    match said:
        case {"index": int(index), "sha256": str(sha256)}:
            return There(index, sha256)
        case _:
            return None


def _same(item: AnyInteraction, digest: str) -> bool:
    if interaction_digest(item) == digest:
        return True
    # What a recording says of itself settles once it is read and written.
    document = encode(item)
    return interaction_digest(decode(document, item.index)) == digest


def _fail(batch: Sequence[Waiting], exc: TapewayError) -> None:
    for each in batch:
        if not each.done.done():
            # One exception raised in several tasks would mix up their tracebacks.
            another = type(exc).__new__(type(exc))
            another.__dict__.update(exc.__dict__)
            another.args = exc.args
            another.__cause__ = exc.__cause__
            each.done.set_exception(another)
