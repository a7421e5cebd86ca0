"""The README, run as it stands: only its ports and its upstream are other ones."""

import tomllib
from contextlib import ExitStack
from pathlib import Path

import pytest

from tapeway.settings.options import Settings
from tests.support.markdown import ROOT, blocks
from tests.support.shell_blocks import Shell

BLOCKS = blocks("README.md")


@pytest.mark.slow
def test_every_block_of_the_readme_works_as_pasted(tmp_path: Path) -> None:
    outputs: list[str] = []
    with ExitStack() as stack:
        shell = Shell(stack, tmp_path / "cassettes")
        for block in BLOCKS:
            if block.language == "sh":
                outputs.append(shell.run(block))
            elif block.language == "toml":
                assert Settings.model_validate(tomllib.loads(block.text)).rules
            else:
                assert block.language == "text"
                for part in block.text.strip().split(" …"):
                    assert part.strip() in outputs[-1]
    shown = "\n".join(outputs)
    assert "Tapeway-Outcome: recorded" in outputs[1]
    assert "Tapeway-Outcome: replayed" in outputs[2]
    assert outputs[1].partition("\n\n")[2] == outputs[2].partition("\n\n")[2] != ""
    assert '"upstream_connections":0' in shown.replace('": ', '":')


def test_the_first_screen_shows_a_drawing_three_commands_and_the_mode_table() -> None:
    screen = (ROOT / "README.md").read_text("utf-8").partition("## ")[0]
    assert screen.count("```sh") == 3
    assert "┌──" in screen
    for mode in ("replay", "record", "auto", "passthrough"):
        assert f"| `{mode}`" in screen
    assert "What it does not do" in screen


def test_every_document_the_readme_links_to_exists() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    targets = {part.partition(")")[0] for part in text.split("](")[1:]}
    for target in targets:
        assert (ROOT / target.partition("#")[0]).exists(), target
