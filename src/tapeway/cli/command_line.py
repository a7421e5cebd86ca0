"""Commands that take another command behind `--`."""

import click

_KEY = "tapeway.command"


class Around(click.Command):
    """Keeps what stands behind the first `--` apart from its own arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_KEY] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


def command_of(context: click.Context) -> tuple[str, ...] | None:
    """The command behind `--`, None where there is no `--`. Raises UsageError for an empty one."""
    found: tuple[str, ...] | None = context.meta.get(_KEY)
    if found == ():
        raise click.UsageError("there is no command behind --.", context)
    return found
