"""Commands that need no server start without it: importing that takes longer than they do."""

import subprocess
import sys
from inspect import cleandoc

import click
import pytest

from tapeway.cli.cassette.group import cassette
from tapeway.cli.command_classes import LazyGroup
from tapeway.cli.main import tapeway

_STARTED = """
import sys
from tapeway.cli.main import main
try:
    main(sys.argv[1:])
finally:
    sys.stderr.write(" ".join(sorted({"aiohttp", "pydantic", "uvloop"} & sys.modules.keys())))
"""


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["--version"], ""),
        (["env", "--provider=ollama"], "pydantic"),
        (["--help"], ""),
        ([], ""),
        (["cassette"], ""),
        (["cassette", "--help"], ""),
        (["cassette", "scan", "--help"], "pydantic"),
        (["cassette", "redact", "--help"], "pydantic"),
    ],
)
def test_what_a_command_does_not_need_is_not_imported(arguments: list[str], needed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _STARTED, *arguments], capture_output=True, text=True, check=True
    )

    assert done.stderr == needed


@pytest.mark.parametrize("group", [tapeway, cassette])
def test_every_command_is_found_by_its_name(group: LazyGroup) -> None:
    context = click.Context(group)

    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert cleandoc(command.help or "").startswith(group.modules[name].summary.rstrip("."))
