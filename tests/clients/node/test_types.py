"""The package's sources and the programs that use its types pass the strict checks of TypeScript."""

import shutil
from pathlib import Path

import pytest

from tests.clients.node.npm_project import PACKAGE, PROGRAMS, run


@pytest.fixture
def checked(workshop: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs, and a copy of the package that is no installed one: its sources are checked."""
    folder = Path(shutil.copytree(PROGRAMS, workshop / f"types-{len([*workshop.iterdir()])}"))
    shutil.copytree(PACKAGE, folder / "package")
    return folder


@pytest.mark.slow
def test_a_wrong_use_is_found_and_nothing_else_in_sources_and_users(checked: Path) -> None:
    wrong = 'import { useCassette } from "tapeway/vitest";\nuseCassette("a", { mode: "once" });\n'
    (checked / "vitest" / "wrong.test.ts").write_text(wrong)

    done = run(checked, ["tsc", "--project", "."])

    found = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert [line.partition(": Type ")[0] for line in found] == [
        "vitest/wrong.test.ts(2,20): error TS2322"
    ]
