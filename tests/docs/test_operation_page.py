"""docs/operation.md quotes the program; what it quotes has to be what the program says."""

import re
from pathlib import Path

import pytest

import tapeway.descriptors as descriptors
from tapeway.engine import journal
from tapeway.settings.options import OptionSyntax, Settings
from tapeway.stores.shared import large_bodies

ROOT = Path(__file__).parents[2]
PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
PAGE = PAGES["operation.md"]
MODULES = sorted((ROOT / "src" / "tapeway").rglob("*.py"))


def _text(modules: list[Path]) -> str:
    # A message that is broken over lines is one again without its quotes.
    return re.sub(r'"\s*f?"', "", "\n".join(path.read_text() for path in modules))


SOURCE = _text(MODULES)
PROXY_SOURCE = _text([path for path in MODULES if "admin" not in path.parts])


def _quoted_messages() -> list[str]:
    table = PAGE.partition("At the start, in the line")[2].partition("While it serves")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    return [quote for cell in cells for quote in re.findall("`([^`]+)`", cell)]


@pytest.mark.parametrize("message", _quoted_messages())
def test_a_quoted_message_is_one_that_is_said(message: str) -> None:
    assert message in SOURCE


def test_the_messages_of_a_stop_are_those_that_are_said() -> None:
    told = PAGE.rpartition("A stop that ends with 1")[2]
    quotes = re.findall("`([^`]+)`", told)

    assert quotes == [
        "no room to write the cassette",
        "was changed by somebody while it was loaded",
    ]
    assert quotes[1] in SOURCE


def test_every_code_an_app_can_get_is_on_some_page_and_every_code_there_exists() -> None:
    said = set(re.findall(r'\bcode = "([a-z_]+)"|\bcode="([a-z_]+)"', PROXY_SOURCE))
    codes = {one or other for one, other in said}
    codes |= set(re.findall(r'50\d,\s+"(upstream_[a-z_]+)"', PROXY_SOURCE))
    everything = "\n".join(PAGES.values())
    # The first two end a start and never become an answer, the last is what its children refine.
    codes -= {"", "config", "listen", "upstream_error"}
    assert len(codes) > 20

    assert {code for code in codes if f"`{code}`" not in everything} == set()
    rows = [row for row in PAGE.splitlines() if re.match(r"\| `[a-z_]+` \| \d", row)]
    documented = {row.split("`")[1] for row in rows}
    assert len(documented) > 8
    assert documented <= codes | {"replay_miss"}


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
        for name, value in settings
        if type(value) in (int, float) and name != "miss_status"
    }

    assert told == limits


def _syntax(name: str) -> str:
    (found,) = [
        each.metavar
        for each in Settings.model_fields[name].metadata
        if isinstance(each, OptionSyntax)
    ]
    return found or ""


FIXED = {
    "cassettes that were asked for and hold nothing": f"{journal.MOST_EMPTY}",
    "large bodies of a database or another tapeway that stay here as temporary files": (
        f"{large_bodies.CACHED_FILES}, together {large_bodies.CACHED_BYTES // 2**20} MiB"
    ),
}
"""The limits that nothing sets."""


def test_the_table_of_limits_has_every_fixed_one_with_its_value() -> None:
    assert {row[0]: row[2] for row in _limits() if row[1] == "fixed"} == FIXED


@pytest.mark.parametrize(
    ("files", "kept", "cassettes", "connections"),
    [(24, 16, 4, 6), (256, 32, 21, 64), (1024, 64, 85, 256), (1 << 20, 64, 1024, 500)],
)
def test_the_shares_of_the_open_files_are_as_told(
    files: int, kept: int, cassettes: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "descriptor_limit", lambda: files)
    told = [row[2] for row in _limits() if row[1] == "`ulimit -n`"][1:]

    assert told == [
        "an eighth of all, 16 to 64",
        "a twelfth of all open files, 4 to 1024",
        "a quarter of all open files, 4 to 500",
    ]
    assert descriptors.descriptors_kept_back() == kept
    assert descriptors.max_open_cassettes() == cassettes
    assert descriptors.max_upstream_connections() == connections


def test_the_drain_is_as_long_as_it_says() -> None:
    assert f"`--drain-timeout` ({Settings().drain_timeout:g} s)" in PAGE
