"""Another tapeway's admin API as the store: each acknowledged recording is durable there.

The remote tapeway keeps the cassettes in a store of any kind. Several tapeways may record into a
cassette: the remote tapeway appends and numbers the recordings one after the other.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace

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
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteEdited, ConfigError, StoreAway, StoreError, closed
from tapeway.formats import jsonl
from tapeway.formats.cassette_file import JSON
from tapeway.formats.native import document
from tapeway.paging import batch_from, pages_after
from tapeway.ports import StoreFacts
from tapeway.stores.remote.bodies import RemoteBodies
from tapeway.stores.remote.client import PATIENCE_S, SILENCE_S, RemoteAddress, RemoteClient, path_of
from tapeway.stores.remote.copies import CassetteCopies
from tapeway.stores.remote.errors import NotAllowed, RemoteRefused, unexpected
from tapeway.stores.remote.recordings import KnownCassette, RemoteRecording, RemoteRecordings
from tapeway.stores.support.serialize import checked_documents, serialize_recording
from tapeway.stores.whole import WholeCassettes
from tapeway.version import VERSION

log = logging.getLogger(__name__)

PAGE = "1000"
_BATCH = 64
_AT_START_S = 2.0
"""How long `open` waits for a remote tapeway that starts at the same time."""

_BEFORE_A_CALL_S = 2.0
"""How long a request to be recorded waits for a restarting remote tapeway."""
_AT_ONCE_S = 1.0


class RemoteStore(WholeCassettes):
    """Cassettes that another tapeway keeps."""

    def __init__(
        self, address: RemoteAddress, patience_s: float = PATIENCE_S, silence_s: float = SILENCE_S
    ) -> None:
        self.url = address.shown
        self.facts = StoreFacts(durability="remote", paged=True, may_go_away=True)
        self._client = RemoteClient(address, patience_s, silence_s)
        self._bodies = RemoteBodies(self._client)
        self._copies = CassetteCopies(self._client, self._bodies)
        self._known: dict[str, KnownCassette] = {}
        self._recordings: dict[str, RemoteRecordings] = {}
        self._is_open = False

    async def open(self) -> None:
        """Raises ConfigError for what is no tapeway of this version, or does not take the token."""
        if self._is_open:
            return
        await self._client.open()
        try:
            durability = await self._client.retried(self._check_remote, patience_s=_AT_START_S)
        except NotAllowed as exc:
            await self._client.close()
            raise ConfigError(exc.message) from exc
        except BaseException:
            await self._client.close()
            raise
        self.facts = replace(self.facts, durability=durability)
        self._bodies.open()
        self._is_open = True

    async def close(self, within_s: float = math.inf) -> None:
        failed = list[StoreError]()
        if not self._is_open:
            return
        try:
            if (away := await self._away_at_stop()) is not None:
                log.error("at stop: %s", away.message)
                failed.append(away)
                # Ends the calls that wait for the task.
                await self._client.close()
                self._known.clear()
            failed += await self._release_all(within_s)
        finally:
            self._is_open = False
            for recordings in self._recordings.values():
                await recordings.all_sent()
            self._known.clear()
            self._recordings.clear()
            self._bodies.close()
            await self._client.close()
        for sentence in self._client.take_left_over():
            log.warning("%s", sentence)
        if failed:
            raise failed[0]

    async def _release_all(self, within_s: float) -> list[StoreError]:
        """Give back every cassette there is time for; the errors."""
        failed: list[StoreError] = []
        try:
            async with asyncio.timeout(None if within_s == math.inf else within_s):
                for name in list(self._known):
                    try:
                        await self.release(name)
                    except StoreError as exc:
                        log.error("cassette '%s' at stop: %s", name, exc.message)
                        failed.append(exc)
        except TimeoutError:
            log.warning(
                "there was no time to give back %d cassettes to %s: everything recorded is there; "
                "eject them there if you need their files",
                *(len(self._known), self.url),
            )
            # Ends the calls that wait for the task.
            await self._client.close()
        return failed

    async def _away_at_stop(self) -> StoreError | None:
        """Why no cassette can be released, found out at once; None where each is to be tried."""
        if not any(known.claimed for known in self._known.values()):
            return None
        try:
            async with asyncio.timeout(_AT_ONCE_S):
                await self._client.ask("GET", "/status", once=True)
        except StoreError as exc:
            return exc
        except TimeoutError:
            return self._silent()
        return None

    async def check_writes(self, name: str | None = None) -> None:
        self._running()
        patience_s = 0.0 if self._client.unreachable or name is None else _BEFORE_A_CALL_S
        try:
            async with asyncio.timeout(patience_s + _AT_ONCE_S):
                await self._client.ask(
                    *("GET", "/readyz"),
                    query={"record": "true"},
                    once=patience_s == 0.0,
                    patience_s=patience_s,
                    api="",
                )
        except TimeoutError:
            raise self._silent() from None

    def _silent(self) -> StoreAway:
        return StoreAway(f"{self.url} did not answer in time: see whether tapeway runs there")

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        known = self._known_of(name)
        if writable:
            await self._client.ask("POST", f"{path_of(name)}/claim")
            known.claimed = True
        whole = await self._copies.whole(name)
        digest = None if whole is None else whole[0].digest
        if writable and known.loaded and not known.appended and digest != known.digest:
            raise CassetteEdited(
                f"cassette '{name}' of {self.url} was changed or recorded into by somebody since it "
                "was loaded for replay: eject it, so that it is loaded anew"
            )
        if whole is None:
            known.set_loaded("", ())
            return None
        end, items = whole
        numbers = [item.index for item in items]
        known.set_loaded(document.head_digest(end.head), map(RemoteRecording, numbers, end.digests))
        return StoredCassette(end.head, tuple(items))

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        known = self._known_of(name)
        text = serialize_recording(recording, dump)
        sending = self._recordings.get(name)
        if sending is None:
            sending = RemoteRecordings(name, self._client, self._bodies, known)
            self._recordings[name] = sending
        known.claimed = True
        await sending.send(head, recording, text)

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        self._known_of(name).claimed = True
        return await self._bodies.keep(name, pieces)

    async def put(self, name: str, cassette: StoredCassette) -> None:
        known = self._known_of(name)
        await asyncio.to_thread(_check, cassette)
        await self._all_sent(name)
        digests = await self._put(name, cassette, _as_known(known))
        known.set_loaded(
            document.head_digest(cassette.head),
            [RemoteRecording(at, digest) for at, digest in enumerate(digests)],
        )

    async def release(self, name: str) -> None:
        known = self._known_of(name)
        await self._all_sent(name)
        self._recordings.pop(name, None)
        self._known.pop(name, None)
        if known.claimed:
            await self._client.ask("POST", f"{path_of(name)}/release")

    async def delete(self, name: str) -> bool:
        return await self.remove(name)

    async def remove(self, name: str, only: Unchanged | None = None) -> bool:
        """The remote tapeway compares with the loaded version and removes in one step."""
        condition = {} if only is None else _as_known(self._known_of(name))
        existed = await self.stat(name) is not None
        await self._all_sent(name)
        self._recordings.pop(name, None)
        self._known.pop(name, None)
        try:
            await self._client.ask("DELETE", path_of(name), headers=condition)
        except RemoteRefused as exc:
            if exc.remote_code != "no_cassette":
                raise
        return existed

    async def erase(self) -> Sequence[str]:
        """Have the remote tapeway wipe its store; a sentence for each thing not wiped."""
        self._running()
        return self._client.take_left_over()

    async def outline(self, name: str) -> Outline | None:
        path_of(name)
        self._running()
        try:
            answer = await self._client.ask("GET", f"{path_of(name)}/outline")
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
                routes = [self._source(source) for source in sources]
                return Outline(CassetteHead(at, run_id, meta), count, frozenset(routes))
            case _:
                raise unexpected(self.url)

    async def page(self, name: str, *, after: int | None, limit: int) -> list[TakenRecording]:
        path_of(name)
        self._running()
        return await self._copies.page(name, after, limit)

    async def get(self, name: str, index: int) -> TakenRecording | None:
        async for item in pages_after(self, name, None):
            if item.index == index:
                return TakenRecording(item, 0, index)
        return None

    async def replace_head(self, name: str, head: CassetteHead) -> None:
        known = self._known_of(name)
        await self._all_sent(name)
        sent = dump({"created_at": head.created_at, "run_id": head.run_id, "meta": dict(head.meta)})

        async def body() -> AsyncIterator[bytes]:
            yield sent

        headers = {"Content-Type": "application/json", "Content-Length": str(len(sent))}
        answer = await self._client.ask(
            *("PUT", f"{path_of(name)}/head"),
            query={"secrets": "keep"},
            headers=headers,
            body=body,
        )
        if answer.get("head") != document.head_digest(head):
            raise unexpected(self.url)
        if known.head:
            known.head = document.head_digest(head)

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

    async def _listed(
        self, query: dict[str, str]
    ) -> tuple[list[tuple[str, CassetteStat | None]], str | None]:
        answer = await self._client.ask("GET", "/cassettes", query=query)
        match answer:
            case {"cassettes": [*items], "next": str() | None as after}:
                return [self._item(item) for item in items], after
            case _:
                raise unexpected(self.url)

    def _source(self, answer: Json) -> tuple[str, str]:
        match answer:
            case {"route": str(route), "base": str(base)}:
                return route, base
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

    async def _put(
        self, name: str, cassette: StoredCassette, before: dict[str, str]
    ) -> Sequence[str]:
        writer = jsonl.CopyWriter(cassette.head, remember=True)

        async def body() -> AsyncIterator[bytes]:
            nonlocal writer
            writer = jsonl.CopyWriter(cassette.head, remember=True)
            yield writer.first()
            start = 0
            while batch := await asyncio.to_thread(
                batch_from, cassette.interactions, start, _BATCH
            ):
                numbered = [replace(item, index=start + at) for at, item in enumerate(batch)]
                yield await asyncio.to_thread(writer.lines, numbered)
                start += len(batch)
            yield writer.last()

        headers = {"Content-Type": jsonl.MEDIA_TYPE, **before}

        async def put() -> dict[str, Json]:
            return await self._client.ask(
                "PUT",
                f"{path_of(name)}/copy",
                query={"secrets": "keep"},
                headers=headers,
                body=body,
            )

        try:
            answer = await put()
        except RemoteRefused as exc:
            if exc.remote_code != "body_missing":
                raise
            for item in cassette.interactions:
                await self._bodies.upload_all(name, item)
            answer = await put()
        except CassetteEdited:
            # Perhaps by an earlier try of this call, whose answer was lost.
            whole = await self._copies.whole(name)
            if whole is None or whole[0].digest != writer.digest:
                raise
            return writer.digests
        if answer.get("sha256") == writer.digest:
            return writer.digests
        reread = await asyncio.to_thread(_reread, cassette)
        if answer.get("sha256") != reread.digest:
            raise unexpected(self.url)
        return reread.digests

    def _known_of(self, name: str) -> KnownCassette:
        path_of(name)
        self._running()
        return self._known.setdefault(name, KnownCassette())

    async def _all_sent(self, name: str) -> None:
        """Wait for the recordings of a cassette that are under way."""
        if (sending := self._recordings.get(name)) is not None:
            await sending.all_sent()

    def _running(self) -> None:
        if not self._is_open:
            raise closed(self.url)


def _as_known(known: KnownCassette) -> dict[str, str]:
    """The condition that a cassette has not changed since the load."""
    if not known.loaded:
        return {}
    digest = known.digest
    return {"If-None-Match": "*"} if digest is None else {"If-Match": f'"{digest}"'}


def _check(cassette: StoredCassette) -> None:
    for _ in checked_documents(JSON, cassette):
        pass


def _reread(cassette: StoredCassette) -> jsonl.CopyWriter:
    """The copy after its documents were read once: that may change a document one time."""
    writer = jsonl.CopyWriter(cassette.head, remember=True)
    for interaction in cassette.interactions:
        writer.lines([document.decode(document.encode(interaction), 0)])
    return writer
