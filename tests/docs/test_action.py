"""The GitHub Action: its steps run here as the runner runs them, with files for what it exports."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
import yaml

from tapeway.testing import ThreadedStandIn
from tests.support.markdown import ROOT


class RunnerJob:
    """A job: variables that its steps export, and its summary."""

    def __init__(self, folder: Path, upstream: str) -> None:
        self.folder = folder
        self.exported = folder / "env"
        self.summary = folder / "summary.md"
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "RUNNER_TEMP": str(folder / "temp"),
            "GITHUB_ENV": str(self.exported),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_ACTION_PATH": str(ROOT),
            "TAPEWAY_ENVIRONMENT": str(Path(sys.executable).parents[1]),
            "TAPEWAY_ROUTE": f"openai={upstream}",
        }

    def step(self, name: str, **given: str) -> "subprocess.CompletedProcess[str]":
        """Run a step with the inputs that it has by default, or with others."""
        action = yaml.safe_load((ROOT / "action.yml").read_text())
        inputs = {key: value["default"] for key, value in action["inputs"].items()}
        (step,) = action["runs"]["steps"]
        chosen = {**inputs, "step": name, **given}
        variables = {
            variable: chosen[text.removeprefix("${{ inputs.").removesuffix(" }}")]
            for variable, text in step["env"].items()
        }
        done = subprocess.run(
            ["bash", "-c", step["run"]],
            cwd=self.folder,
            env={**self.environ, **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if self.exported.exists():
            lines = self.exported.read_text().splitlines()
            self.environ |= dict(line.split("=", 1) for line in lines)
        return done

    def ask(self, words: str) -> str:
        body = {"model": "m", "messages": [{"role": "user", "content": words}]}
        url = f"{self.environ['OPENAI_BASE_URL']}/chat/completions"
        request = urllib.request.Request(url, json.dumps(body).encode())  # noqa: S310 - our own
        try:
            with urllib.request.urlopen(request) as response:  # noqa: S310 - our own
                return str(response.headers["Tapeway-Outcome"])
        except HTTPError as error:
            with error:
                return str(error.headers["Tapeway-Outcome"])


@pytest.fixture
def job(tmp_path: Path) -> Iterator[RunnerJob]:
    with ThreadedStandIn() as upstream:
        yield RunnerJob(tmp_path, upstream.url)


def test_a_job_records_and_then_replays_and_fails_on_a_miss(job: RunnerJob) -> None:
    started = job.step("start", mode="record")
    assert started.returncode == 0, started.stdout + started.stderr
    assert job.ask("one") == "recorded"
    assert job.step("finish").returncode == 0
    again = job.step("start")
    assert again.returncode == 0, again.stdout + again.stderr
    assert job.environ["OPENAI_API_KEY"] == "replay-needs-no-key"
    assert (job.ask("one"), job.ask("two")) == ("replayed", "miss")
    missed = job.step("finish")

    assert missed.returncode == 1
    assert "::error" in missed.stdout
    assert "requests missed or failed" in missed.stderr
    assert "messages[0].content" in job.summary.read_text()


def test_a_job_that_asks_nothing_fails(job: RunnerJob) -> None:
    assert job.step("start").returncode == 0
    done = job.step("finish")

    assert done.returncode == 1
    assert "nothing was asked" in done.stderr


def test_a_start_that_fails_says_why(job: RunnerJob) -> None:
    done = job.step("start", mode="sideways")

    assert done.returncode == 1
    assert "'sideways' is not accepted" in done.stdout
    assert job.step("begin").returncode == 2


def test_a_finish_after_a_start_that_failed_says_so(job: RunnerJob) -> None:
    job.step("start", mode="sideways")
    after = job.step("finish")

    assert after.returncode == 1
    assert "tapeway did not start in this job" in after.stderr
    assert "Traceback" not in after.stderr


def test_a_finish_without_a_start_says_so(job: RunnerJob) -> None:
    done = job.step("finish")

    assert done.returncode == 1
    assert done.stderr == "::error::tapeway did not start in this job: the step start comes first\n"
