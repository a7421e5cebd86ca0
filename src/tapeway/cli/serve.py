"""`tapeway serve`: the proxy and the admin API, until a signal ends them."""

from tapeway.cli.options import command, prepare
from tapeway.server import lifecycle
from tapeway.workers import supervisor


@command()
def serve(**flags: object) -> int:
    """Serve the proxy and the admin API until SIGTERM or SIGINT.

    \b
        tapeway serve
        tapeway serve --mode replay --cassette smoke

    Set an option as a flag, as an environment variable, or as a key of tapeway.toml: for example
    --admin-listen, TAPEWAY_ADMIN_LISTEN or admin_listen. A flag overrides a variable, a variable
    overrides the file.
    """
    settings = prepare(flags)
    if settings.workers == 1:
        lifecycle.serve(settings)
    else:
        supervisor.serve(settings)
    return 0
