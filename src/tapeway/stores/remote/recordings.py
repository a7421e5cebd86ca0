"""The recordings of a cassette on the way to the remote tapeway, in order, a call for each.

Several tapeways may record into one cassette. Each numbers its recordings by itself, and the remote
tapeway gives another index where an index is taken already. `KnownCassette` remembers the remote
indexes and the last state that this process has seen. So a process overwrites no recording unseen.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable
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
from tapeway.stores.support.recording_order import RecordingOrder


@dataclass(frozen=True, slots=True)
class RemoteRecording:
    """An interaction at the remote tapeway: its index there, and its digest."""

    index: int
    sha256: str


@dataclass(slots=True)
class KnownCassette:
    """A cassette as this process knows it since the load or the first append.

    `head` is the digest of the head, empty without a cassette; `appended` tells whether something
    was added since the cassette was `loaded`, and `claimed` whether the remote tapeway keeps the
    cassette loaded for this process.
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
        digests = [item.sha256 for _, item in self.items.items()]
        return document.cassette_digest(self.head, digests)

    def set_loaded(self, head: str, items: Iterable[RemoteRecording]) -> None:
        """It was loaded: everything has its index of the remote tapeway."""
        self.loaded, self.head, self.appended = True, head, False
        self.items = RecordingOrder([(item.index, item) for item in items])

    def references(self, recording: Recording) -> list[Json]:
        """How a request names what a recording takes the place of."""
        known = [self.items.get(index) for index in recording.supersedes]
        more: dict[str, Json] = {} if recording.goes_on is None else {"required": True}
        return [
            {"index": item.index, "sha256": item.sha256, **more}
            for item in known
            if item is not None
        ]

    def add(
        self, index: int, recording: RemoteRecording, supersedes: Iterable[int], head: str
    ) -> None:
        """A recording is durable at the remote tapeway."""
        self.items.add(index, recording, supersedes)
        self.head, self.appended = head, True


class RemoteRecordings:
    """Sends the recordings of a cassette one by one."""

    def __init__(
        self, name: str, client: RemoteClient, bodies: RemoteBodies, known: KnownCassette
    ) -> None:
        self._path = f"{path_of(name)}/interactions"
        self._name = name
        self._client = client
        self._bodies = bodies
        self._known = known
        self._turn = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()

    async def send(self, head: CassetteHead, recording: Recording, text: bytes) -> None:
        """Send a recording after the earlier ones; a cancelled caller does not stop it."""
        task = asyncio.get_running_loop().create_task(self._send_in_turn(head, recording, text))
        self._under_way.add(task)
        task.add_done_callback(self._sent)
        await asyncio.shield(task)

    async def all_sent(self) -> None:
        """Wait until no recording is under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            # A cancelled caller does not ask for the error.
            task.exception()

    async def _send_in_turn(self, head: CassetteHead, recording: Recording, text: bytes) -> None:
        async with self._turn:
            try:
                await self._send(head, recording, text)
            except TapewayError:
                raise
            except Exception as exc:
                raise StoreError(f"{self._client.shown}: sending failed ({describe(exc)})") from exc

    async def _send(self, head: CassetteHead, recording: Recording, text: bytes) -> None:
        sent = self._body(head, recording, text)
        try:
            answer = await self._post(sent)
        except RemoteRefused as exc:
            if exc.remote_code != "body_missing":
                raise
            # The remote tapeway was restarted, and forgot the bodies it was sent before.
            await self._bodies.upload_all(self._name, recording.interaction)
            answer = await self._post(sent)
        self._note(recording, answer)

    async def _post(self, sent: bytes) -> dict[str, Json]:
        async def body() -> AsyncIterator[bytes]:
            yield sent

        return await self._client.ask(
            "POST",
            self._path,
            query={"secrets": "keep"},
            headers={
                "Content-Type": "application/json",
                "Content-Length": str(len(sent)),
                "Idempotency-Key": uuid.uuid4().hex,
            },
            body=body,
        )

    def _body(self, head: CassetteHead, recording: Recording, text: bytes) -> bytes:
        about = dump(
            {
                "head": {
                    "created_at": head.created_at,
                    "run_id": head.run_id,
                    "meta": dict(head.meta),
                },
                "supersedes": [self._known.references(recording)],
            }
        )
        # The document as it was checked, byte for byte.
        return b'{"interactions":[' + text + b"]," + about[1:]

    def _note(self, recording: Recording, answer: dict[str, Json]) -> None:
        item = recording.interaction
        match answer:
            case {
                "head": str(head),
                "interactions": [{"index": int(index), "sha256": str(digest)}],
            }:
                pass
            case _:
                raise unexpected(self._client.shown)
        if not _has_digest(item, digest):
            raise unexpected(self._client.shown)
        self._known.add(item.index, RemoteRecording(index, digest), recording.supersedes, head)
        for file in large_bodies(item):
            if isinstance(file.handle, RemoteBodyFile):
                file.handle.release()


def _has_digest(item: AnyInteraction, digest: str) -> bool:
    if interaction_digest(item) == digest:
        return True
    # A document may change once when it is read and written again.
    document = encode(item)
    return interaction_digest(decode(document, item.index)) == digest
