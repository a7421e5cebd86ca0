"""A run of pytest in a process of its own, over a few tests written for it, with our conftest."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PROJECT = Path(__file__).parents[2]
_OTHERS = ("agenttape", "anyio", "asyncio", "hypothesispytest", "pytest_cov", "schemathesis")
WITHOUT_OTHERS = tuple(f"-pno:{other}" for other in _OTHERS)
"""Options that leave out the plugins of our runs, which take longer to import than few tests to run."""


def run_tests(
    folder: Path,
    tests: str,
    *arguments: str,
    conftest: str = "",
    environ: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `tests` in that folder, or what the arguments select of them."""
    (folder / "conftest.py").write_text(f"from tests.conftest import *\n{conftest}")
    (folder / "test_inner.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    place = [f"--rootdir={PROJECT}", f"-c{PROJECT / 'pyproject.toml'}"]
    return subprocess.run(
        [*command, *place, *(arguments or ["."])],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": _with_project(), **(environ or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def _with_project() -> str:
    return os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
