"""The names of cassettes are made by the rules of the pytest plugin."""

import json
import random
import shutil
import subprocess

import pytest

from tapeway.core.http.routing import valid_cassette_name
from tapeway.pytest_plugin.names import cassette_name
from tests.clients.node.npm_project import PACKAGE

NAMES = json.dumps(str(PACKAGE / "src" / "names.cjs"))
PROGRAM = f"""
const {{ cassetteName, joined, namedTests }} = require({NAMES});
const {{ joins, files }} = JSON.parse(require("fs").readFileSync(0, "utf8"));
const names = ([file, tests]) => [...namedTests(file, tests.map((titles) => [{{}}, titles])).values()];
console.log(JSON.stringify({{
  joins: joins.map(([segments, id]) => joined(segments, id)),
  files: files.map((file) => names(file).map((each) => each.name)),
}}));
"""


def in_node(**given: object) -> dict[str, list[object]]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")
    done = subprocess.run(
        [node, "-e", PROGRAM], input=json.dumps(given), capture_output=True, text=True, check=True
    )
    found: dict[str, list[object]] = json.loads(done.stdout)
    return found


def test_titles_become_the_names_that_pytest_gives() -> None:
    draw = random.Random(25)
    alphabet = [*"aZ09._-\té\U0001f389\\:(\u0663", "con", "nul.", "x" * 40]
    titles = ["plain", *("".join(draw.choices(alphabet, k=draw.randint(1, 8))) for _ in range(300))]
    titles = [title for title in titles if "::" not in title]
    folders = [["f"], ["_a", "con"], [*"abcdefghij"]]
    cases = [
        ([*path, title], f"{'/'.join(path)}.py::{title}") for path in folders for title in titles
    ]

    names = in_node(joins=cases, files=[])["joins"]

    assert names == [cassette_name(node_id) for _, node_id in cases]
    assert len({*names}) > 600


def test_blanks_become_hyphens_without_digits_where_nothing_clashes() -> None:
    tests = [["names a spider"], ["deep", "in it"], ["what, now"], ["a b"], ["a-b"]]

    (names,) = in_node(joins=[], files=[["chat.test.ts", tests]])["files"]

    assert isinstance(names, list)
    assert names[:2] == ["chat.test/names-a-spider", "chat.test/deep.in-it"]
    assert names[2].startswith("chat.test/what_-now-")
    assert [name[: len("chat.test/a-b-")] for name in names[3:]] == ["chat.test/a-b-"] * 2
    assert len({*names}) == len(tests)


def test_a_file_has_one_name_for_each_of_its_tests() -> None:
    tests = [["greets"], ["Greets"], ["twice"], ["twice"], ["a.b"], ["a", "b"], ["two words"]]
    file = "src/chat.test.ts"

    first, again = in_node(joins=[], files=[[file, tests], [file, tests[::-1]]])["files"]

    assert isinstance(first, list)
    assert isinstance(again, list)
    assert first[2:4] == ["src/chat.test/twice", "src/chat.test/twice-2"]
    assert len({text.lower() for text in first}) == len(tests)
    assert all(map(valid_cassette_name, first))
    assert {*first} == {*again}


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("chat.test.ts", "chat.test/x"),
        ("src/chat.spec.tsx", "src/chat.spec/x"),
        ("chat.mjs", "chat/x"),
        ("..\\other\\chat.test.cts", "other/chat.test/x"),
    ],
)
def test_a_name_begins_with_the_file_without_its_suffix(file: str, name: str) -> None:
    assert in_node(joins=[], files=[[file, [["x"]]]])["files"] == [[name]]
