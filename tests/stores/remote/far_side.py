"""Another tapeway whose admin API is a store, in this process and on a real socket."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from tapeway.admin.app import make_application
from tapeway.admin.listener import AdminRunner
from tapeway.core.http.routing import Route, RouteTable
from tapeway.core.model.cassette import CassetteHead
from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestJournal
from tapeway.engine.recording.selection import Policy
from tapeway.ports import CassetteStore
from tapeway.stores.remote.client import address_of
from tapeway.stores.remote.store import RemoteStore
from tapeway.version import VERSION
from tests.admin.admin_and_proxy import Service

PATIENCE_S = 0.3


@dataclass(frozen=True, slots=True)
class FarSide:
    """Where it is called, and what serves there."""

    url: str
    broker: Broker
    token: str | None

    def store(self, patience_s: float = PATIENCE_S) -> RemoteStore:
        """A store over it, not yet open."""
        return RemoteStore(address_of(self.url, self.token), patience_s)


def lead_to(store: RemoteStore, url: str) -> None:
    """Let an open store reach another address: as if its far side had gone or come back."""
    # A port that closes and opens again could be somebody else's in between.
    store._client._address = address_of(url)


@asynccontextmanager
async def far_side(
    store: CassetteStore, token: str | None = None, version: str = VERSION
) -> AsyncIterator[FarSide]:
    """One that keeps its cassettes in this store."""
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(
            Broker(
                store,
                Service(),
                mode="replay",
                cassette="default",
                routes=RouteTable({}, Route("default", "http://service.invalid")),
                policy=Policy(),
                new_head=lambda: CassetteHead("then", "the far side's own run"),
            )
        )
        application = make_application(
            broker, RequestJournal(10), token=token, listener=("127.0.0.1", 8081), version=version
        )
        runner = AdminRunner(application, shutdown_timeout=1.0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        yield FarSide(f"http://127.0.0.1:{port}", broker, token)
