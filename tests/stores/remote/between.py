"""What stands between a store and its far side, and spoils what a test says."""

import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import ClientSession, web
from yarl import URL

from tapeway.stores.remote.client import address_of
from tapeway.stores.remote.store import RemoteStore
from tests.stores.remote.far_side import PATIENCE_S

Forward = Callable[[], Awaitable[web.Response]]
Spoil = Callable[[web.BaseRequest, Forward], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Between:
    """Passes calls on, the next ones as the waiting faults say. `seen` are all calls that came."""

    url: str
    target: str
    http: ClientSession
    faults: list[tuple[str, Spoil]] = field(default_factory=list)
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def store(self, patience_s: float = PATIENCE_S, silence_s: float = 20.0) -> RemoteStore:
        return RemoteStore(address_of(self.url), patience_s, silence_s)

    def spoil(self, call: str, *faults: Spoil) -> None:
        """Spoil the next calls that begin like this, such as `POST /api/v1/cassettes/x/`."""
        self.faults += [(call, fault) for fault in faults]

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        path = request.raw_path
        self.seen.append((request.method, path, dict(request.headers)))

        async def forward() -> web.Response:
            headers = {
                name: value
                for name, value in request.headers.items()
                if name.lower() not in ("host", "transfer-encoding", "content-length")
            }
            url = self.target + path
            async with self.http.request(
                request.method,
                URL(url, encoded=True),
                headers=headers,
                data=io.BytesIO(body) if body else None,
            ) as got:
                return web.Response(
                    status=got.status,
                    body=await got.read(),
                    headers={name: value for name, value in got.headers.items() if name in _PASSED},
                )

        for place, (call, fault) in enumerate(self.faults):
            if f"{request.method} {path}".startswith(call):
                del self.faults[place]
                return await fault(request, forward)
        return await forward()


_PASSED = ("Content-Type", "ETag")


@asynccontextmanager
async def between(target: str) -> AsyncIterator[Between]:
    """One in front of this far side."""
    found: Between

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return await found.answer(request)

    async with ClientSession(auto_decompress=False) as http:
        runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            found = Between(f"http://127.0.0.1:{runner.addresses[0][1]}", target, http)
            yield found
        finally:
            await runner.cleanup()


def answered(status: int, text: str = "", **headers: str) -> Spoil:
    """Answer this, without asking the far side."""

    async def spoil(request: web.BaseRequest, forward: Forward) -> web.StreamResponse:
        return web.Response(status=status, text=text, headers=headers)

    return spoil


def changed(change: Callable[[bytes], bytes]) -> Spoil:
    """Answer something else than the far side did."""

    async def spoil(request: web.BaseRequest, forward: Forward) -> web.StreamResponse:
        got = await forward()
        assert isinstance(got.body, bytes)
        return web.Response(status=got.status, body=change(got.body), headers=got.headers)

    return spoil


async def lost(request: web.BaseRequest, forward: Forward) -> web.StreamResponse:
    """Let the far side do it, and break off instead of answering."""
    await forward()
    return await broken(request, forward)


async def broken(request: web.BaseRequest, forward: Forward) -> web.StreamResponse:
    """Break off without asking the far side."""
    assert request.transport is not None
    request.transport.abort()
    raise ConnectionAbortedError


async def twice(request: web.BaseRequest, forward: Forward) -> web.StreamResponse:
    """Deliver it twice."""
    await forward()
    return await forward()
