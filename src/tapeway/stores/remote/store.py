"""Another tapeway's admin API as the store: each operation is one call.

One tapeway at a time records into a cassette. Each append names the number of recordings that this
process knows, and the remote tapeway refuses the append if there are more or fewer.
"""

import asyncio
import hashlib
import logging
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from tapeway.body_files import MIB, PIECE, TemporaryFile, stream_body
from tapeway.core.http.routing import check_cassette_name
from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import CassetteHead, CassetteStat, Recording, StoredCassette
from tapeway.core.model.condition import Unchanged
from tapeway.core.model.interaction import AnyInteraction, large_bodies, replace_large_bodies
from tapeway.core.model.messages import BodyFile
from tapeway.errors import (
    CassetteCorrupt,
    CassetteEdited,
    CassetteLocked,
    ConfigError,
    StoreAway,
    StoreError,
    StoreFull,
    closed,
)
from tapeway.formats import jsonl
from tapeway.formats.cassette_file import JSON
from tapeway.formats.errors import FormatFault
from tapeway.formats.native import document
from tapeway.ports import StoreFacts
from tapeway.stores.remote.client import (
    API,
    PATIENCE_S,
    SILENCE_S,
    Body,
    NotAllowed,
    RemoteAddress,
    RemoteClient,
    RemoteRefused,
)
from tapeway.stores.support.large_bodies import FetchedBody, TemporaryFileCache, write_temporary
from tapeway.stores.support.recording_order import RecordingOrder
from tapeway.stores.support.serialize import checked_documents, serialize_recording
from tapeway.stores.whole import WholeCassettes
from tapeway.version import VERSION

log = logging.getLogger(__name__)
T = TypeVar("T")

PAGE = "1000"
_AT_START_S = 2.0
"""How long a call waits for a remote tapeway that starts at the same time."""
_NOT_STORED = (RemoteRefused, CassetteLocked, CassetteEdited, StoreFull)
"""The answers after which it is sure that nothing was stored."""


@dataclass(slots=True)
class _RemoteCassette:
    """A cassette as this process knows it; `head` is the digest of its head, empty without one."""

    head: str = ""
    items: RecordingOrder[tuple[int, str]] = field(default_factory=RecordingOrder)
    """Index and digest at the remote tapeway, by the index here."""
    count: int | None = None
    loaded: bool = False
    appended: bool = False
    pending: tuple[Recording, bytes, str] | None = None
    """The append whose outcome is not known: recording, body and Idempotency-Key."""
    bodies: dict[str, TemporaryFile] = field(default_factory=dict)
    """The large bodies that are sent with the append that names them."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def digest(self) -> str | None:
        digests = [digest for _, (_, digest) in self.items.items()]
        return document.cassette_digest(self.head, digests) if self.head else None

    @property
    def is_written(self) -> bool:
        return self.appended or self.pending is not None

    def condition(self) -> dict[str, str]:
        if not self.loaded:
            return {}
        return {"If-Match": f'"{self.digest}"'} if self.head else {"If-None-Match": "*"}

    def set_loaded(self, head: CassetteHead | None, items: Iterable[tuple[int, str]]) -> None:
        self.head = "" if head is None else document.head_digest(head)
        self.items = RecordingOrder([(item[0], item) for item in items])
        self.count, self.loaded = len(self.items.items()), True
        self.pending = None


class RemoteStore(WholeCassettes):
    """Cassettes that another tapeway keeps."""

    def __init__(
        self, address: RemoteAddress, patience_s: float = PATIENCE_S, silence_s: float = SILENCE_S
    ) -> None:
        self.url = address.root
        self.facts = StoreFacts(durability="remote", may_go_away=True)
        self._client = RemoteClient(address, patience_s, silence_s)
        self._known: dict[str, _RemoteCassette] = {}
        self._downloaded = TemporaryFileCache()
        self._is_open = False
        self._is_away = False

    async def open(self) -> None:
        """Raises ConfigError for what is no tapeway of this version, or does not take the token."""
        if self._is_open:
            return
        await self._client.open()
        try:
            answer = await self._client.ask("GET", f"{API}/status", patience_s=_AT_START_S)
            self.facts = replace(self.facts, durability=self._durability(answer))
        except BaseException as exc:
            await self._client.close()
            if isinstance(exc, NotAllowed):
                raise ConfigError(exc.message) from exc
            raise
        self._is_open = True

    def _durability(self, status: Mapping[str, Json]) -> str:
        match status:
            case {"version": str(version), "store": {"durability": str(durability)}}:
                if version != VERSION:
                    raise ConfigError(
                        f"{self.url} is tapeway {version}, and this is tapeway {VERSION}: run the "
                        "same version on both sides"
                    )
                if durability == "process":
                    log.warning("%s keeps its cassettes in memory only", self.url)
                    return "remote"
                return durability
            case _:
                raise self._client.unexpected()

    async def close(self, within_s: float = math.inf) -> None:
        if not self._is_open:
            return
        written = [name for name, known in self._known.items() if known.is_written]
        failed: list[BaseException | None] = []
        try:
            async with asyncio.timeout(None if within_s == math.inf else within_s):
                if written:
                    # Not a silence for each cassette.
                    await self._look(f"{API}/status", 0.0)
                releases = [self.release(name) for name in written]
                failed = await asyncio.gather(*releases, return_exceptions=True)
        except StoreError as exc:
            failed = [exc]
        except TimeoutError:
            pass
        finally:
            self._is_open = False
            # Ends the calls that wait.
            await self._client.close()
        for sentence in self._client.take_left_over():
            log.warning("%s", sentence)
        if left := [name for name in written if name in self._known]:
            log.warning(
                "everything acknowledged is stored at %s, but %d cassettes could not be given back: "
                "eject them there if you need their files: %s",
                *(self.url, len(left), ", ".join(left)),
            )
        self._known = {}
        for error in filter(None, failed):
            raise error

    async def check_reads(self) -> None:
        self._check_open()
        await self._look(f"{API}/status", 0.0)

    async def check_writes(self, name: str | None = None) -> None:
        self._check_open()
        patience_s = 0.0 if name is None or self._is_away else _AT_START_S
        self._is_away = True
        await self._look("/readyz?record=true", patience_s)
        self._is_away = False

    async def _look(self, path: str, patience_s: float) -> None:
        try:
            async with asyncio.timeout(patience_s + 1):
                await self._client.ask("GET", path, patience_s=patience_s)
        except TimeoutError:
            raise StoreAway(
                f"{self.url} did not answer in time: see whether tapeway runs there"
            ) from None

    async def names(self) -> list[str]:
        return sorted([name async for name, _ in self._listed({"limit": PAGE})])

    async def stat(self, name: str) -> CassetteStat | None:
        _path_of(name)
        return {found: stat async for found, stat in self._listed({"name": name})}.get(name)

    async def _listed(self, query: dict[str, str]) -> AsyncIterator[tuple[str, CassetteStat]]:
        self._check_open()
        after: str | None = ""
        while after is not None:
            asked = {"counts": "false", **query, **({"after": after} if after else {})}
            match await self._client.ask("GET", f"{API}/cassettes", query=asked):
                case {"cassettes": [*items], "next": str() | None as after}:
                    for item in items:
                        match item:
                            case {"size_bytes": None}:
                                pass  # Nothing is stored yet.
                            case {
                                "name": str(name),
                                "size_bytes": int(size),
                                "modified_at": str(at),
                                "mark": str(version),
                            }:
                                yield name, CassetteStat(size, at, version)
                            case _:
                                raise self._client.unexpected()
                case _:
                    raise self._client.unexpected()

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        known = self._known_of(name)
        async with known.turn:
            end, items = await self._copy(name)
            digest = None if end is None else end.digest
            if writable and known.loaded and not known.appended and digest != known.digest:
                raise CassetteEdited(
                    f"cassette '{name}' of {self.url} was changed or recorded into by somebody "
                    "since it was loaded for replay: eject it, so that it is loaded anew"
                )
            if end is None:
                known.set_loaded(None, ())
                return None
            numbers = [item.index for item in items]
            known.set_loaded(end.head, zip(numbers, end.digests, strict=True))
        downloaded = partial(self._downloaded_when_opened, name)
        return StoredCassette(
            end.head, tuple([replace_large_bodies(item, downloaded) for item in items])
        )

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        known = self._known_of(name)
        # The document as it was checked, byte for byte.
        text = serialize_recording(recording, dump)
        async with known.turn:
            await self._settle(name, known)
            if known.count is None:
                known.count = len((await self._copy(name))[1])
            required: dict[str, Json] = {} if recording.goes_on is None else {"required": True}
            replaced = [known.items.get(index) for index in recording.supersedes]
            meta: dict[str, Json] = dict(head.meta)
            about: dict[str, Json] = {
                "head": {"created_at": head.created_at, "run_id": head.run_id, "meta": meta},
                "supersedes": [
                    [{"index": at[0], "sha256": at[1], **required} for at in replaced if at]
                ],
                "expected": known.count,
            }
            body = b'{"interactions":[' + text + b"]," + dump(about)[1:]
            known.pending = recording, body, uuid.uuid4().hex
            await self._send(name, known, *known.pending)

    async def _settle(self, name: str, known: _RemoteCassette) -> None:
        """Send a pending append again with its key: the answer tells what is stored."""
        if known.pending is not None:
            recording = known.pending[0]
            with suppress(*_NOT_STORED):
                await self._send(name, known, *known.pending)
                own = recording.interaction.index
                for index in recording.supersedes[:1]:
                    # Whoever got an error for it knows the recording by its index from before.
                    known.items.add(index, known.items.get(own) or (own, ""), (own,))

    async def _send(
        self, name: str, known: _RemoteCassette, recording: Recording, text: bytes, key: str
    ) -> None:
        """Send an append. It stays pending until the remote tapeway says what it did."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        path = f"{_path_of(name)}/interactions?secrets=keep"
        item = recording.interaction
        try:
            await self._upload(name, known, [item])
            answer = await self._client.ask("POST", path, headers, _body(text))
        except _NOT_STORED:
            known.pending = None
            raise
        match answer:
            case {
                "head": str(head),
                "count": int(count),
                "interactions": [{"index": int(index), "sha256": str(digest)}],
            } if len(digest) == 64:
                known.items.add(item.index, (index, digest), recording.supersedes)
            case _:
                raise self._client.unexpected()
        known.head, known.count, known.appended, known.pending = head, count, True, None
        self._forget_sent(known, [item])

    async def put(self, name: str, cassette: StoredCassette) -> None:
        known, items = self._known_of(name), cassette.interactions
        text, digest, digests = await asyncio.to_thread(_copy_of, cassette)
        headers = {"Content-Type": jsonl.MEDIA_TYPE}
        path = f"{_path_of(name)}/copy?secrets=keep"
        async with known.turn:
            await self._upload(name, known, items)
            try:
                condition = known.condition()
                answer = await self._client.ask("PUT", path, headers | condition, _body(text))
            except CassetteEdited:
                # Perhaps by an earlier try of this call, whose answer was lost.
                end, _ = await self._copy(name)
                if end is None or end.digest != digest:
                    raise
            else:
                if answer.get("sha256") != digest:
                    raise self._client.unexpected()
            known.set_loaded(cassette.head, enumerate(digests))
        self._forget_sent(known, items)

    async def delete(self, name: str) -> bool:
        return await self.remove(name)

    async def remove(self, name: str, only: Unchanged | None = None) -> bool:
        """The remote tapeway compares with what was loaded, and removes, in one step."""
        known = self._known_of(name)
        async with known.turn:
            existed = await self.stat(name) is not None
            condition = {} if only is None else known.condition()
            await self._unless_missing(self._client.ask("DELETE", _path_of(name), condition))
            self._known.pop(name, None)
        return existed

    async def release(self, name: str) -> None:
        known = self._known_of(name)
        async with known.turn:
            if known.is_written:
                await self._client.ask("POST", f"{_path_of(name)}/release")
            self._known.pop(name, None)

    async def erase(self) -> Sequence[str]:
        """What calls removed there and others can still read."""
        self._check_open()
        return self._client.take_left_over()

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        """Kept here until the append, which sends the body first."""
        known = self._known_of(name)
        file, own = await asyncio.to_thread(write_temporary, pieces)
        known.bodies[file.digest] = own
        return self._downloaded_when_opened(name, file)

    async def _upload(
        self, name: str, known: _RemoteCassette, items: Iterable[AnyInteraction]
    ) -> None:
        for file in [file for item in items for file in large_bodies(item)]:
            if file.digest in known.bodies:
                path = f"{_path_of(name)}/bodies/{file.digest}"
                headers = {"Content-Type": "application/octet-stream"}
                await self._client.ask("PUT", path, headers, partial(stream_body, file))

    def _forget_sent(self, known: _RemoteCassette, items: Iterable[AnyInteraction]) -> None:
        for file in [file for item in items for file in large_bodies(item)]:
            if (own := known.bodies.pop(file.digest, None)) is not None:
                self._downloaded.add(file.digest, own, file.size)

    def _downloaded_when_opened(self, name: str, file: BodyFile) -> BodyFile:
        return replace(file, handle=FetchedBody(partial(self._content, name, file)))

    def _content(self, name: str, file: BodyFile) -> TemporaryFile:
        known = self._known.get(name)
        own = None if known is None else known.bodies.get(file.digest)
        if found := own or self._downloaded.get(file.digest):
            return found
        # On a loop of its own: whoever asks is in some thread, and may be on the store's loop.
        with ThreadPoolExecutor(1) as threads:
            found = threads.submit(asyncio.run, self._download(name, file)).result()
        self._downloaded.add(file.digest, found, file.size)
        return found

    async def _download(self, name: str, file: BodyFile) -> TemporaryFile:
        client = self._client.for_another_loop()

        async def attempt() -> TemporaryFile:
            found, digest = TemporaryFile(None), hashlib.sha256()
            path = f"{_path_of(name)}/bodies/{file.digest}"
            async with client.response_to("GET", path) as response:
                async for piece in response.content.iter_chunked(PIECE):
                    digest.update(piece)
                    found.write(piece)
            if digest.hexdigest() != file.digest:
                raise StoreAway(f"{self.url} sent another body than the one asked for")
            return found

        await client.open()
        try:
            return await client.retried(attempt)
        except RemoteRefused as exc:
            raise CassetteCorrupt(
                f"{self.url}: the large body sha256-{file.digest} of cassette '{name}' is gone, its "
                "recording was removed or replaced meanwhile"
            ) from exc
        finally:
            await client.close()

    async def _copy(self, name: str) -> tuple[jsonl.CopyEnd | None, list[AnyInteraction]]:
        """The end of a copy and the interactions, None without a cassette; a cut one is retried."""

        async def attempt() -> tuple[jsonl.CopyEnd, list[AnyInteraction]]:
            reader, items = jsonl.CopyReader(remember=True), list[AnyInteraction]()
            async with self._client.response_to("GET", f"{_path_of(name)}/copy") as response:
                async for piece in response.content.iter_chunked(PIECE):
                    items += await asyncio.to_thread(reader.feed, piece)
            try:
                return reader.finish(), items
            except jsonl.IncompleteCopy as exc:
                raise StoreAway(f"{self.url}: cassette '{name}' came cut ({exc})") from exc

        try:
            return await self._unless_missing(self._client.retried(attempt)) or (None, [])
        except FormatFault as exc:
            raise StoreError(f"{self.url}: cassette '{name}' cannot be read: {exc}") from exc

    async def _unless_missing(self, asked: Awaitable[T]) -> T | None:
        """What a call gives, None where there is no such cassette."""
        try:
            return await asked
        except RemoteRefused as exc:
            if exc.remote_code != "no_cassette":
                raise
            return None

    def _known_of(self, name: str) -> _RemoteCassette:
        _path_of(name)
        self._check_open()
        return self._known.setdefault(name, _RemoteCassette())

    def _check_open(self) -> None:
        if not self._is_open:
            raise closed(self.url)


def _path_of(name: str) -> str:
    """The path of a cassette. Raises RequestError for a name that is none."""
    return f"{API}/cassettes/{quote(check_cassette_name(name), safe='')}"


def _body(text: bytes) -> Body:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(text), MIB):
            yield text[start : start + MIB]

    return pieces


def _copy_of(cassette: StoredCassette) -> tuple[bytes, str, Sequence[str]]:
    """The lines of a copy, the digest of the whole and those of the interactions."""
    documents = checked_documents(JSON, cassette)
    # As the remote tapeway reads them: a document may change once when it is read.
    items = [document.decode(checked, at) for at, checked in enumerate(documents)]
    writer = jsonl.CopyWriter(cassette.head, remember=True)
    text = b"".join([writer.first(), writer.lines(items), writer.last()])
    return text, writer.digest, writer.digests
