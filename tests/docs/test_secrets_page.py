"""The page on secrets: what it shows is what happens."""

from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.leak_guard import leak_error
from tests.support.markdown import ROOT, Block, fenced
from tests.support.shell_blocks import Shell


def section(title: str) -> list[Block]:
    """The fenced blocks below one heading."""
    text = (ROOT / "docs/secrets.md").read_text("utf-8")
    _, heading, rest = text.partition(f"\n## {title}\n")
    assert heading, title
    return fenced(rest.partition("\n## ")[0])


def test_a_recording_is_refused_in_these_words() -> None:
    (shown,) = section("Fail closed")

    assert shown.text.strip() == leak_error(Secret("x-api-key", b""), "response.headers.…").message


@pytest.mark.slow
def test_a_cassette_is_scanned_and_redacted_as_shown(tmp_path: Path) -> None:
    said, shown = "", 0
    with ExitStack() as stack:
        shell = Shell(stack, tmp_path / "cassettes", folder=tmp_path)
        for block in section("Scanning"):
            if block.language == "sh":
                said = shell.run(block)
            elif block.language == "text":
                shown += 1
                assert said.strip() == block.text.strip()
    assert shown == 2


def test_the_hook_that_is_shown_is_the_one_that_is_offered() -> None:
    (shown,) = [block for block in section("Scanning") if block.language == "yaml"]
    (offered,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))

    (repository,) = yaml.safe_load(shown.text)["repos"]
    (hook,) = repository["hooks"]

    assert {**hook, "language": "python", "description": offered["description"]} == offered
