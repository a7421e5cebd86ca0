import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.end_to_end.leaks import Leaks
from tests.support.demo import DEMO, demo


@pytest.mark.slow
def test_the_demo_ends_with_a_table_in_which_every_row_is_equal(
    tmp_path: Path, leaks: Leaks
) -> None:
    # It needs no key, and makes no use of one that lies about.
    keys = {name: leaks.secret(name) for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")}
    done = subprocess.run(
        [sys.executable, str(DEMO)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | keys,
        check=False,
    )
    leaks.pages |= {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    leaks.pages |= {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    rows = done.stdout.split("replayed\n")[1].splitlines()

    assert done.returncode == 0, done.stderr
    assert len(rows) == len(demo().ROWS) + 1
    assert all(row.endswith(" equal") for row in rows)
