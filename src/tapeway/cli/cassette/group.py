"""`tapeway cassette`: inspect and edit cassettes offline, in any store."""

from collections.abc import Mapping

import click

from tapeway.cli.command_classes import LazyCommand, LazyGroup


class CassetteCommands(LazyGroup):
    """The commands of `tapeway cassette`."""

    folder = "tapeway.cli.cassette"
    modules: Mapping[str, LazyCommand] = {
        "ls": LazyCommand("List the cassettes of a store."),
        "show": LazyCommand("Show the interactions or the conversations of a cassette."),
        "diff": LazyCommand("Show where two cassettes differ."),
        "verify": LazyCommand("Check that cassettes are complete and consistent."),
        "scan": LazyCommand("Find secrets in cassettes."),
        "redact": LazyCommand("Replace the secrets in cassettes."),
        "convert": LazyCommand("Copy a cassette to another format or store."),
        "branch": LazyCommand("Make a cassette that goes on from a point of FROM."),
        "mv": LazyCommand("Give a cassette another name, or move it to another store."),
        "rm": LazyCommand("Delete cassettes."),
        "merge": LazyCommand("Merge what two branches recorded into one cassette."),
        "prune": LazyCommand(
            "Drop recordings that a run did not use, or all but the last answers."
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
