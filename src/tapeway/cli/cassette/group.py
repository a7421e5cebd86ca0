"""`tapeway cassette`: inspect and edit cassettes offline, in any store."""

from collections.abc import Mapping

import click

from tapeway.cli.command_classes import LazyCommand, LazyGroup


class CassetteCommands(LazyGroup):
    """The commands of `tapeway cassette`."""

    modules: Mapping[str, LazyCommand] = {
        "ls": LazyCommand("tapeway.cli.cassette.ls", "List the cassettes of a store."),
        "show": LazyCommand(
            "tapeway.cli.cassette.show", "Show the interactions or the conversations of a cassette."
        ),
        "diff": LazyCommand("tapeway.cli.cassette.diff", "Show where two cassettes differ."),
        "verify": LazyCommand(
            "tapeway.cli.cassette.verify", "Check that cassettes are complete and consistent."
        ),
        "scan": LazyCommand("tapeway.cli.cassette.scan", "Find secrets in cassettes."),
        "redact": LazyCommand("tapeway.cli.cassette.redact", "Replace the secrets in cassettes."),
        "convert": LazyCommand(
            "tapeway.cli.cassette.convert", "Copy a cassette to another format or store."
        ),
        "mv": LazyCommand(
            "tapeway.cli.cassette.mv", "Give a cassette another name, or move it to another store."
        ),
        "rm": LazyCommand("tapeway.cli.cassette.rm", "Delete cassettes."),
        "merge": LazyCommand(
            "tapeway.cli.cassette.merge", "Merge what two branches recorded into one cassette."
        ),
        "prune": LazyCommand(
            "tapeway.cli.cassette.prune",
            "Drop recordings that a run did not use, or all but the last answers.",
        ),
    }


@click.group(cls=CassetteCommands)
def cassette() -> None:
    """Inspect and edit cassettes offline, in any store.

    \b
        tapeway cassette ls
        tapeway cassette show smoke
        tapeway cassette diff smoke sqlite:./cassettes.db#smoke
    """
