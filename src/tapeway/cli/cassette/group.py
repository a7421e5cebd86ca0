"""`tapeway cassette`: inspect and edit cassettes offline, in any store."""

from collections.abc import Mapping

import click

from tapeway.cli.command_classes import LazyGroup


class _CassetteCommands(LazyGroup):
    modules: Mapping[str, str] = {
        "ls": "tapeway.cli.cassette.ls",
        "show": "tapeway.cli.cassette.show",
        "diff": "tapeway.cli.cassette.diff",
        "verify": "tapeway.cli.cassette.verify",
        "scan": "tapeway.cli.cassette.scan",
        "redact": "tapeway.cli.cassette.redact",
        "convert": "tapeway.cli.cassette.convert",
        "mv": "tapeway.cli.cassette.mv",
        "prune": "tapeway.cli.cassette.prune",
    }


@click.group(cls=_CassetteCommands, no_args_is_help=False)
def cassette() -> None:
    """Inspect and edit cassettes offline, in any store.

    \b
        tapeway cassette ls
        tapeway cassette show smoke
        tapeway cassette diff smoke sqlite:./cassettes.db#smoke
    """
