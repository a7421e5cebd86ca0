"""The files of the web page, and the policy that browsers hold it to.

The page is plain HTML, CSS and ES modules without a build step. It holds nothing of a recording:
all it shows comes from the API, by calls that carry the token.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

START = "index.html"
TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
"""By suffix. Any other file is no part of the page."""

CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "media-src blob: data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # Text of a recording that reached the page as markup would be an error, and not a script.
        "require-trusted-types-for 'script'",
        "trusted-types tapeway",
    ]
)


class PageFile(NamedTuple):
    """A file as it is sent."""

    content_type: str
    content: bytes


@cache
def page_files() -> Mapping[str, PageFile]:
    """The files by their path below `/web/`, and the page itself as `START`."""
    return dict(_files_below(files("tapeway") / "web", ""))


def _files_below(folder: Traversable, path: str) -> list[tuple[str, PageFile]]:
    below: list[tuple[str, PageFile]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            below += _files_below(entry, f"{path}{entry.name}/")
        elif (kind := TYPES.get(entry.name.rpartition(".")[2])) is not None:
            below.append((path + entry.name, PageFile(kind, entry.read_bytes())))
    return below
