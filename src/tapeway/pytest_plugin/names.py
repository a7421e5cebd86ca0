"""The cassette names of tests: `tests/api/test_chat/TestTools.test_add-2-3`.

A name is the same on every machine and under every selection of tests. Six digits are added where
characters had to be replaced or the name was cut, which keeps the names of two tests apart.
"""

import re
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Mapping

_LONGEST = 120
_MOST_FOLDERS = 7
_REPLACED = re.compile(r"[^A-Za-z0-9._-]")
_WINDOWS_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)


def cassette_name(node_id: str, *, params: bool = True) -> str:
    """The name of a test's cassette; without `params` one for all parameters of the test."""
    file, _, rest = node_id.partition("::")
    inner, bracket, given = rest.partition("[")
    last = inner.replace("::", ".")
    if bracket and params:
        last += f"-{given.removesuffix(']')}"
    return _joined([*_folders(file), last], node_id if params else f"{file}::{inner}")


def path_name(path: str) -> str:
    """The name for a path without a test, such as a file's path below a folder."""
    return _joined([part for part in path.split("/") if part not in ("", ".", "..")], path)


def scope_name(scope: str, node_id: str) -> str:
    """The cassette of what fixtures of a wider scope send; `node_id` is that of the scope's node."""
    file, _, inner = node_id.partition("::")
    match scope:
        case "class":
            segments = [*_folders(file), f"fixtures.{inner.replace('::', '.')}"]
        case "module":
            segments = [*_folders(file), "fixtures.module"]
        case "package":
            segments = [*_folders(file.removesuffix("/__init__.py")), "fixtures.package"]
        case _:
            segments = ["fixtures.session"]
    return _joined(segments, f"{scope}:{node_id}")


def distinct_names(names: Mapping[str, str], stored: Container[str] = ()) -> dict[str, str]:
    """Names by node id, with digits added where two differ in case alone: some disks ignore it.

    `stored` are the cassettes in the store. A stored name with a test's digits tells of an
    uncollected test whose name differs in case alone.
    """
    by_folded = Counter(name.lower() for name in set(names.values()))
    distinct = {}
    for node_id, name in names.items():
        numbered = _numbered(name, node_id)
        distinct[node_id] = numbered if by_folded[name.lower()] > 1 or numbered in stored else name
    return distinct


def _folders(file: str) -> list[str]:
    return [part for part in file.removesuffix(".py").split("/") if part not in ("", ".", "..")]


def _joined(segments: Iterable[str], node_id: str) -> str:
    segments = list(segments)
    kept = [_segment(segment) for segment in segments]
    if len(kept) > _MOST_FOLDERS + 1:
        kept[_MOST_FOLDERS - 1 : -1] = [_segment(".".join(kept[_MOST_FOLDERS - 1 : -1]))]
    name = "/".join(kept)
    return name if kept == segments else _numbered(name, node_id)


def _segment(text: str) -> str:
    name = _REPLACED.sub("_", text)[:_LONGEST]
    if name.endswith("."):
        name = f"{name[:-1]}_"
    if not name[:1].isalnum() or _WINDOWS_DEVICE.fullmatch(name):
        name = f"x{name}"[:_LONGEST]
    return name


def _numbered(name: str, node_id: str) -> str:
    folder, slash, last = name.rpartition("/")
    digits = f"-{zlib.crc32(node_id.encode(errors='surrogatepass')) % 1_000_000:06}"
    return f"{folder}{slash}{last[: _LONGEST - len(digits)]}{digits}"
