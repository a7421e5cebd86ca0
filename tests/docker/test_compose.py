"""The example of an app beside its sidecar."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tapeway.settings.sources import OPTIONS, variable_of

ROOT = Path(__file__).parents[2]
FILE = ROOT / "compose.yaml"


@pytest.fixture(name="services")
def _services() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
    return services


def test_the_app_changes_nothing_but_its_base_url(services: dict[str, Any]) -> None:
    urls = {k: v for k, v in services["app"]["environment"].items() if k.endswith("_BASE_URL")}

    assert urls
    assert all(url.startswith("http://tapeway:8080/") for url in urls.values())


def test_the_app_waits_until_the_sidecar_is_healthy(services: dict[str, Any]) -> None:
    assert services["app"]["depends_on"] == {"tapeway": {"condition": "service_healthy"}}


def test_the_admin_token_comes_from_outside_and_is_demanded(services: dict[str, Any]) -> None:
    token = services["tapeway"]["environment"]["TAPEWAY_ADMIN_TOKEN"]

    assert re.fullmatch(r"\$\{TAPEWAY_ADMIN_TOKEN:\?.+\}", token)


def test_published_ports_stay_on_this_machine(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]

    assert ports == ["127.0.0.1:8081:8081"]


def test_the_sidecar_has_no_privilege_and_writes_only_to_its_volume(
    services: dict[str, Any],
) -> None:
    sidecar = services["tapeway"]

    assert sidecar["read_only"] is True
    assert sidecar["cap_drop"] == ["ALL"]
    assert sidecar["security_opt"] == ["no-new-privileges:true"]
    assert sidecar["volumes"] == ["cassettes:/cassettes"]


def test_every_variable_it_sets_is_one_that_tapeway_reads(services: dict[str, Any]) -> None:
    known = {variable_of(option) for option in OPTIONS}

    assert services["tapeway"]["environment"].keys() <= known


def test_files_it_mounts_are_there(services: dict[str, Any]) -> None:
    mounts = [mount.split(":")[0] for mount in services["app"]["volumes"]]

    assert mounts
    assert all((ROOT / mount).is_file() for mount in mounts)


def test_compose_itself_accepts_the_file() -> None:
    compose = _compose()
    command = [*compose, "--file", str(FILE), "config", "--quiet"]

    refused = subprocess.run(command, env=_environment(), capture_output=True, text=True)
    accepted = subprocess.run(
        command,
        env=_environment() | {"TAPEWAY_ADMIN_TOKEN": "token-of-this-test"},
        capture_output=True,
        text=True,
    )

    assert refused.returncode != 0
    assert "choose a token" in refused.stderr
    assert accepted.returncode == 0, accepted.stderr


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TAPEWAY_")}


def _compose() -> list[str]:
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]):
            asked = subprocess.run([*command, "version"], capture_output=True)
            if asked.returncode == 0:
                return command
    pytest.skip("neither the compose plugin of docker nor docker-compose is installed")
