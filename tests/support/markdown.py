"""The fenced blocks of a document, so that what it shows can be run."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block and what language it is in.

    `section` is the heading above it, empty for the beginning of a document; `follows` says that
    it stands right below the block before it, with no text between the two.
    """

    language: str
    text: str
    section: str = ""
    follows: bool = False


def blocks(document: str, section: str | None = None) -> list[Block]:
    """The fenced blocks of a document of the repository, or of one section of it, in order."""
    found = fenced((ROOT / document).read_text("utf-8"))
    if section is None:
        return found
    own = [block for block in found if block.section == section]
    assert own, (document, section)
    return own


def fenced(text: str) -> list[Block]:
    """The fenced blocks of a text, in order."""
    found: list[Block] = []
    section, end = "", 0
    for match in _FENCED.finditer(text):
        between = text[end : match.start()]
        if headings := _HEADING.findall(between):
            section = headings[-1]
        follows = bool(found) and not between.strip()
        found.append(Block(match[1], match[2], section, follows))
        end = match.end()
    return found
