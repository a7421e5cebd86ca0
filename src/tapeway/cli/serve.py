"""`tapeway serve`: both listeners, until a signal ends them."""

import click

from tapeway.cli.options import prepare, settings_options
from tapeway.server import lifecycle
from tapeway.workers import supervisor


@click.command()
@settings_options()
def serve(**flags: object) -> int:
    """Serve the proxy and the admin API until SIGTERM or SIGINT.

    Every option is also a variable, TAPEWAY_ADMIN_LISTEN for --admin-listen, and a key of
    tapeway.toml, admin_listen. A flag comes before a variable, a variable before the file.
    """
    settings = prepare(flags)
    if settings.workers == 1:
        lifecycle.serve(settings)
    else:
        supervisor.serve(settings)
    return 0
