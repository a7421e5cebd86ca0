"""A listener and what serves it."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from aiohttp import web

from tapeway.server.listeners import BACKLOG, Listener


@dataclass(frozen=True, slots=True)
class Side:
    """One of them, serving."""

    listener: Listener
    runner: web.ServerRunner | web.AppRunner

    async def close(self) -> None:
        """Let nobody in any more; those who are stay."""
        for site in self.runner.sites:
            await site.stop()

    async def ended(self) -> None:
        """End idle connections now, and those that still write an answer once it is out."""
        if (server := self.runner.server) is not None:
            server.pre_shutdown()
            await server.shutdown(None)


async def mount(
    stack: AsyncExitStack, runner: web.ServerRunner | web.AppRunner, listener: Listener
) -> Side:
    """Serve on a listener until the stack ends."""
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.SockSite(runner, listener.socket, backlog=BACKLOG).start()
    return Side(listener, runner)
