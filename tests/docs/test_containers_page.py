"""The files of docs/containers.md: they can be read, and what they name exists."""

import ast
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tapeway.settings.sources import OPTIONS, variable_of
from tests.admin.admin_and_proxy import World
from tests.admin.conftest import open_world
from tests.support.markdown import ROOT

EXAMPLES = ROOT / "examples"
MONITORING = EXAMPLES / "monitoring"
BASE = EXAMPLES / "kustomize" / "base"
_METRIC = re.compile(r"tapeway_[a-z_]+")
_SERIES = ("_bucket", "_sum", "_count")

__all__ = ["open_world"]  # the fixture


def queries() -> dict[str, str]:
    """The queries of the dashboard and of the alerts, by title."""
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text("utf-8"))
    found = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in dashboard["panels"]
        for target in panel["targets"]
    }
    for variable in dashboard["templating"]["list"]:
        found[variable["name"]] = variable["query"]
    rules = yaml.safe_load((MONITORING / "prometheus-rules.yml").read_text("utf-8"))
    return found | {rule["alert"]: rule["expr"] for rule in rules["groups"][0]["rules"]}


async def test_every_metric_of_the_dashboard_and_the_alerts_is_exposed(open_world: World) -> None:
    await open_world.ask()
    text = (await open_world.octets("/metrics")).decode()
    lines = re.findall(r"^(tapeway_\w+?)(?:\{(.*)\})? ", text, re.MULTILINE)
    exposed = {name for name, _ in lines}
    labels = {(name, word) for name, given in lines for word in re.findall(r"(\w+)=", given)}

    for title, query in queries().items():
        for name in _METRIC.findall(query):
            assert name in exposed, title
        for name, given in re.findall(r"(tapeway_\w+)\{([^}]*)\}", query):
            own = {word for word in re.findall(r"(\w+)=", given) if word != "job"}
            assert {(name, label) for label in own} <= labels, title
    used = {name for query in queries().values() for name in _METRIC.findall(query)}
    families = {
        re.sub("|".join(f"{suffix}$" for suffix in _SERIES), "", metric) for metric in exposed
    }
    shown = {re.sub("|".join(f"{suffix}$" for suffix in _SERIES), "", metric) for metric in used}
    assert {family for family in families if not family.endswith("_created")} == shown


def test_panels_overlap_nowhere_and_every_alert_says_what_to_do() -> None:
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text("utf-8"))
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    rules = yaml.safe_load((MONITORING / "prometheus-rules.yml").read_text("utf-8"))

    assert len({*places}) == len(places)
    for rule in rules["groups"][0]["rules"]:
        assert {*rule["annotations"]} == {"summary", "description"}
        assert rule["expr"].count("(") == rule["expr"].count(")")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_the_rules() -> None:
    command = ["promtool", "check", "rules", str(MONITORING / "prometheus-rules.yml")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_the_base_is_whole_and_names_options_that_exist() -> None:
    base = yaml.safe_load((BASE / "kustomization.yaml").read_text("utf-8"))
    documents = {
        resource: yaml.safe_load((BASE / resource).read_text("utf-8"))
        for resource in base["resources"]
    }
    (generated,) = base["configMapGenerator"]
    deployment: Any = documents["deployment.yaml"]["spec"]
    (container,) = deployment["template"]["spec"]["containers"]
    set_here = {literal.partition("=")[0] for literal in generated["literals"]}
    set_here |= {variable["name"] for variable in container["env"]}
    label = deployment["selector"]["matchLabels"]
    claim = deployment["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]

    assert {path.name for path in BASE.iterdir()} == {*documents, "kustomization.yaml"}
    assert set_here <= {variable_of(option) for option in OPTIONS}
    assert deployment["template"]["metadata"]["labels"] == label
    assert documents["service.yaml"]["spec"]["selector"] == label
    assert documents["volume.yaml"]["metadata"]["name"] == claim
    assert container["envFrom"] == [{"configMapRef": {"name": generated["name"]}}]
    drain = next(literal for literal in generated["literals"] if "DRAIN" in literal)
    grace = deployment["template"]["spec"]["terminationGracePeriodSeconds"]
    assert int(drain.partition("=")[2]) + 2 <= grace


def test_the_programs_are_programs(tmp_path: Path) -> None:
    folder = EXAMPLES / "testcontainers"
    ast.parse((folder / "test_app.py").read_text("utf-8"))
    assert json.loads((EXAMPLES / "devcontainer" / "devcontainer.json").read_text("utf-8"))
    for path in folder.iterdir():
        text = path.read_text("utf-8")
        assert "/@spider/openai/v1" in text, path
        assert "event" in text, path
    if shutil.which("node") is not None:
        command = ["node", "--check", str(folder / "spider.test.mjs")]
        assert subprocess.run(command, check=False, cwd=tmp_path).returncode == 0
