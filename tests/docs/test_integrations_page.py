"""The page on integrations: its programs run as shown, and run again on what they recorded."""

from pathlib import Path

import pytest

from tapeway.testing.stand_in import ThreadedStandIn
from tests.docs.test_examples import run_python
from tests.integrations.dspy.test_replay_cache import KEY, PYTHON, python
from tests.support.markdown import blocks
from tests.support.thoroughness import runs_everything


def program(section: str) -> str:
    (block,) = [
        candidate
        for candidate in blocks("docs/integrations.md", section)
        if candidate.language == "python"
    ]
    return block.text


@pytest.mark.slow
def test_interpositions_broker_runs_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_python(program("interposition"), warnings="ignore") == "b'hello'\n"
    before = Path("cassettes/smoke.json").read_bytes()
    assert run_python(program("interposition"), warnings="ignore") == "b'hello'\n"
    assert Path("cassettes/smoke.json").read_bytes() == before


@pytest.mark.elsewhere
@pytest.mark.skipif(not runs_everything(), reason="tests/integrations/dspy runs the like: --all")
@pytest.mark.skipif(not PYTHON.exists(), reason="`make clients` makes DSPy's environment")
def test_dspys_program_runs_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def run(**environ: str) -> str:
        offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        return run_python(program("DSPy"), python(), "ignore", **environ, **offline)

    with ThreadedStandIn() as service:
        where = {"OPENAI_API_BASE": service.url + "/v1", "OPENAI_API_KEY": KEY}
        recorded = run(CACHE_MODE="record", **where)
    replayed = run(**where)

    assert "What is 2+2?" in recorded
    assert replayed == recorded
