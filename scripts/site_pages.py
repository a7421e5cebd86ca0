"""Gather the pages of the site: the README and every file that its links lead to.

Run as `python scripts/site_pages.py FOLDER`. Files keep their places in it, so that a link which
works in the repository works on the site. The builder of the site would take one folder only.
"""

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LOOKS = (ROOT / "src" / "tapeway" / "web" / "icon.svg", ROOT / "docs" / "site.css")
_CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
_LINK = re.compile(r"\]\(([^()\s#:]+)(?:#[^()\s]*)?\)")


def linked(start: Path) -> set[Path]:
    """A page and every file that it leads to, from page to page; what does not exist is left out."""
    found, waiting = {start}, [start]
    while waiting:
        page = waiting.pop()
        if page.suffix != ".md":
            continue
        for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
            path = (page.parent / link).resolve()
            if path.is_file() and path.is_relative_to(ROOT) and path not in found:
                found.add(path)
                waiting.append(path)
    return found


def outside_search() -> set[Path]:
    """The pages about the project itself, which the search leaves out."""
    section = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\n  - Project:\n")[2]
    return {ROOT / page for page in re.findall(r"^      - .+: (\S+\.md)$", section, re.MULTILINE)}


def gather(folder: Path) -> None:
    """Copy the files of the site into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    unsearched = outside_search() | {*ROOT.glob("docs/adr/*.md")}
    for path in linked(ROOT / "README.md"):
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        if path in unsearched:
            target.write_text(_UNSEARCHED + target.read_text("utf-8"), "utf-8")
    for path in _LOOKS:
        shutil.copy(path, folder)


if __name__ == "__main__":
    gather(Path(sys.argv[1]))
