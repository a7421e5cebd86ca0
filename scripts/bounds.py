"""Prints pins for pip: those of `constraints.txt`, but for the libraries that tapeway rests on.

python scripts/bounds.py lowest|newest

Each of these libraries is pinned to the lowest version that `pyproject.toml` allows, or not at all: pip
then takes the newest. What they need themselves is not pinned either. Run it in the environment of
`make test`, which knows what that is.
"""

import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LIBRARIES = ("aiohttp", "apsw", "asyncpg", "orjson", "pydantic")
ROOT = Path(__file__).parents[1]


def lowest() -> list[str]:
    """A pin for each library to the lowest version that is allowed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["postgres"]]
    required = {each.name: each.specifier for each in map(Requirement, lines)}
    return [
        f"{name}=={bound.version}"
        for name in LIBRARIES
        for bound in required[name]
        if bound.operator == ">="
    ]


def free() -> set[str]:
    """The libraries and all that they need."""
    found, left = set[str](), [*LIBRARIES]
    while left:
        name = canonicalize_name(left.pop())
        if name not in found:
            found.add(name)
            required = [Requirement(each) for each in metadata.requires(name) or ()]
            left += [
                each.name for each in required if each.marker is None or each.marker.evaluate()
            ]
    return found


def pins(which: str) -> list[str]:
    """The lines for pip."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    gone = free()
    kept = [each for each in lines if canonicalize_name(each.partition("==")[0]) not in gone]
    return [*kept, *(lowest() if which == "lowest" else ())]


if __name__ == "__main__":
    if sys.argv[1:] not in (["lowest"], ["newest"]):
        sys.exit("usage: python scripts/bounds.py lowest|newest")
    sys.stdout.write("\n".join(pins(sys.argv[1])) + "\n")
