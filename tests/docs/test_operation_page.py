"""docs/errors.md quotes what the program says, docs/operation.md has every setting that is a limit."""

import re
from pathlib import Path

import pytest

from tapeway.settings.options import OPTION_OF, Settings

ROOT = Path(__file__).parents[2]
PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
PAGE = PAGES["operation.md"]
ERRORS = PAGES["errors.md"]
MODULES = sorted((ROOT / "src" / "tapeway").rglob("*.py"))


def _text(modules: list[Path]) -> str:
    # A message that is broken over lines is one again without its quotes.
    return re.sub(r'"\s*f?"', "", "\n".join(path.read_text() for path in modules))


SOURCE = _text(MODULES)


def _quoted_messages() -> list[str]:
    table = ERRORS.partition("## At the start")[2].partition("## While it serves")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    return [quote for cell in cells for quote in re.findall("`([^`]+)`", cell)]


@pytest.mark.parametrize("message", _quoted_messages())
def test_a_quoted_message_is_one_that_is_said(message: str) -> None:
    assert message in SOURCE


def _limits() -> list[list[str]]:
    table = PAGE.partition("\n## Limits\n")[2].partition("\n## ")[0]
    rows = [row.strip("|").split("|") for row in table.splitlines() if row.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def _shown(value: float, syntax: str) -> str:
    if syntax == "SIZE":
        return f"{value / 2**20:g} MiB"
    return f"{value:g} s" if syntax == "SECONDS" else f"{value}"


def test_the_table_of_limits_has_every_setting_that_is_one_with_its_value() -> None:
    told = {row[1].strip("`"): row[2] for row in _limits() if row[1].startswith("`--")}
    settings = Settings()
    limits = {
        f"--{name.replace('_', '-')}": _shown(value, _syntax(name))
        for name in OPTION_OF
        if type(value := getattr(settings, name)) in (int, float) and name != "miss_status"
    }

    assert told == limits


def _syntax(name: str) -> str:
    return OPTION_OF[name].metavar
