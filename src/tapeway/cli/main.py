"""The `tapeway` command: runs a command and turns errors into one line and an exit code."""

import logging
import sys
from collections.abc import Mapping, Sequence
from contextvars import copy_context

import click

from tapeway.cli import terminal
from tapeway.cli.cassette.group import CassetteCommands
from tapeway.cli.command_classes import LazyCommand, LazyGroup
from tapeway.errors import (
    CassetteCorrupt,
    CassetteUnreadable,
    CommandNotFound,
    ConfigError,
    TapewayError,
    describe,
)
from tapeway.version import VERSION

USAGE = 2
FAILURE = 1

log = logging.getLogger(__name__)


class _Commands(LazyGroup):
    modules: Mapping[str, LazyCommand] = {
        "serve": LazyCommand("Serve the proxy and the admin API until SIGTERM or SIGINT."),
        "child": LazyCommand(
            "Serve for the program that started this process, until that program ends.", hidden=True
        ),
        "run": LazyCommand("Run a command with the proxy around it.", "tapeway.cli.run.command"),
        "report": LazyCommand("Write the report of a running tapeway, in HTML with its journal."),
        "env": LazyCommand("Print the export lines that point each SDK at the proxy."),
        "cassette": LazyCommand(
            "Inspect and edit cassettes offline, in any store.", "tapeway.cli.cassette.group"
        ),
        "verify": LazyCommand(
            "Check that cassettes are complete and consistent.", "tapeway.cli.cassette.verify"
        ),
        "doctor": LazyCommand(
            "Find out why one run does not replay another, and the matching rules to add."
        ),
        "mcp": LazyCommand(
            "Serve tools for coding agents: cassettes, misses, conversations.",
            "tapeway.cli.mcp.command",
        ),
    }

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Also raises UsageError for a command of `tapeway cassette`, and says where it is."""
        if args[0] not in self.modules and args[0] in CassetteCommands.modules:
            raise click.UsageError(
                f"No such command '{args[0]}'. Did you mean 'cassette {args[0]}'?", ctx
            )
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, "-V", "--version", message="tapeway %(version)s")
def tapeway() -> None:
    """Record HTTP and LLM calls once, replay them offline."""


NOT_FOUND = 127
"""The exit code of shells for a program that does not exist."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code.

    0 is done, 2 wrong arguments or settings or an unreadable cassette, 127 a missing program to
    run, 1 any further failure.
    """
    terminal.reopen_closed_streams()
    code = copy_context().run(_run, arguments)
    terminal.discard_unwritable_output()
    sys.exit(code)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = tapeway.main(arguments, prog_name="tapeway", standalone_mode=False)
    except click.UsageError as exc:
        command = exc.ctx.command_path if exc.ctx is not None else "tapeway"
        return _fail(f"{exc.format_message()} See {command} --help", USAGE)
    except click.ClickException as exc:
        return _fail(exc.format_message(), exc.exit_code)
    except CommandNotFound as exc:
        return _fail(exc.message, NOT_FOUND)
    except (ConfigError, CassetteCorrupt, CassetteUnreadable) as exc:
        return _fail(exc.message, USAGE)
    except TapewayError as exc:
        return _fail(exc.message, FAILURE)
    except click.Abort:
        return _fail("interrupted", FAILURE)
    except OSError as exc:
        if not terminal.is_output_error(exc):
            return _unexpected(exc)
        # The command did its work: only its report is lost.
        return _fail(f"the output cannot be written ({exc.strerror})", FAILURE)
    except Exception as exc:  # the outermost handler: a traceback would show values
        return _unexpected(exc)
    return code if isinstance(code, int) else 0


def _unexpected(exc: Exception) -> int:
    log.debug("unexpected error", exc_info=True)
    return _fail(f"unexpected error: {describe(exc)}", FAILURE)


def _fail(message: str, code: int) -> int:
    terminal.print_error(" ".join(message.split()))
    return code
