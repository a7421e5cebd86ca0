"""The pages as a whole: their links lead somewhere, and they know every code of an error."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from tapeway.core.model.control import Mode

ROOT = Path(__file__).parents[2]
_FOLDERS = ("*.md", "docs/**/*.md", "docker/*.md", "packages/node/*.md")
PAGES = sorted(path for folder in _FOLDERS for path in ROOT.glob(folder))

_LINK = re.compile(r"\]\(([^()\s]+)\)")
_CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_OF_STARTS = frozenset({"config", "listen"})
"""These end a start with a message, and are in no answer."""

_WHERE_ERRORS_ARE_EXPLAINED = ("errors.md", "http.md", "admin-api.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = _CODE.sub("", page.read_text())
    targets = [link for link in _LINK.findall(text) if "://" not in link]

    assert [link for link in targets if not _leads_somewhere(page, link)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_list_inside_a_list_is_indented_as_every_reader_takes_it(page: Path) -> None:
    # Those of code hosts take two blanks; the one that builds the site, as the first Markdown, four.
    lines = _CODE.sub("", page.read_text()).splitlines()

    assert [line for line in lines if re.match(r" {1,3}(?:[-*]|\d+\.) ", line)] == []


def test_every_page_is_linked_from_another_one() -> None:
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in PAGES
        for link in _LINK.findall(page.read_text())
        if "://" not in link and not link.startswith("#")
    }

    unknown = [page for page in PAGES if page not in linked]
    assert [page.name for page in unknown if page.parent.name == "docs"] == []


def test_the_index_for_language_models_lists_every_page() -> None:
    # In the form of llmstxt.org: a title, a summary, and sections of links with notes.
    title, summary, *rest = (ROOT / "docs/llms.txt").read_text().split("\n\n")
    sections = [line for part in rest for line in part.splitlines() if line.startswith("#")]
    entries = re.findall(r"^- \[[^\]]+\]\((\S+)\): .", "\n".join(rest), re.MULTILINE)

    assert re.fullmatch(r"# \w+", title)
    assert summary.startswith("> ")
    assert all(re.fullmatch(r"## .+", section) for section in sections)
    folder = ROOT / "docs"
    pages = [path.relative_to(folder).as_posix() for path in folder.glob("**/*.md")]
    assert sorted(entries) == sorted(page for page in pages if not page.startswith("adr/"))


def test_every_code_of_an_error_is_explained_and_every_code_explained_exists() -> None:
    explained = "".join((ROOT / "docs" / page).read_text() for page in _WHERE_ERRORS_ARE_EXPLAINED)

    codes = {code for path in ROOT.glob("src/tapeway/**/*.py") for code in _codes(path)}
    codes -= _OF_STARTS
    # `upstream_error` is the kind of which each upstream_… is one.
    codes -= {"upstream_error"}
    assert len(codes) > 30
    assert sorted(code for code in codes if f"`{code}`" not in explained) == []
    page = (ROOT / "docs/errors.md").read_text()
    told = set(re.findall(r"^\| `([a-z_]+)` \| \d", page, re.MULTILINE))
    assert len(told) > 8
    assert told <= codes | {"replay_miss"}


def test_the_readme_has_a_row_for_each_mode() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")

    assert re.findall(r"^\| `(\w+)`", readme, re.MULTILINE) == [*get_args(Mode)]


def test_the_list_of_pages_leads_to_every_page_by_what_one_wants() -> None:
    linked = set(
        re.findall(r"\]\(([\w/-]+\.(?:md|txt))\)", (ROOT / "docs/index.md").read_text("utf-8"))
    )

    pages = {path.relative_to(ROOT / "docs") for path in ROOT.glob("docs/*.md")}
    assert {str(page) for page in pages} - {"index.md"} <= linked


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, heading = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not heading:
        return target.is_file()  # a site has no folders
    return target.suffix == ".md" and target.exists() and heading in _headings(target)


def _headings(page: Path) -> set[str]:
    found = _HEADING.findall(_CODE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in found}


def _codes(path: Path) -> Iterator[str]:
    """What stands behind `code=` in a call, and in the body of an error's class."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "code":
            given: ast.expr | None = node.value
        elif isinstance(node, ast.Assign | ast.AnnAssign) and path.name == "errors.py":
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            named = any(isinstance(target, ast.Name) and target.id == "code" for target in targets)
            given = node.value if named else None
        else:
            continue
        if isinstance(given, ast.Constant) and isinstance(given.value, str):
            yield given.value
