"""`.tapeway/last.html`: the report that every run leaves behind."""

from pathlib import Path

OWN_FOLDER = ".tapeway"
LAST = f"{OWN_FOLDER}/last.html"


def own_folder(root: Path) -> Path:
    """The folder for what no repository should hold. Raises OSError."""
    folder = root / OWN_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    return folder


def write_last(root: Path, page: str) -> None:
    """Write the report of a run. Raises OSError."""
    own_folder(root)
    (root / LAST).write_text(page, encoding="utf-8")


def last_url(root: Path) -> str:
    """Where a browser opens it."""
    return (root.resolve() / LAST).as_uri()
