"""Another tapeway's admin API as the store: each operation is one call.

One tapeway at a time records into a cassette. Each append names the number of recordings that this
process knows, and the remote tapeway refuses the append if there are more or fewer.
"""

import asyncio
import copy
import hashlib
import logging
import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from io import BytesIO
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import ClientResponse

from tapeway.body_files import PIECE, TemporaryFile, stream_body
from tapeway.core.http.routing import check_cassette_name
from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import CassetteHead, CassetteStat, Recording, StoredCassette
from tapeway.core.model.condition import Unchanged
from tapeway.core.model.interaction import AnyInteraction, replace_large_bodies
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
    Call,
    NoCassette,
    NotServed,
    RemoteAddress,
    RemoteClient,
    RemoteRefused,
)
from tapeway.stores.support.large_bodies import FetchedBody, TemporaryFileCache, write_temporary
from tapeway.stores.support.recording_order import RecordingOrder
from tapeway.stores.support.serialize import checked_documents, serialize_recording
from tapeway.stores.whole import WholeCassettes

log = logging.getLogger(__name__)

PAGE = 1000
_STATUS = f"{API}/status"
_AT_START_S = 2.0
"""How long a call waits for a remote tapeway that starts at the same time."""
_NOT_STORED = (RemoteRefused, CassetteLocked, CassetteEdited, StoreFull)
"""The answers after which it is sure that nothing was stored."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A recording at the remote tapeway."""

    index: int
    sha256: str


@dataclass(slots=True)
class _Contents:
    """What the remote tapeway has of a cassette, as far as this process knows."""

    head: str = ""
    """The digest of the head, empty where there is no cassette."""
    items: RecordingOrder[_Placed] = field(default_factory=RecordingOrder)
    """By the index here."""
    count: int | None = None
    """None until the cassette was read or written."""

    @property
    def digest(self) -> str | None:
        digests = [placed.sha256 for _, placed in self.items.items()]
        return document.cassette_digest(self.head, digests) if self.head else None

    def condition(self) -> dict[str, str]:
        """The headers of a call that changes nothing if somebody else has."""
        if self.count is None:
            return {}
        return {"If-Match": f'"{self.digest}"'} if self.head else {"If-None-Match": "*"}


@dataclass(slots=True)
class _RemoteCassette:
    contents: _Contents = field(default_factory=_Contents)
    appended: bool = False
    pending: tuple[Recording, Call] | None = None
    """The append whose outcome is not known."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_written(self) -> bool:
        return self.appended or self.pending is not None


class RemoteStore(WholeCassettes):
    """Cassettes that another tapeway keeps."""

    def __init__(
        self, address: RemoteAddress, patience_s: float = PATIENCE_S, silence_s: float = SILENCE_S
    ) -> None:
        self.url = address.root
        self.facts = StoreFacts(durability="remote", may_go_away=True)
        self._client = RemoteClient(address, patience_s, silence_s)
        self._known: dict[str, _RemoteCassette] = {}
        self._bodies = TemporaryFileCache()
        self._is_away = False

    async def open(self) -> None:
        """Raises ConfigError for what is no tapeway of this version, or does not take the token."""
        if self._client.is_open:
            return
        await self._client.open()
        try:
            durability = await self._client.ask(
                Call("GET", _STATUS), lambda status: str(status["store"]["durability"]), _AT_START_S
            )
        except BaseException as exc:
            await self._client.close()
            if isinstance(exc, NotServed):
                raise ConfigError(exc.message) from exc
            raise
        if durability == "process":
            log.warning("%s keeps its cassettes in memory only", self.url)
            durability = "remote"
        self.facts = replace(self.facts, durability=durability)

    async def close(self, within_s: float = math.inf) -> None:
        written = [name for name, known in self._known.items() if known.is_written]
        failed: list[BaseException | None] = []
        try:
            async with asyncio.timeout(None if within_s == math.inf else within_s):
                if written:
                    # Not a silence for each cassette.
                    await self.check_reads()
                releases = [self.release(name) for name in written]
                failed = await asyncio.gather(*releases, return_exceptions=True)
        except StoreError as exc:
            failed = [exc]
        except TimeoutError:
            pass
        finally:
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
        await self._client.ask(Call("GET", _STATUS), dict, 0.0)

    async def check_writes(self, name: str | None = None) -> None:
        patience_s = 0.0 if name is None or self._is_away else _AT_START_S
        self._is_away = True
        await self._client.ask(Call("GET", "/readyz?record=true"), dict, patience_s)
        self._is_away = False

    async def names(self) -> list[str]:
        names = list[str]()
        after: str | None = ""
        while after is not None:
            page, after = await self._page(limit=PAGE, after=after)
            names += page
        return sorted(names)

    async def stat(self, name: str) -> CassetteStat | None:
        page, _ = await self._page(name=check_cassette_name(name))
        return page.get(name)

    async def _page(self, **query: object) -> tuple[dict[str, CassetteStat], str | None]:
        """The stored cassettes of a page of the list, and the name after which the next begins."""
        path = f"{API}/cassettes?counts=false&{urlencode(query)}"
        return await self._client.ask(Call("GET", path), _stats)

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        known = self._known_of(name)
        async with known.turn:
            stored, contents = await self._copy(name)
            is_read = known.contents.count is not None and not known.is_written
            if writable and is_read and contents.digest != known.contents.digest:
                raise CassetteEdited(
                    f"cassette '{name}' of {self.url} was changed or recorded into by somebody "
                    "since it was loaded for replay: eject it, so that it is loaded anew"
                )
            known.contents, known.pending = contents, None
        return stored

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        known = self._known_of(name)
        # The document as it was checked, byte for byte.
        text = serialize_recording(recording, dump)
        required = recording.goes_on is not None
        async with known.turn:
            if known.pending is not None:
                earlier, call = known.pending
                # Whoever got an error for it knows the recording by its index from before.
                indexes = *earlier.supersedes, earlier.interaction.index
                with suppress(*_NOT_STORED):
                    await self._send(known, earlier, call, indexes[0])
            if known.contents.count is None:
                _, known.contents = await self._copy(name)
            meta: dict[str, Json] = dict(head.meta)
            placed = filter(None, map(known.contents.items.get, recording.supersedes))
            about: dict[str, Json] = {
                "head": {"created_at": head.created_at, "run_id": head.run_id, "meta": meta},
                "supersedes": [[{**asdict(at), "required": required} for at in placed]],
                "expected": known.contents.count,
            }
            body = b'{"interactions":[' + text + b"]," + dump(about)[1:]
            headers = {"Content-Type": "application/json", "Idempotency-Key": uuid.uuid4().hex}
            path = f"{_path_of(name)}/interactions?secrets=keep"
            call = Call("POST", path, headers, partial(BytesIO, body))
            await self._send(known, recording, call, recording.interaction.index)

    async def _send(
        self, known: _RemoteCassette, recording: Recording, call: Call, index: int
    ) -> None:
        """Send an append of a recording, which has this index here.

        It stays pending until the remote tapeway says what it did.
        """
        known.pending = recording, call
        try:
            head, count, placed = await self._client.ask(call, _added)
        except _NOT_STORED:
            known.pending = None
            raise
        known.contents.items.add(index, placed, recording.supersedes)
        known.contents.head, known.contents.count = head, count
        known.appended, known.pending = True, None

    async def put(self, name: str, cassette: StoredCassette) -> None:
        known = self._known_of(name)
        text, contents = await asyncio.to_thread(_sent, cassette)
        async with known.turn:
            headers = {"Content-Type": jsonl.MEDIA_TYPE, **known.contents.condition()}
            path = f"{_path_of(name)}/copy?secrets=keep"
            call = Call("PUT", path, headers, partial(BytesIO, text))
            try:
                await self._client.ask(call, partial(_check_digest, contents.digest))
            except CassetteEdited:
                # Perhaps by an earlier try of this call, whose answer was lost.
                _, found = await self._copy(name)
                if found.digest != contents.digest:
                    raise
            known.contents, known.pending = contents, None

    async def delete(self, name: str) -> bool:
        return await self.remove(name)

    async def remove(self, name: str, only: Unchanged | None = None) -> bool:
        """The remote tapeway compares with what was loaded, and removes, in one step."""
        known = self._known_of(name)
        async with known.turn:
            existed = await self.stat(name) is not None
            with suppress(NoCassette):
                headers = {} if only is None else known.contents.condition()
                await self._client.ask(Call("DELETE", _path_of(name), headers), dict)
            self._known.pop(name, None)
        return existed

    async def release(self, name: str) -> None:
        known = self._known_of(name)
        async with known.turn:
            if known.is_written:
                await self._client.ask(Call("POST", f"{_path_of(name)}/release"), dict)
            self._known.pop(name, None)

    async def erase(self) -> Sequence[str]:
        """What calls removed there and others can still read."""
        self._check_open()
        return self._client.take_left_over()

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        self._known_of(name)
        file, own = await asyncio.to_thread(write_temporary, pieces)
        path = f"{_path_of(name)}/bodies/{file.digest}"
        headers = {"Content-Type": "application/octet-stream"}
        await self._client.ask(Call("PUT", path, headers, partial(stream_body, file)), dict)
        self._bodies.add(file.digest, own, file.size)
        return self._read_when_opened(name, file)

    def _read_when_opened(self, name: str, file: BodyFile) -> BodyFile:
        return replace(file, handle=FetchedBody(partial(self._body, name, file)))

    def _body(self, name: str, file: BodyFile) -> TemporaryFile:
        if (found := self._bodies.get(file.digest)) is None:
            # On a loop of its own: whoever asks is in some thread, and may be on the store's loop.
            with ThreadPoolExecutor(1) as threads:
                found = threads.submit(asyncio.run, self._download(name, file)).result()
            self._bodies.add(file.digest, found, file.size)
        return found

    async def _download(self, name: str, file: BodyFile) -> TemporaryFile:
        async def read(response: ClientResponse) -> TemporaryFile:
            found, digest = TemporaryFile(None), hashlib.sha256()
            async for piece in response.content.iter_chunked(PIECE):
                digest.update(piece)
                found.write(piece)
            if digest.hexdigest() != file.digest:
                raise StoreAway(f"{self.url} sent another body than the one asked for")
            return found

        client = copy.copy(self._client)
        await client.open()
        try:
            return await client.receive(Call("GET", f"{_path_of(name)}/bodies/{file.digest}"), read)
        except RemoteRefused as exc:
            raise CassetteCorrupt(
                f"{self.url}: the large body sha256-{file.digest} of cassette '{name}' is gone, its "
                "recording was removed or replaced meanwhile"
            ) from exc
        finally:
            await client.close()

    async def _copy(self, name: str) -> tuple[StoredCassette | None, _Contents]:
        """The cassette as it is now, its large bodies apart; a copy that comes cut is retried."""

        async def read(response: ClientResponse) -> tuple[jsonl.CopyEnd, list[AnyInteraction]]:
            reader, items = jsonl.CopyReader(remember=True), list[AnyInteraction]()
            async for piece in response.content.iter_chunked(PIECE):
                items += await asyncio.to_thread(reader.feed, piece)
            try:
                return reader.finish(), items
            except jsonl.IncompleteCopy as exc:
                raise StoreAway(f"{self.url}: cassette '{name}' came cut ({exc})") from exc

        try:
            end, items = await self._client.receive(Call("GET", f"{_path_of(name)}/copy"), read)
        except NoCassette:
            return None, _Contents(count=0)
        except FormatFault as exc:
            raise StoreError(f"{self.url}: cassette '{name}' cannot be read: {exc}") from exc
        opened = partial(self._read_when_opened, name)
        stored = StoredCassette(
            end.head, tuple([replace_large_bodies(item, opened) for item in items])
        )
        return stored, _contents(stored, end.digests)

    def _known_of(self, name: str) -> _RemoteCassette:
        check_cassette_name(name)
        self._check_open()
        return self._known.setdefault(name, _RemoteCassette())

    def _check_open(self) -> None:
        if not self._client.is_open:
            raise closed(self.url)


def _path_of(name: str) -> str:
    return f"{API}/cassettes/{quote(name, safe='')}"


def _contents(stored: StoredCassette, digests: Sequence[str]) -> _Contents:
    numbers = [item.index for item in stored.interactions]
    items = RecordingOrder(zip(numbers, map(_Placed, numbers, digests), strict=True))
    return _Contents(document.head_digest(stored.head), items, len(numbers))


def _stats(page: Mapping[str, Any]) -> tuple[dict[str, CassetteStat], str | None]:
    stats = {
        str(item["name"]): CassetteStat(
            int(item["size_bytes"]), str(item["modified_at"]), str(item["mark"])
        )
        for item in page["cassettes"]
        if item["size_bytes"] is not None
    }
    return stats, page["next"]


def _added(answer: Mapping[str, Any]) -> tuple[str, int, _Placed]:
    (item,) = answer["interactions"]
    placed = _Placed(int(item["index"]), str(item["sha256"]))
    if len(placed.sha256) != 64:
        raise ValueError(placed.sha256)
    return str(answer["head"]), int(answer["count"]), placed


def _check_digest(digest: str | None, answer: Mapping[str, Any]) -> None:
    if answer["sha256"] != digest:
        raise ValueError(digest)


def _sent(cassette: StoredCassette) -> tuple[bytes, _Contents]:
    """The lines of a copy, and what the remote tapeway then has."""
    documents = checked_documents(JSON, cassette)
    # As the remote tapeway reads them: a document may change once when it is read.
    items = [document.decode(checked, at) for at, checked in enumerate(documents)]
    writer = jsonl.CopyWriter(cassette.head, remember=True)
    text = b"".join([writer.first(), writer.lines(items), writer.last()])
    return text, _contents(StoredCassette(cassette.head, tuple(items)), writer.digests)
