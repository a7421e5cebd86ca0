"""Another tapeway's admin API as the store: each operation is one call.

One tapeway at a time records into a cassette. Each append names the number of recordings that this
process knows, and the remote tapeway refuses the append if there are more or fewer.
"""

import asyncio
import logging
import math
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import (
    CassetteHead,
    CassetteStat,
    Outline,
    Recording,
    StoredCassette,
    TakenRecording,
)
from tapeway.core.model.condition import Unchanged
from tapeway.core.model.interaction import AnyInteraction, large_bodies
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteEdited, ConfigError, StoreAway, StoreError, closed
from tapeway.formats import jsonl
from tapeway.formats.cassette_file import JSON
from tapeway.formats.errors import FormatFault
from tapeway.formats.native import document
from tapeway.paging import batch_from
from tapeway.ports import StoreFacts
from tapeway.stores.remote.bodies import RemoteBodies, RemoteBodyFile
from tapeway.stores.remote.client import PATIENCE_S, SILENCE_S, RemoteAddress, RemoteClient, path_of
from tapeway.stores.remote.errors import NotAllowed, RemoteRefused, unexpected
from tapeway.stores.support.recording_order import RecordingOrder
from tapeway.stores.support.serialize import checked_documents, serialize_recording
from tapeway.stores.whole import WholeCassettes
from tapeway.version import VERSION

log = logging.getLogger(__name__)

PAGE = "1000"
_BATCH = 64
_AT_START_S = 2.0
"""How long a call waits for a remote tapeway that starts at the same time."""


@dataclass(slots=True)
class _Known:
    """A cassette as this process knows it; `head` is the digest of its head, empty without one.

    `count` is the number of recordings there; None after an append without an answer.
    """

    head: str = ""
    items: RecordingOrder[tuple[int, str]] = field(default_factory=RecordingOrder)
    count: int | None = None
    loaded: bool = False
    appended: bool = False
    claimed: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def digest(self) -> str | None:
        digests = [digest for _, (_, digest) in self.items.items()]
        return document.cassette_digest(self.head, digests) if self.head else None

    def condition(self) -> dict[str, str]:
        if not self.loaded:
            return {}
        digest = self.digest
        return {"If-None-Match": "*"} if digest is None else {"If-Match": f'"{digest}"'}

    def set_loaded(self, head: str, items: Iterable[tuple[int, str]]) -> None:
        self.head, self.items = head, RecordingOrder([(item[0], item) for item in items])
        self.count, self.loaded, self.appended = len(self.items.items()), True, False


class RemoteStore(WholeCassettes):
    """Cassettes that another tapeway keeps."""

    def __init__(
        self, address: RemoteAddress, patience_s: float = PATIENCE_S, silence_s: float = SILENCE_S
    ) -> None:
        self.url = address.shown
        self.facts = StoreFacts(durability="remote", paged=True, may_go_away=True)
        self._client = RemoteClient(address, patience_s, silence_s)
        self._bodies = RemoteBodies(self._client)
        self._known: dict[str, _Known] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_open = False

    async def open(self) -> None:
        """Raises ConfigError for what is no tapeway of this version, or does not take the token."""
        if self._is_open:
            return
        await self._client.open()
        try:
            durability = await self._client.retried(self._check_remote, patience_s=_AT_START_S)
        except BaseException as exc:
            await self._client.close()
            if isinstance(exc, NotAllowed):
                raise ConfigError(exc.message) from exc
            raise
        self.facts = replace(self.facts, durability=durability)
        self._bodies.open()
        self._is_open = True

    async def close(self, within_s: float = math.inf) -> None:
        if not self._is_open:
            return
        failed: StoreError | None = None
        try:
            async with asyncio.timeout(None if within_s == math.inf else within_s):
                for name in list(self._known):
                    await self.release(name)
        except TimeoutError:
            log.warning(
                "there was no time to give back %d cassettes to %s: everything recorded is there; "
                "eject them there if you need their files",
                *(len(self._known), self.url),
            )
        except StoreError as exc:
            failed = exc
        finally:
            self._is_open = False
            self._bodies.close()
            # Ends the calls that wait.
            await self._client.close()
            if self._under_way:
                await asyncio.wait(self._under_way)
        for sentence in self._client.take_left_over():
            log.warning("%s", sentence)
        names, self._known = list(self._known), {}
        if failed is not None:
            log.error(
                "at stop: %s; everything acknowledged is stored there. The remote tapeway keeps "
                "these cassettes in use until they are ejected there: %s",
                *(failed.message, ", ".join(names)),
            )
            raise failed

    async def check_writes(self, name: str | None = None) -> None:
        self._running()
        query = {"record": "true"}
        patience_s = 0.0 if name is None else _AT_START_S
        try:
            async with asyncio.timeout(patience_s + 1):
                await self._client.ask("GET", "/readyz", query=query, patience_s=patience_s, api="")
        except TimeoutError:
            raise StoreAway(
                f"{self.url} did not answer in time: see whether tapeway runs there"
            ) from None

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        known = self._known_of(name)
        async with known.turn:
            if writable:
                await self._client.ask("POST", f"{path_of(name)}/claim")
                known.claimed = True
            found = await self._copy(name, {})
            digest = None if found is None else found[0].digest
            if writable and known.loaded and not known.appended and digest != known.digest:
                raise CassetteEdited(
                    f"cassette '{name}' of {self.url} was changed or recorded into by somebody "
                    "since it was loaded for replay: eject it, so that it is loaded anew"
                )
            if found is None:
                known.set_loaded("", ())
                return None
            end, items = found
            numbers = [item.index for item in items]
            head = document.head_digest(end.head)
            known.set_loaded(head, zip(numbers, end.digests, strict=True))
        return StoredCassette(end.head, tuple(items))

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        known = self._known_of(name)
        text = serialize_recording(recording, dump)
        sending = self._append(name, known, head, recording, text)
        # A cancelled caller does not stop it: whether it was stored has to be known.
        task = asyncio.get_running_loop().create_task(sending)
        self._under_way.add(task)
        task.add_done_callback(self._sent)
        await asyncio.shield(task)

    async def _append(
        self, name: str, known: _Known, head: CassetteHead, recording: Recording, text: bytes
    ) -> None:
        item = recording.interaction
        async with known.turn:
            replaced = [known.items.get(index) for index in recording.supersedes]
            required: dict[str, Json] = {} if recording.goes_on is None else {"required": True}
            about: dict[str, Json] = {
                "head": _head(head),
                "supersedes": [
                    [{"index": at[0], "sha256": at[1], **required} for at in replaced if at]
                ],
                "expected": known.count,
            }
            # The document as it was checked, byte for byte.
            sent = b'{"interactions":[' + text + b"]," + dump(about)[1:]
            expected, known.count, known.claimed = known.count, None, True
            key = uuid.uuid4().hex
            try:
                try:
                    answer = await self._post(name, sent, key)
                except RemoteRefused as exc:
                    if exc.remote_code != "body_missing":
                        raise
                    # The remote tapeway was restarted, and forgot the bodies it was sent before.
                    for file in large_bodies(item):
                        await self._bodies.upload(name, file)
                    answer = await self._post(name, sent, key)
            except StoreAway:
                raise
            except StoreError:
                known.count = expected
                raise
            match answer:
                case {
                    "head": str(head_digest),
                    "count": int(count),
                    "interactions": [{"index": int(index), "sha256": str(digest)}],
                } if digest == await asyncio.to_thread(_digest_like, item, digest):
                    known.items.add(item.index, (index, digest), recording.supersedes)
                    known.head, known.count, known.appended = head_digest, count, True
                case _:
                    raise unexpected(self.url)
        for file in large_bodies(item):
            if isinstance(file.handle, RemoteBodyFile):
                file.handle.release()

    async def _post(self, name: str, sent: bytes, key: str) -> dict[str, Json]:
        async def body() -> AsyncIterator[bytes]:
            yield sent

        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(sent)),
            "Idempotency-Key": key,
        }
        path = f"{path_of(name)}/interactions"
        return await self._client.ask(
            "POST", path, query={"secrets": "keep"}, headers=headers, body=body
        )

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        self._known_of(name).claimed = True
        return await self._bodies.keep(name, pieces)

    async def put(self, name: str, cassette: StoredCassette) -> None:
        known = self._known_of(name)
        await asyncio.to_thread(_check, cassette)
        writer = jsonl.CopyWriter(cassette.head, remember=True)

        async def body() -> AsyncIterator[bytes]:
            nonlocal writer
            writer, start = jsonl.CopyWriter(cassette.head, remember=True), 0
            yield writer.first()
            items = cassette.interactions
            while batch := await asyncio.to_thread(batch_from, items, start, _BATCH):
                numbered = [replace(item, index=start + at) for at, item in enumerate(batch)]
                yield await asyncio.to_thread(writer.lines, numbered)
                start += len(batch)
            yield writer.last()

        async def put() -> str:
            headers = {"Content-Type": jsonl.MEDIA_TYPE, **known.condition()}
            path, query = f"{path_of(name)}/copy", {"secrets": "keep"}
            answer = await self._client.ask("PUT", path, query=query, headers=headers, body=body)
            return str(answer.get("sha256"))

        async with known.turn:
            try:
                digest = await put()
            except RemoteRefused as exc:
                if exc.remote_code != "body_missing":
                    raise
                for item in cassette.interactions:
                    for file in large_bodies(item):
                        await self._bodies.upload(name, file)
                digest = await put()
            except CassetteEdited:
                # Perhaps by an earlier try of this call, whose answer was lost.
                found = await self._copy(name, {})
                if found is None or found[0].digest != writer.digest:
                    raise
                digest = writer.digest
            if digest != writer.digest:
                writer = await asyncio.to_thread(_reread, cassette)
            if digest != writer.digest:
                raise unexpected(self.url)
            known.set_loaded(document.head_digest(cassette.head), enumerate(writer.digests))

    async def release(self, name: str) -> None:
        known = self._known_of(name)
        async with known.turn:
            if known.claimed:
                await self._client.ask("POST", f"{path_of(name)}/release")
            self._known.pop(name, None)

    async def delete(self, name: str) -> bool:
        return await self.remove(name)

    async def remove(self, name: str, only: Unchanged | None = None) -> bool:
        """The remote tapeway compares with the loaded version and removes in one step."""
        known = self._known_of(name)
        async with known.turn:
            existed = await self.stat(name) is not None
            condition = {} if only is None else known.condition()
            try:
                await self._client.ask("DELETE", path_of(name), headers=condition)
            except RemoteRefused as exc:
                if exc.remote_code != "no_cassette":
                    raise
            self._known.pop(name, None)
        return existed

    async def erase(self) -> Sequence[str]:
        """What calls removed there and others can still read."""
        self._running()
        return self._client.take_left_over()

    async def outline(self, name: str) -> Outline | None:
        path = path_of(name)
        self._running()
        try:
            answer = await self._client.ask("GET", f"{path}/outline")
        except RemoteRefused as exc:
            if exc.remote_code == "no_cassette":
                return None
            raise
        match answer:
            case {
                "head": {"created_at": str(at), "run_id": str(run_id), "meta": dict(meta)},
                "interactions": int(count),
                "sources": [*sources],
            }:
                routes = [source for source in sources if isinstance(source, dict)]
                pairs = frozenset((str(one["route"]), str(one["base"])) for one in routes)
                return Outline(CassetteHead(at, run_id, meta), count, pairs)
            case _:
                raise unexpected(self.url)

    async def page(self, name: str, *, after: int | None, limit: int) -> list[TakenRecording]:
        path_of(name)
        self._running()
        query = {"limit": str(limit)} | ({} if after is None else {"after": str(after)})
        found = await self._copy(name, query)
        return [] if found is None else [TakenRecording(item) for item in found[1]]

    async def names(self) -> list[str]:
        self._running()
        names: list[str] = []
        query = {"counts": "false", "limit": PAGE}
        while True:
            listed, after = await self._listed(query)
            names += [name for name, stat in listed if stat is not None]
            if after is None:
                return sorted(names)
            query["after"] = after

    async def stat(self, name: str) -> CassetteStat | None:
        path_of(name)
        self._running()
        listed, _ = await self._listed({"counts": "false", "name": name})
        return dict(listed).get(name)

    async def _check_remote(self) -> str:
        answer = await self._client.ask("GET", "/status", once=True)
        match answer:
            case {"version": str(version), "store": {"durability": str(durability)}}:
                pass
            case _:
                raise unexpected(self.url)
        if version != VERSION:
            raise ConfigError(
                f"{self.url} is tapeway {version}, and this is tapeway {VERSION}: run the same "
                "version on both sides"
            )
        if durability == "process":
            log.warning("%s keeps its cassettes in memory only", self.url)
            return "remote"
        return durability

    async def _copy(
        self, name: str, query: Mapping[str, str]
    ) -> tuple[jsonl.CopyEnd, list[AnyInteraction]] | None:
        """A cassette or a page of it, None without a cassette; asked for again if it comes cut."""

        async def attempt() -> tuple[jsonl.CopyEnd, list[AnyInteraction]]:
            reader, items = jsonl.CopyReader(remember=not query), list[AnyInteraction]()
            async with self._client.pieces(f"{path_of(name)}/copy", query) as pieces:
                async for piece in pieces:
                    items += await asyncio.to_thread(reader.feed, piece)
            try:
                return reader.finish(), items
            except jsonl.IncompleteCopy as exc:
                raise StoreAway(f"{self.url}: cassette '{name}' came cut ({exc})") from exc

        try:
            end, items = await self._client.retried(attempt)
        except RemoteRefused as exc:
            if exc.remote_code == "no_cassette":
                return None
            raise
        except FormatFault as exc:
            raise StoreError(f"{self.url}: cassette '{name}' cannot be read: {exc}") from exc
        return end, [self._bodies.with_bodies(name, item) for item in items]

    async def _listed(
        self, query: dict[str, str]
    ) -> tuple[list[tuple[str, CassetteStat | None]], str | None]:
        answer = await self._client.ask("GET", "/cassettes", query=query)
        match answer:
            case {"cassettes": [*items], "next": str() | None as after}:
                return [self._item(item) for item in items], after
            case _:
                raise unexpected(self.url)

    def _item(self, answer: Json) -> tuple[str, CassetteStat | None]:
        match answer:
            case {"name": str(name), "size_bytes": None}:
                return name, None
            case {
                "name": str(name),
                "size_bytes": int(size),
                "modified_at": str(at),
                "mark": str(version),
            }:
                return name, CassetteStat(size, at, version)
            case _:
                raise unexpected(self.url)

    def _known_of(self, name: str) -> _Known:
        path_of(name)
        self._running()
        return self._known.setdefault(name, _Known())

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            # A cancelled caller does not ask for the error.
            task.exception()

    def _running(self) -> None:
        if not self._is_open:
            raise closed(self.url)


def _head(head: CassetteHead) -> dict[str, Json]:
    return {"created_at": head.created_at, "run_id": head.run_id, "meta": dict(head.meta)}


def _check(cassette: StoredCassette) -> None:
    for _ in checked_documents(JSON, cassette):
        pass


def _digest_like(item: AnyInteraction, digest: str) -> str:
    """The digest of an item; a document may change once when it is read and written again."""
    if (own := document.interaction_digest(item)) == digest:
        return own
    return document.interaction_digest(document.decode(document.encode(item), item.index))


def _reread(cassette: StoredCassette) -> jsonl.CopyWriter:
    """The copy after its documents were read once."""
    writer = jsonl.CopyWriter(cassette.head, remember=True)
    for interaction in cassette.interactions:
        writer.lines([document.decode(document.encode(interaction), 0)])
    return writer
