"""The recordings of one cassette on their way to the remote tapeway, in order.

Recordings that come while others are sent wait, and are sent together: the remote tapeway syncs its
disk once for them.

Several tapeways may record into one cassette. Each numbers its recordings by itself, and the remote
tapeway gives another index where one is taken already. `KnownCassette` remembers those indexes, and
what this process has seen of the cassette, so that it overwrites nothing else.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field

from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.interaction import AnyInteraction, large_bodies
from tapeway.errors import StoreError, TapewayError, copy_of, describe
from tapeway.formats.native import document
from tapeway.formats.native.document import decode, encode, interaction_digest
from tapeway.stores.remote.bodies import RemoteBodies, RemoteBodyFile
from tapeway.stores.remote.client import RemoteClient, path_of
from tapeway.stores.remote.errors import RemoteRefused, unexpected
from tapeway.stores.support.recording_order import RecordingOrder

_BATCH_RECORDINGS = 64
_BATCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RemoteRecording:
    """An interaction at the remote tapeway: its index there, and its digest."""

    index: int
    sha256: str


@dataclass(slots=True)
class KnownCassette:
    """A cassette as this process knows it since it was loaded or first appended to.

    `head` is the digest of its head, empty where there is no cassette; `appended` tells whether
    something was added since it was `loaded`, and `claimed` whether the remote tapeway keeps it
    loaded for this process.
    """

    loaded: bool = False
    head: str = ""
    items: RecordingOrder[RemoteRecording] = field(default_factory=RecordingOrder)
    appended: bool = False
    claimed: bool = False

    @property
    def digest(self) -> str | None:
        """The digest of the whole as far as it is known; None where there is no cassette."""
        if not self.head:
            return None
        digests = [each.sha256 for _, each in self.items.items()]
        return document.cassette_digest(self.head, digests)

    def set_loaded(self, head: str, items: Iterable[RemoteRecording]) -> None:
        """It was loaded: everything has its index of the remote tapeway."""
        self.loaded, self.head, self.appended = True, head, False
        self.items = RecordingOrder([(each.index, each) for each in items])

    def references(self, supersedes: Iterable[int]) -> list[Json]:
        """How a request names what a recording takes the place of."""
        known = [self.items.get(index) for index in supersedes]
        return [{"index": each.index, "sha256": each.sha256} for each in known if each is not None]

    def add(
        self, index: int, recording: RemoteRecording, supersedes: Iterable[int], head: str
    ) -> None:
        """A recording is durable at the remote tapeway."""
        self.items.add(index, recording, supersedes)
        self.head, self.appended = head, True


@dataclass(frozen=True, slots=True)
class QueuedRecording:
    """A recording, its document, and the future that is done when it is durable."""

    head: CassetteHead
    recording: Recording
    text: bytes
    done: "asyncio.Future[None]"


class UploadQueue:
    """Sends the recordings of a cassette, one batch after the other."""

    def __init__(
        self, name: str, client: RemoteClient, bodies: RemoteBodies, known: KnownCassette
    ) -> None:
        self._path = f"{path_of(name)}/interactions"
        self._name = name
        self._client = client
        self._bodies = bodies
        self._known = known
        self._queued: deque[QueuedRecording] = deque()
        self.idle = asyncio.Event()
        self.idle.set()

    def add(self, recording: QueuedRecording) -> bool:
        """Queue a recording; True where nothing runs the queue, and `run` is to be started."""
        self._queued.append(recording)
        start = self.idle.is_set()
        self.idle.clear()
        return start

    async def run(self) -> None:
        """Send until the queue is empty. Raises nothing: errors are set on the futures."""
        try:
            while self._queued:
                await self._send_checked(self._batch())
        finally:
            self.idle.set()

    def _batch(self) -> list[QueuedRecording]:
        batch = [self._queued.popleft()]
        size = len(batch[0].text)
        while self._queued and len(batch) < _BATCH_RECORDINGS:
            size += len(self._queued[0].text)
            if size > _BATCH_BYTES:
                break
            batch.append(self._queued.popleft())
        return batch

    async def _send_checked(self, batch: Sequence[QueuedRecording]) -> None:
        try:
            await self._send(batch)
        except RemoteRefused as exc:
            if len(batch) == 1:
                _fail(batch, exc)
                return
            # Nothing was kept: send them one by one, so that only the refused one fails.
            for each in batch:
                await self._send_checked([each])
        except TapewayError as exc:
            _fail(batch, exc)
        except Exception as exc:
            _fail(batch, StoreError(f"{self._client.shown}: sending failed ({describe(exc)})"))
        else:
            for each in batch:
                if not each.done.done():
                    each.done.set_result(None)

    async def _send(self, batch: Sequence[QueuedRecording]) -> None:
        key, sent = uuid.uuid4().hex, self._body(batch)
        try:
            answer = await self._post(key, sent)
        except RemoteRefused as exc:
            if exc.remote_code != "body_missing":
                raise
            # The remote tapeway was restarted, and forgot the bodies it was sent before.
            for each in batch:
                await self._bodies.upload_all(self._name, each.recording.interaction)
            answer = await self._post(uuid.uuid4().hex, sent)
        self._note(batch, answer)

    async def _post(self, key: str, sent: bytes) -> dict[str, Json]:
        async def body() -> AsyncIterator[bytes]:
            yield sent

        return await self._client.ask(
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

    def _body(self, batch: Sequence[QueuedRecording]) -> bytes:
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
        # Each document as it was checked, byte for byte.
        documents = b",".join([each.text for each in batch])
        return b'{"interactions":[' + documents + b"]," + about[1:]

    def _note(self, batch: Sequence[QueuedRecording], answer: dict[str, Json]) -> None:
        match answer:
            case {"head": str(head), "interactions": [*placed]} if len(placed) == len(batch):
                found = [_remote_recording(each) for each in placed]
            case _:
                raise unexpected(self._client.shown)
        for each, remote in zip(batch, found, strict=True):
            item = each.recording.interaction
            if remote is None or not _has_digest(item, remote.sha256):
                raise unexpected(self._client.shown)
            self._known.add(item.index, remote, each.recording.supersedes, head)
            for file in large_bodies(item):
                if isinstance(file.handle, RemoteBodyFile):
                    file.handle.release()


def _remote_recording(answer: Json) -> RemoteRecording | None:
    match answer:
        case {"index": int(index), "sha256": str(sha256)}:
            return RemoteRecording(index, sha256)
        case _:
            return None


def _has_digest(item: AnyInteraction, digest: str) -> bool:
    if interaction_digest(item) == digest:
        return True
    # A document may change once when it is read and written again.
    document = encode(item)
    return interaction_digest(decode(document, item.index)) == digest


def _fail(batch: Sequence[QueuedRecording], exc: TapewayError) -> None:
    for each in batch:
        if not each.done.done():
            each.done.set_exception(copy_of(exc))
