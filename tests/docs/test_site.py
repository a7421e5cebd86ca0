"""The site of `make docs`: each page is in its navigation, and it loads nothing from elsewhere."""

import json
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.markdown import ROOT

SCRIPT = ROOT / "scripts" / "site_pages.py"
ZENSICAL = ROOT / ".venv-docs" / "bin" / "zensical"
_LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"?(https?:[^\s\">]+)")


class _Reader(yaml.SafeLoader):
    """Reads mkdocs.yml without its functions, which are Python's."""


_Reader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def _paths(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, list):
        for each in nav:
            yield from _paths(each)
    elif isinstance(nav, dict):
        yield from _paths(list(nav.values()))


def test_the_navigation_has_every_page_but_the_decisions_once() -> None:
    linked = runpy.run_path(str(SCRIPT))["linked"](ROOT / "README.md")
    pages = {path.relative_to(ROOT).as_posix() for path in linked if path.suffix == ".md"}
    tracked = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")}
    # Zensical's own reader takes tags that name functions of Python, and so does this one.
    config = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), _Reader)  # noqa: S506

    assert tracked <= pages
    assert sorted(_paths(config["nav"])) == sorted(
        each for each in pages if not each.startswith("docs/adr/")
    )


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
    index = (site / "search.json").read_text("utf-8")
    assert any("replay_miss" in item["text"] for item in json.loads(index)["items"])
