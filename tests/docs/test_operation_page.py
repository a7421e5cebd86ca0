"""docs/operation.md quotes the program; what it quotes has to be what the program says."""

import re
from pathlib import Path

import pytest

from tapeway.settings.options import Settings

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


def test_the_drain_is_as_long_as_it_says() -> None:
    assert f"`--drain-timeout` ({Settings().drain_timeout:g} s)" in PAGE
