"""The two pages that the program writes: docs/configuration.md and docs/command-line.md.

`python scripts/reference_pages.py configuration > docs/configuration.md` writes a page anew.
"""

import re
import sys
from collections.abc import Iterator
from copy import copy

import click

from tapeway.cli.main import tapeway
from tapeway.providers.catalogue import PROVIDERS
from tapeway.settings.options import OPTION_OF, Option
from tapeway.settings.sources import OPTIONS, flag_of, variable_of

_INTRODUCTION = """\
# Configuration

Set any option of `tapeway serve` as a flag, as an environment variable, or as a key of
`tapeway.toml`. For example, these two commands are equivalent:

    tapeway serve --mode replay --cassette smoke
    TAPEWAY_MODE=replay TAPEWAY_CASSETTE=smoke tapeway serve

This file does the same for `tapeway serve`, and adds two routes:

```toml
# tapeway.toml
mode = "replay"
cassette = "smoke"
route = ["local=http://127.0.0.1:9000", "azure=https://RESOURCE.openai.azure.com"]
```

- **Precedence**: flag, variable, file, default. `TAPEWAY_DEFAULTS=FILE` names a second file, which
  comes after all of these but the built-in defaults: for an image that sets its own.
- **File**: `tapeway.toml` in the working directory, or the one that `--config FILE` names.
- **Unknown names**: an unknown key in the file is an error, an unknown `TAPEWAY_…` variable a
  warning. An empty variable counts as not set.
- **Lists**: repeat the flag, separate values by commas in a variable, write a list in the file.
- **Switches**: a flag without a value is `true` or `false` in a variable and in the file, under
  either name: `--no-presets` is `TAPEWAY_PRESETS=false` or `TAPEWAY_NO_PRESETS=true`.
- **Secrets**: other users of the machine can see flags in the process list. Set `TAPEWAY_ADMIN_TOKEN`,
  `TAPEWAY_STORE`, `TAPEWAY_STORE_TOKEN` and `TAPEWAY_UPSTREAM_PROXY` as variables. Or name a file that
  holds the value, as images of databases do: `TAPEWAY_ADMIN_TOKEN_FILE`, `TAPEWAY_STORE_FILE`,
  `TAPEWAY_STORE_TOKEN_FILE`, `TAPEWAY_UPSTREAM_PROXY_FILE`. To set a variable and its file is an error.
- **What is no secret**: `not_secret` lists values that look like secrets and are none
  ([Secrets](secrets.md#what-is-no-secret)).
- **SIZE** is a number of bytes, or a number with `KiB`, `MiB` or `GiB`.
- **Matching rules** are set only in the table `[rules]` of the file: see [Matching](matching.md).
- **Faults** are set in tables `[[fault]]` of the file: see [Faults](faults.md).
- **Errors**: an invalid option stops the start with exit code 2. One line names the flag,
  the variable, or the file, line and key that the value came from, and what is accepted.
"""

_ROUTES = """\
## Built-in routes

Requests to `http://127.0.0.1:8080/NAME/…` go to the route's URL. `tapeway env` prints these
variables with the right value for each SDK. The URL of azure depends on the account: set it
yourself: `--route azure=https://RESOURCE.openai.azure.com`. The URL of bedrock depends on the region, which
`AWS_REGION` names; its requests are signed anew ([Amazon Bedrock](guides/bedrock.md)).

| Route | URL | Variables |
| --- | --- | --- |
"""


_COMMANDS = """\
# Command line

What each command does, and its own options. The options that set up a server or a store are in
[Configuration](configuration.md#options), with their variables; `tapeway COMMAND --help` prints both.
[Operation](operation.md#exit-codes) compares the exit codes.
"""
_WIDTH = 100
_DEFAULT = re.compile(r"\[([^\[\]]*)\]$")


def configuration() -> str:
    """The text of docs/configuration.md."""
    options = "\n".join(_rows())
    routes = "\n".join(
        f"| {name} | {provider.url or provider.regional or 'to be given'} | {_variables(provider.variables)} |"
        for name, provider in PROVIDERS.items()
    )
    return f"{_INTRODUCTION}\n## Options\n\n{options}\n\n{_ROUTES}{routes}\n"


def _rows() -> Iterator[str]:
    yield "| Flag | Variable | Default | |"
    yield "| --- | --- | --- | --- |"
    for name in OPTIONS:
        option = OPTION_OF[name]
        default = f"`{option.default}`" if option.default else "none"
        cells = [f"`{_flag(name, option)}`", f"`{variable_of(name)}`", default, option.description]
        yield f"| {' | '.join(str(cell) for cell in cells)} |"


def _flag(name: str, option: Option) -> str:
    if option.flag:
        return f"--[no-]{flag_of(name)[2:]}"
    times = "…" if option.repeatable else ""
    # A bar inside a table's cell would end it.
    return f"{flag_of(name)} {option.metavar}{times}".replace("|", "\\|")


def _variables(pairs: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"`{name}`" for name, _ in pairs) or "none is read by its SDK"


def command_line() -> str:
    """The text of docs/command-line.md: each command, in alphabetical order."""
    context = click.Context(tapeway, info_name="tapeway", **tapeway.context_settings)
    return "\n".join([_COMMANDS, *_commands(tapeway, context, {})])


def _commands(
    group: click.Group, context: click.Context, written: dict[click.Command, str]
) -> Iterator[str]:
    """A section for each command; a command with two names has its help under the first name."""
    for name in group.list_commands(context):
        if (command := group.get_command(context, name)) is None:
            continue
        own = click.Context(command, context, name, terminal_width=_WIDTH, max_content_width=_WIDTH)
        if isinstance(command, click.Group):
            yield from _commands(command, own, written)
        elif command in written:
            yield f"## {own.command_path}\n\nThe same as `{written[command]}`.\n"
        else:
            written[command] = own.command_path
            yield f"## {own.command_path}\n\n{_command(command, own)}"


def _command(command: click.Command, context: click.Context) -> str:
    """The help of a command, with the options of the configuration by their names alone."""
    shared = {param.name: param for param in command.params if param.name in OPTIONS}
    # The command itself stays as it is.
    own = copy(command)
    own.params = [param for param in command.params if param.name not in shared]
    text = f"```text\n{own.get_help(context)}\n```\n"
    if not shared:
        return text
    names = [name for name in OPTIONS if name in shared]
    missing = [name for name in OPTIONS if name not in shared]
    if len(missing) < len(names):
        but = f" but {_flags(missing)}" if missing else ""
        listed = f"All [options of the configuration](configuration.md#options){but}."
    else:
        listed = f"[Options of the configuration](configuration.md#options): {_flags(names)}."
    defaults = [
        f"`{flag_of(name)}` {default or 'none'}"
        for name in names
        if (default := _default(shared[name])) != (OPTION_OF[name].default or "")
    ]
    other = f" Defaults of this command: {', '.join(defaults)}." if defaults else ""
    return f"{text}\n{listed}{other}\n"


def _default(param: click.Parameter) -> str:
    """The default that the help of an option shows at its end, if any."""
    shown = _DEFAULT.search(param.help or "") if isinstance(param, click.Option) else None
    return "" if shown is None else shown[1]


def _flags(names: list[str]) -> str:
    return ", ".join(f"`{flag_of(name)}`" for name in names)


PAGES = {"configuration": configuration, "command-line": command_line}

if __name__ == "__main__":
    print(PAGES[sys.argv[1]](), end="")  # noqa: T201 - the module is run for this
