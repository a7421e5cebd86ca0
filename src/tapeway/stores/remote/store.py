"""Another tapeway's admin API as the store: what is acknowledged here is durable there.

The far side keeps cassettes in whatever its own store is. Several tapeways may record into one
cassette: recordings are appended one after the other there, and get an index there.
"""

import asyncio
import logging
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
from tapeway.core.model.interaction import AnyInteraction, large_bodies
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteEdited, ConfigError, StoreError, closed
from tapeway.formats import jsonl
from tapeway.formats.cassette_file import JSON
from tapeway.formats.native import document
from tapeway.ports import Capabilities
from tapeway.stores.remote.bodies import RemoteBodies
from tapeway.stores.remote.client import PATIENCE_S, SILENCE_S, RemoteAddress, RemoteClient, path_of
from tapeway.stores.remote.copies import Copies
from tapeway.stores.remote.errors import NotAllowed, RemoteRefused, unexpected
from tapeway.stores.remote.upload_queue import Knowledge, There, UploadQueue, Waiting
from tapeway.stores.shared.serialize import checked, document_of, text_of

log = logging.getLogger(__name__)

_PAGE = "1000"
_BATCH = 64
_AT_START_S = 2.0
"""So long one that starts at the same time is waited for."""


class RemoteStore:
    """Cassettes that another tapeway keeps."""

    scratch = None

    def __init__(
        self, address: RemoteAddress, patience_s: float = PATIENCE_S, silence_s: float = SILENCE_S
    ) -> None:
        self.url = address.shown
        self.durability = "remote"
        self.capabilities = Capabilities(bodies=self, paged=self, head_editor=self)
        self._caller = RemoteClient(address, patience_s, silence_s)
        self._bodies = RemoteBodies(self._caller)
        self._copies = Copies(self._caller, self._bodies)
        self._known: dict[str, Knowledge] = {}
        self._lines: dict[str, UploadQueue] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def open(self) -> None:
        """Raises ConfigError for what is no tapeway of this version, or does not take the token."""
        if self._tasks is not None:
            return
        await self._caller.open()
        try:
            self.durability = await self._caller.again(self._looked, patience_s=_AT_START_S)
        except NotAllowed as exc:
            await self._caller.close()
            raise ConfigError(exc.message) from exc
        except BaseException:
            await self._caller.close()
            raise
        self._bodies.open()
        self._tasks = await asyncio.TaskGroup().__aenter__()

    async def close(self) -> None:
        tasks, failed = self._tasks, list[StoreError]()
        if tasks is None:
            return
        try:
            for name in list(self._known):
                try:
                    await self.release(name)
                except StoreError as exc:
                    log.error("cassette '%s' at stop: %s", name, exc.message)
                    failed.append(exc)
        finally:
            self._tasks = None
            await tasks.__aexit__(None, None, None)
            self._known.clear()
            self._lines.clear()
            await self._copies.close()
            self._bodies.close()
            await self._caller.close()
        if failed:
            raise failed[0]

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        known = self._knowledge(name)
        if writable:
            await self._caller.ask("POST", f"{path_of(name)}/claim")
            known.claimed = True
        found = await self._copies.whole(name)
        digest = None if found is None else found[0].digest
        if writable and known.loaded and not known.appended and digest != known.digest:
            raise CassetteEdited(
                f"cassette '{name}' of {self.url} was changed or recorded into by somebody since it "
                "was loaded for replay: eject it, so that it is loaded anew"
            )
        if found is None:
            known.look("", ())
            return None
        end, items = found
        numbers = [each.index for each in items]
        known.look(document.head_digest(end.head), map(There, numbers, end.digests))
        return StoredCassette(end.head, tuple(items))

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        known, tasks = self._knowledge(name), self._running()
        text = checked(recording, dump)
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = UploadQueue(name, self._caller, self._bodies, known)
        known.claimed = True
        waiting = Waiting(head, recording, text, asyncio.get_running_loop().create_future())
        if line.add(waiting):
            tasks.create_task(line.run())
        await asyncio.shield(waiting.done)

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        self._knowledge(name).claimed = True
        return await self._bodies.keep(name, pieces)

    async def save(self, name: str, cassette: StoredCassette) -> None:
        known = self._knowledge(name)
        documents = [document_of(each) for each in cassette.interactions]
        text_of(JSON, cassette.head, documents)
        if (line := self._lines.get(name)) is not None:
            await line.idle.wait()
        before = None
        if known.loaded:
            before = {"If-None-Match": "*"}
            if (digest := known.digest) is not None:
                before = {"If-Match": f'"{digest}"'}
        digests = await self._put(name, cassette, before or {})
        known.look(
            document.head_digest(cassette.head),
            [There(at, digest) for at, digest in enumerate(digests)],
        )

    async def release(self, name: str) -> None:
        known = self._knowledge(name)
        if (line := self._lines.pop(name, None)) is not None:
            await line.idle.wait()
        del self._known[name]
        await self._copies.forget(name)
        if known.claimed:
            await self._caller.ask("POST", f"{path_of(name)}/release")

    async def remove(self, name: str) -> bool:
        there = await self.stat(name) is not None
        if (line := self._lines.pop(name, None)) is not None:
            await line.idle.wait()
        self._known.pop(name, None)
        try:
            await self._caller.ask("DELETE", path_of(name))
        except RemoteRefused as exc:
            if exc.said != "no_cassette":
                raise
        return there

    async def outline(self, name: str) -> Outline | None:
        path_of(name)
        self._running()
        try:
            said = await self._caller.ask("GET", f"{path_of(name)}/outline")
        except RemoteRefused as exc:
            if exc.said == "no_cassette":
                return None
            raise
        match said:
            case {
                "head": {"created_at": str(at), "run_id": str(run_id), "meta": dict(meta)},
                "interactions": int(count),
                "sources": [*sources],
            }:
                found = [self._source(each) for each in sources]
                return Outline(CassetteHead(at, run_id, meta), count, frozenset(found))
            case _:
                raise unexpected(self.url)

    async def page(self, name: str, *, after: int | None, limit: int) -> list[TakenRecording]:
        path_of(name)
        self._running()
        return await self._copies.page(name, after, limit)

    async def restate(self, name: str, head: CassetteHead) -> None:
        known = self._knowledge(name)
        if (line := self._lines.get(name)) is not None:
            await line.idle.wait()
        sent = dump({"created_at": head.created_at, "run_id": head.run_id, "meta": dict(head.meta)})

        async def body() -> AsyncIterator[bytes]:
            yield sent

        headers = {"Content-Type": "application/json", "Content-Length": str(len(sent))}
        said = await self._caller.ask(
            *("PUT", f"{path_of(name)}/head"),
            query={"secrets": "keep"},
            headers=headers,
            body=body,
        )
        if said.get("head") != document.head_digest(head):
            raise unexpected(self.url)
        if known.head:
            known.head = document.head_digest(head)

    async def names(self) -> list[str]:
        self._running()
        found: list[str] = []
        query = {"counts": "false", "limit": _PAGE}
        while True:
            listed, after = await self._listed(query)
            found += [name for name, stat in listed if stat is not None]
            if after is None:
                return sorted(found)
            query["after"] = after

    async def stat(self, name: str) -> CassetteStat | None:
        path_of(name)
        self._running()
        listed, _ = await self._listed({"counts": "false", "name": name})
        return dict(listed).get(name)

    async def _looked(self) -> str:
        said = await self._caller.ask("GET", "/status", once=True)
        match said:
            case {"version": str(version), "store": {"durability": str(durability)}}:
                pass
            case _:
                raise unexpected(self.url)
        try:
            await self._listed({"counts": "false", "limit": "1"})
        except RemoteRefused as exc:
            if exc.said != "bad_query":
                raise
            raise ConfigError(
                f"{self.url} is tapeway {version}, which cannot be a store yet: update it"
            ) from exc
        if durability == "process":
            log.warning("%s keeps its cassettes in memory only", self.url)
            return "remote"
        return durability

    async def _listed(
        self, query: dict[str, str]
    ) -> tuple[list[tuple[str, CassetteStat | None]], str | None]:
        said = await self._caller.ask("GET", "/cassettes", query=query)
        match said:
            case {"cassettes": [*items], "next": str() | None as after}:
                return [self._item(each) for each in items], after
            case _:
                raise unexpected(self.url)

    def _source(self, said: Json) -> tuple[str, str]:
        match said:
            case {"route": str(route), "base": str(base)}:
                return route, base
            case _:
                raise unexpected(self.url)

    def _item(self, said: Json) -> tuple[str, CassetteStat | None]:
        match said:
            case {"name": str(name), "size_bytes": None}:
                return name, None
            case {
                "name": str(name),
                "size_bytes": int(size),
                "modified_at": str(at),
                "mark": str(mark),
            }:
                return name, CassetteStat(size, at, mark)
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
            for start in range(0, len(cassette.interactions), _BATCH):
                batch = cassette.interactions[start : start + _BATCH]
                numbered = [replace(each, index=start + at) for at, each in enumerate(batch)]
                yield await asyncio.to_thread(writer.lines, numbered)
            yield writer.last()

        headers = {"Content-Type": jsonl.MEDIA_TYPE, **before}

        async def put() -> dict[str, Json]:
            return await self._caller.ask(
                "PUT",
                f"{path_of(name)}/copy",
                query={"secrets": "keep"},
                headers=headers,
                body=body,
            )

        try:
            said = await put()
        except RemoteRefused as exc:
            if exc.said != "body_missing":
                raise
            for item in cassette.interactions:
                await self._sent(name, item)
            said = await put()
        except CassetteEdited:
            # Was it us, in a try whose answer was lost?
            found = await self._copies.whole(name)
            if found is None or found[0].digest != writer.digest:
                raise
            return writer.digests
        if said.get("sha256") == writer.digest:
            return writer.digests
        settled = await asyncio.to_thread(_settled, cassette)
        if said.get("sha256") != settled.digest:
            raise unexpected(self.url)
        return settled.digests

    async def _sent(self, name: str, item: AnyInteraction) -> None:
        for file in large_bodies(item):
            await self._bodies.send(name, file)

    def _knowledge(self, name: str) -> Knowledge:
        path_of(name)
        self._running()
        return self._known.setdefault(name, Knowledge())

    def _running(self) -> asyncio.TaskGroup:
        if self._tasks is None:
            raise closed(self.url)
        return self._tasks


def _settled(cassette: StoredCassette) -> jsonl.CopyWriter:
    """What a recording says of itself settles once it is read and written."""
    writer = jsonl.CopyWriter(cassette.head, remember=True)
    writer.lines([document.decode(document.encode(each), 0) for each in cassette.interactions])
    return writer
