"""`tapeway mcp`: serve the tools to one client on standard input and output."""

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import click

from tapeway.cli.options import admin_option, admin_url, command, prepare
from tapeway.errors import ConfigError
from tapeway.settings.options import Settings
from tapeway.stores.remote.client import RemoteAddress, address_of

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

_ADMIN_TOKEN = "TAPEWAY_ADMIN_TOKEN"  # noqa: S105 - the name of a variable


@command("store", "admin_token", "config")
@admin_option
@click.option(
    "--allow-writes", is_flag=True, help="Also offer the tool that changes matching rules."
)
def mcp(admin: str | None, allow_writes: bool, **flags: object) -> int:
    """Serve tools for coding agents: cassettes, misses, conversations.

    \b
        tapeway mcp
        tapeway mcp --allow-writes
        tapeway mcp --store ./cassettes

    A coding agent starts this command and speaks the Model Context Protocol with it on standard input
    and output. The tools ask a running tapeway at its admin API. With a store, by --store or
    TAPEWAY_STORE, the tools read the store, need no running tapeway, and know no misses. --admin and
    --allow-writes ask the running tapeway although TAPEWAY_STORE is set.

    \b
    Exit codes:
        0  the client has left, or a signal came
        2  an option is invalid, or the package is not installed
    """
    needs_admin = admin is not None or allow_writes
    if flags["store"] is not None and needs_admin:
        raise click.UsageError(
            f"--store reads cassettes without a running tapeway: leave out "
            f"{'--admin' if admin is not None else '--allow-writes'}."
        )
    settings = prepare(flags)
    offline = "store" in settings.given and not needs_admin
    address = None if offline else _admin_address(admin, settings)
    try:
        # Only here: the package is optional.
        from tapeway.cli.mcp.tools import Tools, make_server
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise ConfigError(
            "tapeway mcp needs a package that is not installed: pip install 'tapeway[mcp]'"
        ) from exc
    asyncio.run(_serve(make_server(Tools(settings, address), allow_writes=allow_writes)))
    return 0


async def _serve(server: "MCPServer[Any]") -> None:
    """Serve one client until the client closes standard input; SIGINT ends the process."""
    # A thread waits for input, and asyncio's handler would wait for the thread.
    previous = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        await server.run_stdio_async()
    finally:
        signal.signal(signal.SIGINT, previous)


def _admin_address(given: str | None, settings: Settings) -> RemoteAddress:
    try:
        address = address_of(admin_url(given), settings.admin_token, settings.store_ca)
    except ConfigError as exc:
        raise ConfigError(f"--admin: {exc.message}") from exc
    return RemoteAddress(address.root, address.token, address.ca, _ADMIN_TOKEN)
