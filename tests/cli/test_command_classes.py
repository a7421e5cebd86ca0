"""Commands that need no server start without it: importing that takes longer than they do."""

import subprocess
import sys
from inspect import cleandoc
from pathlib import Path

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
_ALL_IMPORTED = """
import sys
from tapeway.cli.main import main
try:
    main(sys.argv[1:])
finally:
    own = [each for each in sys.modules if each.startswith("tapeway.")]
    parts = {".".join(each.split(".")[:3 if "admin" in each else 2]) for each in own}
    sys.stderr.write(" ".join(sorted(parts | (NAMED & sys.modules.keys()))))
"""
_NAMED = {
    *(
        "tapeway.core.misses.explanation",
        "tapeway.engine.editing",
        "tapeway.engine.cassettes.looked_up",
    ),
    *("tapeway.engine.report.summary", "difflib", "encodings.idna"),
    *("aiohttp", "aiohttp.web", "asyncio", "brotli", "importlib.metadata", "orjson"),
    *("prometheus_client", "pydantic", "re2", "tomllib", "uvloop", "yaml"),
}
_FOR_ENV = {
    *("tapeway.cli", "tapeway.core", "tapeway.errors", "tapeway.importing", "tapeway.logs"),
    *("tapeway.embedded", "tapeway.providers", "tapeway.version"),
    *("tapeway.settings", "tapeway.stores", "orjson"),
}

_FOR_SERVE = _FOR_ENV | {
    # The rest of the admin API, and pydantic for its models, are imported when it is first called.
    *("tapeway.admin", "tapeway.admin.auth"),
    *("tapeway.body_files", "tapeway.descriptors", "tapeway.engine", "tapeway.formats"),
    *("tapeway.cooperative", "tapeway.loop_guard", "tapeway.ports"),
    *("tapeway.server", "tapeway.upstream", "tapeway.watching"),
    *("aiohttp", "asyncio", "brotli", "uvloop"),
}


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["--version"], ""),
        (["env", "--provider=ollama", "--listen=127.0.0.1:8080"], ""),
        (["--help"], ""),
        ([], ""),
        (["cassette"], ""),
        (["cassette", "--help"], ""),
        (["cassette", "scan", "--help"], ""),
        (["cassette", "redact", "--help"], ""),
    ],
)
def test_what_a_command_does_not_need_is_not_imported(arguments: list[str], needed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _STARTED, *arguments], capture_output=True, text=True, check=True
    )

    assert done.stderr == needed


def _imported(*arguments: str, until_ready: bool = False) -> set[str]:
    code = _ALL_IMPORTED.replace("NAMED", repr(_NAMED))
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if until_ready:
            process.stdout.readline()
            process.terminate()
        process.stdout.read()
        return set(process.stderr.read().split())


def test_help_imports_commands_alone_and_env_the_settings() -> None:
    assert _imported("--help") == {
        *("tapeway.cli", "tapeway.core", "tapeway.errors", "tapeway.importing", "tapeway.version")
    }
    assert _imported("env", "--provider=ollama", "--listen=127.0.0.1:8080") == _FOR_ENV | {
        "tapeway.embedded.admin_client"
    }


def test_a_server_imports_no_libraries_that_few_need(tmp_path: Path) -> None:
    found = _imported(
        *("serve", "--store", str(tmp_path), "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"),
        "--log-level=error",
        until_ready=True,
    )

    assert found == _FOR_SERVE


@pytest.mark.parametrize("group", [tapeway, cassette])
def test_every_command_is_found_by_its_name(group: LazyGroup) -> None:
    context = click.Context(group)

    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert cleandoc(command.help or "").startswith(group.modules[name].summary.rstrip("."))
