"""`tapeway serve`: the proxy and the admin API, until a signal ends them."""

from collections.abc import Mapping, Sequence

import click

from tapeway.cli.command_classes import GroupedCommand
from tapeway.cli.options import GROUPS, command, prepare
from tapeway.importing import without_authorities

with without_authorities():
    from tapeway.server import lifecycle


class _ServeCommand(GroupedCommand):
    groups: Mapping[str, Sequence[str]] = {
        "Common options": ("mode", "cassette", "store", "route", "upstream", "listen", "config"),
        **GROUPS,
    }


@command(cls=_ServeCommand)
@click.argument("address", metavar="[HOST]:PORT", required=False)
def serve(address: str | None, **flags: object) -> int:
    """Serve the proxy and the admin API until SIGTERM or SIGINT.

    \b
        tapeway serve
        tapeway serve :9000
        tapeway serve --mode replay --cassette smoke

    [HOST]:PORT is a short form of --listen; without a HOST it is 127.0.0.1.

    Set an option as a flag, as an environment variable, or as a key of tapeway.toml: for example
    --admin-listen, TAPEWAY_ADMIN_LISTEN or admin_listen. A flag overrides a variable, a variable
    overrides the file.

    \b
    Exit codes:
        0  stopped by a signal
        1  it could not start or stop in order: a port is taken, a cassette is locked, the disk is
           full, the database does not answer, a second signal came
        2  an option is invalid, or the cassette cannot be read
    """
    if address is not None:
        if flags["listen"] is not None:
            raise click.UsageError(f"give the address once: {address}, or --listen.")
        flags["listen"] = address
    lifecycle.serve(prepare(flags))
    return 0
