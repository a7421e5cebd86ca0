"""What must hold for the Dockerfile before anyone builds it."""

import re
import tomllib
from pathlib import Path

import pytest

from tapeway.version import VERSION
from tests.docker.dockerfile import Stage, stages

ROOT = Path(__file__).parents[2]
DEFAULTS = tomllib.loads((ROOT / "docker/defaults.toml").read_text(encoding="utf-8"))


@pytest.fixture(name="build")
def _build() -> Stage:
    return stages(ROOT / "Dockerfile")[0]


@pytest.fixture(name="image")
def _image() -> Stage:
    return stages(ROOT / "Dockerfile")[-1]


def test_both_stages_start_from_the_same_bytes(build: Stage, image: Stage) -> None:
    assert build.base == image.base
    assert re.fullmatch(r"python:3\.12-slim@sha256:[0-9a-f]{64}", image.base)


def test_a_file_mounted_as_the_readme_says_is_in_the_working_directory(image: Stage) -> None:
    readme = (ROOT / "docker/README.md").read_text(encoding="utf-8")

    assert f"tapeway.toml:{image.last('WORKDIR').text}/tapeway.toml" in readme


def test_the_program_is_pid_1_and_not_a_child_of_a_shell(image: Stage) -> None:
    assert image.last("ENTRYPOINT").exec_form == ["tapeway"]
    assert image.last("CMD").exec_form == ["serve"]


def test_it_runs_as_a_numbered_user_who_owns_the_volume(image: Stage) -> None:
    user, group = image.last("USER").text.split(":")
    steps = " ".join(step.text for step in image.all("RUN"))

    assert int(user) > 0
    assert f"useradd --uid {user} --gid {group}" in steps
    assert f"--owner={user} --group={group}" in steps
    assert image.last("VOLUME").exec_form == [DEFAULTS["store"]]


def test_the_proxy_is_reachable_and_the_admin_listener_is_not(image: Stage) -> None:
    assert DEFAULTS["listen"] == "0.0.0.0:8080"
    assert DEFAULTS["admin_listen"] == "127.0.0.1:8081"
    assert image.last("EXPOSE").words == ["8080", "8081"]


def test_no_token_is_baked_into_the_image(build: Stage, image: Stage) -> None:
    names = build.environment | image.environment

    assert [name for name in names if re.search("TOKEN|KEY|SECRET|PASSWORD", name)] == []


def test_its_labels_say_what_the_package_says(image: Stage) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    labels = dict(word.split("=", 1) for word in image.last("LABEL").words)

    assert labels == {
        "org.opencontainers.image.title": project["name"],
        "org.opencontainers.image.description": project["description"],
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.licenses": project["license"],
        "org.opencontainers.image.vendor": project["authors"][0]["name"],
        "org.opencontainers.image.base.name": f"docker.io/library/{image.base.split('@')[0]}",
    }


def test_the_health_check_needs_no_shell_and_no_further_program(image: Stage) -> None:
    check = image.last("HEALTHCHECK").text.removeprefix("CMD ")

    assert check == '["python", "/opt/tapeway/healthcheck.py"]'
    assert image.last("STOPSIGNAL").text == "SIGTERM"


def test_every_pin_reaches_the_image(build: Stage) -> None:
    for step in build.all("RUN"):
        assert "PIP_CONSTRAINT=constraints.txt" in step.text
        assert "PIP_BUILD_CONSTRAINT=constraints.txt" in step.text


def test_the_dependencies_are_installed_before_the_source_is_there(build: Stage) -> None:
    keywords = [
        line.keyword for line in build.instructions if line.keyword == "RUN" or "src" in line.words
    ]

    assert keywords == ["RUN", "COPY", "RUN"]
    assert "--no-deps" in build.last("RUN").text


def test_no_option_is_set_where_it_would_come_before_a_configuration_file(image: Stage) -> None:
    assert [name for name in image.environment if name.startswith("TAPEWAY_")] == [
        "TAPEWAY_DEFAULTS"
    ]


def test_what_is_copied_is_there_and_not_ignored(build: Stage, image: Stage) -> None:
    patterns = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")}
    copied = {
        source
        for stage in (build, image)
        for line in stage.all("COPY")
        if "from" not in line.flags
        for source in line.words[:-1]
    }

    assert "*" in patterns
    assert copied == sent
    assert [source for source in copied if not (ROOT / source).exists()] == []
