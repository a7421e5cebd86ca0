"""What gitleaks finds with its own rules, where it is installed."""

import json
import shutil
import subprocess
from pathlib import Path

PROGRAM = shutil.which("gitleaks")


def found(folder: Path) -> list[str]:
    """A line for each finding: the rule, the place and what gitleaks takes for a secret."""
    assert PROGRAM is not None
    report = folder.with_name(f"{folder.name}-report.json")
    # Rules of the folder it is run in do not count, nor those of the environment.
    subprocess.run(
        [PROGRAM, "dir", folder, "--no-banner", "-f", "json", "-r", report, "--exit-code", "0"],
        check=True,
        capture_output=True,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin"},
    )
    return [
        f"{item['RuleID']} line {item['StartLine']}: {item['Match']}"
        for item in json.loads(report.read_text())
    ]
