"""The page on integrations: its programs run as shown."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tapeway.testing.stand_in import ThreadedStandIn
from tests.integrations.dspy.test_replay_cache import KEY, PYTHON
from tests.support.markdown import ROOT

_TEXT = (ROOT / "docs" / "integrations.md").read_text("utf-8")


def program(section: str) -> str:
    """The first block below a heading."""
    return _TEXT.partition(f"\n## {section}\n")[2].partition("```python\n")[2].partition("```")[0]


def run(python: str, section: str, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [python, "-W", "ignore", "-c", program(section)],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_interpositions_broker_runs_as_shown(tmp_path: Path) -> None:
    assert run(sys.executable, "interposition", tmp_path) == "b'hello'\n"
    before = (tmp_path / "cassettes" / "smoke.json").read_bytes()
    assert run(sys.executable, "interposition", tmp_path) == "b'hello'\n"
    assert (tmp_path / "cassettes" / "smoke.json").read_bytes() == before


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="`make setup` makes DSPy's environment")
def test_dspys_program_runs_as_shown(tmp_path: Path) -> None:
    with ThreadedStandIn() as service:
        where = {"OPENAI_API_BASE": service.url + "/v1", "OPENAI_API_KEY": KEY}
        offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        recorded = run(str(PYTHON), "DSPy", tmp_path, CACHE_MODE="record", **where, **offline)
    replayed = run(str(PYTHON), "DSPy", tmp_path, **where, **offline)

    assert "What is 2+2?" in recorded
    assert replayed == recorded
