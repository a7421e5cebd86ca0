"""The example of an app beside its sidecar."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tapeway.settings.sources import OPTIONS, load_settings, variable_of

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


def test_the_admin_api_opens_with_a_token_and_stays_closed_without(
    services: dict[str, Any],
) -> None:
    environment = services["tapeway"]["environment"]

    assert environment["TAPEWAY_ADMIN_LISTEN"] == "${TAPEWAY_ADMIN_TOKEN:+0.0.0.0:8081}"
    assert environment["TAPEWAY_ADMIN_TOKEN"] == "${TAPEWAY_ADMIN_TOKEN:-}"


def test_an_empty_token_leaves_the_admin_api_on_the_container_s_loopback(
    services: dict[str, Any], tmp_path: Path
) -> None:
    environ = {
        name: re.sub(r"\$\{TAPEWAY_ADMIN_TOKEN:.*\}", "", value)
        for name, value in services["tapeway"]["environment"].items()
    }
    defaults = {"TAPEWAY_DEFAULTS": str(ROOT / "docker/defaults.toml"), "TAPEWAY_MODE": "replay"}

    settings = load_settings({}, environ | defaults, tmp_path).settings

    assert str(settings.admin_listen) == "127.0.0.1:8081"
    assert settings.admin_token is None


@pytest.mark.parametrize("page", ["compose.yaml", "docker/README.md"])
def test_the_command_that_ends_with_the_exit_code_of_the_app_is_named(page: str) -> None:
    commands = re.findall(r"docker compose up[^\n`]*", (ROOT / page).read_text(encoding="utf-8"))

    assert commands
    assert all("--exit-code-from app" in command for command in commands)


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


@pytest.mark.parametrize(("token", "listen"), [("", ""), ("token-of-this-test", "0.0.0.0:8081")])
def test_compose_itself_fills_the_file_in(token: str, listen: str) -> None:
    command = [*_compose(), "--file", str(FILE), "config"]
    environ = {name: value for name, value in os.environ.items() if "TAPEWAY_" not in name}

    done = subprocess.run(
        command,
        env=environ | {"TAPEWAY_ADMIN_TOKEN": token},
        capture_output=True,
        text=True,
        check=True,
    )

    filled = yaml.safe_load(done.stdout)["services"]["tapeway"]["environment"]
    assert filled["TAPEWAY_ADMIN_LISTEN"] == listen


def _compose() -> list[str]:
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]):
            asked = subprocess.run([*command, "version"], capture_output=True)
            if asked.returncode == 0:
                return command
    pytest.skip("neither the compose plugin of docker nor docker-compose is installed")
