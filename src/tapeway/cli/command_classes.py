"""Click classes: a group that imports commands on demand, and a command around a command.

Importing the server takes longer than most commands run, so a group imports a command only for a
call.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click

from tapeway.importing import imported

_WRAPPED = "tapeway.wrapped_command"
_GIVEN = "tapeway.given_options"


class LazyCommand(NamedTuple):
    """A command that is not imported yet: one line of help, and the defining module.

    By default the module has the name of the command, in the folder of the group. Only programs call
    a `hidden` command, and no list shows it.
    """

    summary: str
    module: str = ""
    hidden: bool = False


class LazyGroup(click.Group):
    """Commands by name, each defined in its module under that name."""

    folder = "tapeway.cli"
    modules: Mapping[str, LazyCommand] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(name for name, command in self.modules.items() if not command.hidden)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without any argument, print the help and end with 0."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first argument. Raises UsageError with commands of similar names."""
        if args[0] in self.modules or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        raise click.NoSuchCommand(args[0], possibilities=self.list_commands(ctx), ctx=ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.modules:
            return None
        module = imported(self.modules[cmd_name].module or f"{self.folder}.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.modules[name].summary) for name in self.list_commands(ctx)]
            )


class GroupedCommand(click.Command):
    """A command whose help has the common options first, and the other ones by subject."""

    groups: Mapping[str, Sequence[str]] = {}
    """The options of each section of the help, by the names of their parameters.

    An option of several sections is in the first of them.
    """

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.groups:
            super().format_options(ctx, formatter)
            return
        rows = {
            parameter.name: row
            for parameter in self.get_params(ctx)
            if isinstance(parameter, click.Option)
            and (row := parameter.get_help_record(ctx)) is not None
        }
        for title, names in self.groups.items():
            if here := [rows.pop(name) for name in names if name in rows]:
                with formatter.section(title):
                    formatter.write_dl(here)
        with formatter.section("Other options"):
            formatter.write_dl([*rows.values()])


class WrappingCommand(GroupedCommand):
    """A command that takes a command line behind `--`, as `tapeway run -- pytest` does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_WRAPPED] = tuple(args[at + 1 :])
            args = args[:at]
        ctx.meta[_GIVEN] = tuple(args)
        return super().parse_args(ctx, args)


class PrefixCommand(WrappingCommand):
    """A WrappingCommand with options as the only arguments: the command may come without `--`."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """What the usage names: the command too, which is no argument of click's."""
        return [*super().collect_usage_pieces(ctx), "-- COMMAND…"]

    allow_extra_args = True
    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if rest and _WRAPPED in ctx.meta:
            raise click.UsageError(f"put -- before the command: '{rest[0]}' is no option.", ctx)
        if rest:
            ctx.meta[_WRAPPED] = tuple(rest)
            ctx.meta[_GIVEN] = ctx.meta[_GIVEN][: -len(rest)]
        return rest


def given_options(context: click.Context) -> tuple[str, ...]:
    """The options in front of the command behind `--`, as they were written."""
    given: tuple[str, ...] = context.meta[_GIVEN]
    return given


def wrapped_command(context: click.Context) -> tuple[str, ...] | None:
    """The command behind `--`, None where none is given. Raises UsageError if it is empty."""
    command: tuple[str, ...] | None = context.meta.get(_WRAPPED)
    if command == ():
        raise click.UsageError("there is no command behind --.", context)
    return command
