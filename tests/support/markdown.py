"""The fenced blocks of a document, so that what it shows can be run."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block and what language it is in."""

    language: str
    text: str


def blocks(document: str) -> list[Block]:
    """The fenced blocks of a document of the repository, in order."""
    return fenced((ROOT / document).read_text("utf-8"))


def fenced(text: str) -> list[Block]:
    """The fenced blocks of a text, in order."""
    return [Block(language, body) for language, body in _FENCED.findall(text)]
