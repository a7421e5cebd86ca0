"""A package that adds a store to tapeway from outside, laid out as pip installs it."""

import sys
from pathlib import Path


def install() -> None:
    """Have Python find the package, and its entry point."""
    if (folder := str(Path(__file__).parent)) not in sys.path:
        sys.path.append(folder)
