"""The tests that pytest collects in a project, and the files of the tests under VCR.py's plugins.

These plugins write `-` for some characters, and name only the innermost class: a file's name alone
does not always say which test it belongs to.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tapeway.cli import terminal
from tapeway.embedded.client_variables import dummy_keys
from tapeway.settings.client_environment import KEY_VARIABLES

_REPLACED = re.compile(r"""[<>?%*:|"'/\\]""")
_TIMEOUT_S = 600
_LIST_TESTS = """
import json, sys, pytest

class Listing:
    found = []
    failed = []

    def pytest_collectreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_itemcollected(self, item):
        owner = getattr(item, "cls", None)
        name = item.name if owner is None else owner.__name__ + "." + item.name
        marked = item.get_closest_marker("default_cassette")
        own = str(marked.args[0]) if marked and marked.args else ""
        more = [str(path) for mark in item.iter_markers("vcr") for path in mark.args]
        self.found.append([item.nodeid, str(item.path), name, own, more])

pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "--tapeway=off"], [Listing()])
with open(sys.argv[1], "w") as file:
    json.dump([Listing.found, Listing.failed], file)
"""


@dataclass(frozen=True, slots=True)
class CollectedTest:
    """A test: pytest's id, the file, and the name of the cassette without the suffix.

    `named` is the cassette of the marker `default_cassette`, `more` are the cassettes of markers
    `vcr`.
    """

    node_id: str
    file: Path
    stem: str
    named: str = ""
    more: tuple[str, ...] = ()


def collect(root: Path) -> list[CollectedTest]:
    """The tests that pytest collects in a folder; a note names each module that it cannot import.

    A module may build a client, and SDKs want a key for this: each unset one gets a dummy.
    """
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "tests.json")
        try:
            subprocess.run(  # noqa: S603 - the interpreter that runs this
                [sys.executable, "-c", _LIST_TESTS, str(listed)],
                cwd=root,
                env={**os.environ, **dummy_keys(KEY_VARIABLES, os.environ)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
            collected, failed = json.loads(listed.read_bytes())
        except (OSError, ValueError, subprocess.TimeoutExpired):
            collected, failed = [], []
    for module in failed:
        terminal.print_error(
            f"pytest --collect-only fails at {module}: names of its files come from their paths alone"
        )
    if not collected:
        terminal.print_error("pytest collects no tests here: names come from the paths alone")
    return [
        CollectedTest(node_id, Path(file), stem_of(name), named, tuple(more))
        for node_id, file, name, named, more in collected
    ]


def stem_of(name: str) -> str:
    """What pytest-recording makes of a test's name."""
    return _REPLACED.sub("-", name)
