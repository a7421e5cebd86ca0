"""What a release says of itself: one version in all packages, and templates that can be read."""

import json
import re
import tomllib

import yaml
from packaging.requirements import Requirement

from tapeway.embedded.server_process import VERSIONS
from tapeway.version import VERSION
from tests.support.markdown import ROOT


def test_all_packages_have_one_version_which_the_changelog_begins_with() -> None:
    client = tomllib.loads((ROOT / "packages/python/pyproject.toml").read_text("utf-8"))
    node = json.loads((ROOT / "packages/node/package.json").read_text("utf-8"))

    # npm reads 1.0.0-rc.1 where Python's packages have 1.0.0rc1.
    assert client["project"]["version"] == node["version"].replace("-rc.", "rc") == VERSION
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)[0] == VERSION.partition("rc")[0]


def test_what_the_small_package_runs_by_uvx_includes_a_tapeway_of_its_own_version() -> None:
    assert Requirement(VERSIONS).specifier.contains(VERSION)


def test_the_packages_for_python_name_the_same_versions_of_it() -> None:
    named = [
        tomllib.loads((ROOT / text).read_text("utf-8"))["project"]
        for text in ("pyproject.toml", "packages/python/pyproject.toml")
    ]
    versions = [
        [
            classifier
            for classifier in project["classifiers"]
            if "Python :: 3." in classifier or "Status" in classifier
        ]
        for project in named
    ]

    assert versions[0] == versions[1]
    assert named[0]["requires-python"] == named[1]["requires-python"]
    stability = (ROOT / "docs/stability.md").read_text("utf-8")
    for text in re.findall(r"Python :: (3\.\d+)", "\n".join(versions[0])):
        assert text in stability


def test_issue_templates_ask_for_what_they_require() -> None:
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text("utf-8"))
        if path.stem != "config":
            assert {"name", "description", "body"} <= form.keys(), path
            assert all("label" in e["attributes"] for e in form["body"] if e["type"] != "markdown")
