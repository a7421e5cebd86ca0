"""The site of `make docs`: each page is in its navigation, and it loads nothing from elsewhere."""

import json
import re
import runpy
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
import yaml
from playwright.sync_api import Page, sync_playwright

from tests.support.markdown import ROOT
from tests.web.conftest import CHROMIUM, SANDBOX

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
    return [*_pages(config["nav"])]


def _pages(entries: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        for title, leads in entry.items():
            if isinstance(leads, str):
                yield title, leads
            else:
                yield from _pages(leads)


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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    if not ZENSICAL.exists():
        pytest.skip("`make docs` installs what builds the site")
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    runpy.run_path(str(SCRIPT))["gather"](folder / "build" / "pages")
    subprocess.run([ZENSICAL, "build", "--strict"], cwd=folder, check=True, timeout=60)
    return folder / "build" / "site"


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """Its address on a server of files."""
    handler = partial(SimpleHTTPRequestHandler, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.elsewhere
def test_the_site_builds_is_searchable_and_loads_nothing_from_another_host(site: Path) -> None:
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


@pytest.mark.elsewhere
def test_the_first_screen_has_what_it_shows_and_loads_all_of_it_from_the_site(site: Path) -> None:
    page = (site / "index.html").read_text("utf-8")
    loaded = re.findall(r"<(?:img|link|script)\b[^>]*?\b(?:src|href)=\"?([^\s\">]+)", page)

    assert {"./icon.svg", "docs/images/page-miss.png", "docs/images/red-to-green.png"} <= {*loaded}
    assert [path for path in loaded if not (site / path).exists()] == []
    assert (site / "docs" / "last.html").exists()


@pytest.mark.elsewhere
@pytest.mark.parametrize(("size", "scheme"), [((1280, 900), "light"), ((390, 844), "dark")])
def test_the_first_screen_begins_the_recording_and_asks_no_other_host(
    served: str, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    with _opened(served, size, scheme) as (tab, asked):
        box = tab.get_by_role("img", name="A recording without sound").bounding_box()

        assert box is not None
        assert box["y"] + box["height"] < size[1]
        assert tab.locator("body").get_attribute("data-md-color-scheme") == (
            "slate" if scheme == "dark" else "default"
        )
        assert {urlsplit(url).netloc for url in asked} == {urlsplit(served).netloc}


@pytest.mark.elsewhere
def test_a_button_leads_from_the_colours_of_the_system_to_light_and_to_dark_ones(
    served: str,
) -> None:
    with _opened(served, (1280, 900), "light") as (tab, _):
        for title in ("Light colours", "Dark colours"):
            tab.get_by_title(title).click()

        tab.locator("body[data-md-color-scheme=slate]").wait_for()
        tab.get_by_title("The colours of your system").click()
        tab.locator("body[data-md-color-scheme=default]").wait_for()


@pytest.mark.elsewhere
def test_searching_how_to_record_one_call_again_finds_record_anew_first(served: str) -> None:
    with _opened(served, (1280, 900), "light") as (tab, _):
        tab.get_by_role("button", name="Search").click()
        tab.get_by_role("combobox", name="Search").fill("record one call again")
        tab.get_by_role("status").get_by_text("results").wait_for()
        first = tab.get_by_role("option").first

        first.get_by_text("Record anew", exact=True).first.wait_for()
        assert "/docs/re-record/" in str(first.get_attribute("href"))


@contextmanager
def _opened(
    url: str, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> Iterator[tuple[Page, list[str]]]:
    """A tab with the page, and the addresses that it asked for."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with (
        sync_playwright() as client,
        client.chromium.launch(executable_path=CHROMIUM, args=SANDBOX) as browser,
    ):
        tab = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        asked: list[str] = []
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(url, wait_until="networkidle")
        yield tab, asked
