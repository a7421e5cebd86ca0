"""The page on cassettes: its pruning runs as shown, on what a real run did not use."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tapeway.formats.native import document
from tests.cli.invocation import written
from tests.support.exchanges import interaction
from tests.support.markdown import ROOT, Block, fenced
from tests.support.shell_blocks import Shell

SECTION = (ROOT / "docs/cassettes.md").read_text("utf-8").partition("\n## Pruning\n")[2]
CALL = """curl --fail --silent -H 'content-type: application/json' \\
    --data '{"model":"m"}' "$OPENAI_BASE_URL/chat/completions"
"""


@pytest.mark.slow
def test_what_the_run_did_not_use_is_dropped(tmp_path: Path) -> None:
    items = [interaction(target=f"/v1/{each}") for each in "xyz"]
    used = interaction()
    file = written("smoke", *items[:2], used, used, items[2])
    Path("calls.sh").write_text(CALL * 2)
    block = fenced(SECTION.partition("\n## ")[0])[0]
    with ExitStack() as stack:
        shell = Shell(stack, tmp_path / "cassettes", folder=tmp_path)
        said = [
            shell.run(Block("sh", line.replace("pytest -q", "sh calls.sh")))
            for line in block.text.strip().splitlines()
        ]

    assert said[1].splitlines()[-1] == "smoke: 3 of 5 interactions would go, 2 left"
    assert said[2].splitlines()[-1] == "smoke: 3 of 5 interactions dropped, 2 left"
    assert said[3].splitlines()[-1] == "smoke: 1 of 2 interactions dropped, 1 left"
    (left,) = document.load(file.read_bytes()).interactions
    assert left == used
