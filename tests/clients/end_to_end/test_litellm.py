"""litellm through tapeway, from the environment of its own that it needs."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.end_to_end.recorded_run import RecordedRun, taken
from tests.clients.programs.target import Target
from tests.support import fork_server

PYTHON = Path(__file__).parents[3] / ".venv-clients" / "bin" / "python"
PROGRAM = Path(__file__).parents[1] / "programs" / "litellm_calls.py"

pytestmark = [
    pytest.mark.elsewhere,
    pytest.mark.skipif(not PYTHON.exists(), reason="`make clients` makes litellm's environment"),
]


@pytest.fixture(scope="module")
def take(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedRun]:
    with subprocess.Popen(
        [
            *(sys.executable, "-IS", str(fork_server.python(str(PYTHON), "dspy", "litellm"))),
            *("-W", "ignore", str(PROGRAM)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        text=True,
    ) as process:

        async def every_provider(target: Target) -> list[object]:
            """What litellm returns for each provider; all of them go through one route here."""
            return await asyncio.to_thread(_answers, process, target)

        runs = {"litellm": every_provider}
        with taken(tmp_path_factory.mktemp("litellm"), "many", runs) as found:
            yield found


def _answers(process: "subprocess.Popen[str]", target: Target) -> list[object]:
    assert process.stdin is not None
    assert process.stdout is not None
    bases = dict.fromkeys(("openai", "anthropic", "gemini", "ollama"), target.url)
    process.stdin.write(json.dumps(bases | {"key": target.key, "cookie": target.cookie}) + "\n")
    process.stdin.flush()
    answers: list[object] = json.loads(process.stdout.readline())
    return answers


@pytest.fixture
def leaks(take: RecordedRun) -> RecordedRun:
    return take


def test_litellm_gets_equal_answers_from_every_provider(take: RecordedRun) -> None:
    outcome = take.recorded["litellm"].outcome
    if isinstance(outcome, Exception):
        raise outcome

    assert len(outcome) > 4 * 10
    assert take.replay("litellm") == outcome
    assert take.proxy.status()["upstream_connections"] == 0
    # It asks Ollama what the model can do without passing its headers on.
    assert set(take.recorded["litellm"].withheld()) == {"/api/show"}
