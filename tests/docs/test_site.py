"""The site of `make docs`: each page is in its navigation, and it loads nothing from elsewhere."""

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.markdown import ROOT

SCRIPT = ROOT / "scripts" / "site_pages.py"
ZENSICAL = ROOT / ".venv-tools" / "bin" / "zensical"
_LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"?(https?:[^\s\">]+)")


class _Reader(yaml.SafeLoader):
    """Reads mkdocs.yml without its functions, which are Python's."""


_Reader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def _navigation() -> list[tuple[str, str]]:
    """The title and the path of each page, in order."""
    # Zensical's own reader takes tags that name functions of Python, and so does this one.
    config = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), _Reader)  # noqa: S506
    return [
        item
        for section in config["nav"]
        for pages in section.values()
        for page in pages
        for item in page.items()
    ]


def test_a_page_has_the_same_title_in_the_navigation_and_at_its_top() -> None:
    headings = {
        path: (ROOT / path).read_text("utf-8").partition("\n")[0] for _, path in _navigation()
    }

    assert headings.pop("README.md") == "# tapeway"
    assert headings == {path: f"# {title}" for title, path in _navigation() if path in headings}


def test_the_navigation_has_every_page_but_the_decisions_once() -> None:
    linked = runpy.run_path(str(SCRIPT))["linked"](ROOT / "README.md")
    pages = {path.relative_to(ROOT).as_posix() for path in linked if path.suffix == ".md"}
    tracked = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")}

    assert tracked <= pages
    assert sorted(path for _, path in _navigation()) == sorted(
        page for page in pages if not page.startswith("docs/adr/")
    )


@pytest.mark.elsewhere
@pytest.mark.skipif(not ZENSICAL.exists(), reason="`make docs` installs what builds the site")
def test_the_site_builds_is_searchable_and_loads_nothing_from_another_host(tmp_path: Path) -> None:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    runpy.run_path(str(SCRIPT))["gather"](tmp_path / "build" / "pages")

    subprocess.run([ZENSICAL, "build", "--strict"], cwd=tmp_path, check=True, timeout=60)

    site = tmp_path / "build" / "site"
    pages = {page: page.read_text("utf-8") for page in site.rglob("*.html")}
    assert len(pages) > 50
    assert {
        page.name: found for page, text in pages.items() if (found := _LOADED.findall(text))
    } == {}
    items = json.loads((site / "search.json").read_text("utf-8"))["items"]
    assert any("replay_miss" in item["text"] for item in items)
    searched = {item["location"].partition("#")[0] for item in items}
    assert "docs/errors/" in searched
    assert not {
        page for page in searched if page.startswith(("docs/adr/", "docs/perf", "CHANGELOG"))
    }
