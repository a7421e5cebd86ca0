"""The files of docs/ci.md: they can be read, their commands exist, and what can run here does."""

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import click
import pytest
import yaml

from tapeway.admin.handlers.control import reported_cassette
from tapeway.admin.models.control import Counts, Report
from tapeway.cli.main import tapeway
from tapeway.core.json_text import Json
from tapeway.engine.journal import TOKENS
from tapeway.engine.report.summary import CassetteReport
from tapeway.settings.options import Settings
from tapeway.settings.sources import OPTIONS, variable_of
from tests.docker.dockerfile import stages
from tests.support.markdown import ROOT
from tests.support.shell_blocks import Shell

FOLDER = ROOT / "examples"
YAML = sorted(path.name for path in FOLDER.glob("*.y*ml"))
FILES = [*YAML, "tapeway.service"]
_COMMAND = re.compile(r"(?:^|[\s\-/])(tapeway (?:serve|run|cassette)\b[^\n|>]*)", re.MULTILINE)


def _read(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def _leaves(value: object) -> Iterator[str]:
    """Every text of a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from _leaves(member)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)


def _texts(name: str) -> list[str]:
    path = FOLDER / name
    if path.suffix == ".service":
        return [line.partition("=")[2] for line in path.read_text().splitlines() if line[:1] != "#"]
    return [text for document in yaml.safe_load_all(path.read_text()) for text in _leaves(document)]


def _commands() -> Iterator[tuple[str, str]]:
    for name in FILES:
        for text in _texts(name):
            for found in _COMMAND.findall(text):
                yield name, found


def test_the_page_names_every_file_at_the_top_of_the_folder() -> None:
    page = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(\.\./examples/([\w.-]+)\)", page))

    assert linked == {
        path.name for path in FOLDER.iterdir() if path.is_file() and path.suffix != ".py"
    }


@pytest.mark.parametrize(("name", "line"), list(_commands()))
def test_a_command_and_its_options_exist(name: str, line: str) -> None:
    words = shlex.split(line)[1:]
    own, _, wrapped = " ".join(words).partition(" -- ")
    command: click.Command = tapeway
    # A command remembers its option for help from the first context that asks for it.
    context = click.Context(command, **command.context_settings)
    arguments = own.split()
    while isinstance(command, click.Group):
        found = command.get_command(context, arguments.pop(0))
        assert found is not None, line
        command = found
    # Parsing refuses unknown options and values that an option does not take.
    rest = ["--", *wrapped.split()] if wrapped else []
    command.make_context("tapeway", [*arguments, *rest], parent=context)


@pytest.mark.parametrize("name", FILES)
def test_a_variable_is_one_that_tapeway_reads(name: str) -> None:
    named = set(re.findall(r"\bTAPEWAY_[A-Z_]+", (FOLDER / name).read_text(encoding="utf-8")))

    assert named <= {variable_of(option) for option in OPTIONS}


@pytest.mark.parametrize("name", [text for text in YAML if text.startswith(("github", "gitlab"))])
def test_its_scripts_are_shell(name: str) -> None:
    scripts = [text for text in _texts(name) if re.search(r"\b(tapeway|gh|curl) ", text)]

    assert scripts
    for script in scripts:
        plain = re.sub(r"\$\{\{.*?\}\}", "x", script)
        checked = subprocess.run(["bash", "-n", "-c", plain], capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_every_stop_waits_longer_than_the_drain() -> None:
    (deployment, _) = yaml.safe_load_all((FOLDER / "kubernetes-sidecar.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    environment = {
        variable["name"]: variable.get("value") for variable in pod["initContainers"][0]["env"]
    }
    service = _read("compose.yaml")["services"]["tapeway"]
    unit = (FOLDER / "tapeway.service").read_text(encoding="utf-8")

    waits = [
        (pod["terminationGracePeriodSeconds"], environment["TAPEWAY_DRAIN_TIMEOUT"]),
        (
            service["stop_grace_period"].removesuffix("s"),
            service["environment"]["TAPEWAY_DRAIN_TIMEOUT"],
        ),
        (
            re.findall(r"TimeoutStopSec=(\d+)", unit)[0],
            re.findall(r"--drain-timeout (\d+)", unit)[0],
        ),
    ]
    assert all(int(wait) >= int(drain) + 2 for wait, drain in waits)


def test_the_sidecar_is_ready_before_the_app_starts_and_runs_without_privilege() -> None:
    (deployment, claim) = yaml.safe_load_all((FOLDER / "kubernetes-sidecar.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (sidecar,) = pod["initContainers"]

    assert sidecar["restartPolicy"] == "Always"
    for probe in ("startupProbe", "readinessProbe"):
        assert sidecar[probe]["httpGet"] == {"path": "/readyz", "port": "admin"}
    assert sidecar["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert sidecar["securityContext"]["readOnlyRootFilesystem"] is True
    image = stages(ROOT / "Dockerfile")[-1]
    assert pod["securityContext"]["fsGroup"] == int(image.last("USER").text.split(":")[1])
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_compose_mounts_the_cassettes_and_the_configuration_it_names() -> None:
    service = _read("compose.yaml")["services"]["tapeway"]
    mounts = dict(mount.split(":")[:2] for mount in service["volumes"])
    image = stages(ROOT / "Dockerfile")[-1]

    assert mounts["./cassettes"] == image.last("VOLUME").words[0]
    assert mounts["./tapeway.toml"] == service["environment"]["TAPEWAY_CONFIG"]
    options: dict[str, Json] = _toml("tapeway.toml")
    assert Settings.parse(options).given == {*options}


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    program = tmp_path / "tapeway"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    unit = (FOLDER / "tapeway.service").read_text(encoding="utf-8")
    (tmp_path / "tapeway.service").write_text(
        unit.replace("/opt/tapeway/bin/tapeway", str(program)), encoding="utf-8"
    )

    checked = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "tapeway.service")],
        capture_output=True,
        text=True,
    )
    complaints = [line for line in checked.stderr.splitlines() if "tapeway.service" in line]
    assert (checked.returncode, complaints) == (0, [])


def _toml(name: str) -> dict[str, Json]:
    return cast("dict[str, Json]", tomllib.loads((FOLDER / name).read_text(encoding="utf-8")))


def _step(name: str, start: str) -> dict[str, Any]:
    """The step of a workflow whose name starts so."""
    steps = [step for job in _read(name)["jobs"].values() for step in job["steps"]]
    (found,) = [step for step in steps if step.get("name", "").startswith(start)]
    return cast("dict[str, Any]", found)


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [("true", 1, ""), ("", 1, ""), ("false", 0, "name=false\ncommit=false\n")],
)
def test_the_branch_of_a_fork_is_refused(tmp_path: Path, answer: str, code: int, told: str) -> None:
    gh = tmp_path / "gh"
    gh.write_text(f"#!/bin/sh\necho {answer}\n", encoding="utf-8")
    gh.chmod(0o755)
    output = tmp_path / "output"
    output.touch()

    done = subprocess.run(
        ["bash", "-e", "-c", _step("github-re-record.yml", "Find the branch")["run"]],
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "NUMBER": "7",
            "GITHUB_OUTPUT": str(output),
        },
        capture_output=True,
    )

    assert (done.returncode, output.read_text()) == (code, told)


def test_only_members_start_a_re_recording_and_only_recording_gets_the_key() -> None:
    job = _read("github-re-record.yml")["jobs"]["re-record"]
    with_key = [step["name"] for step in job["steps"] if "OPENAI_API_KEY" in step.get("env", {})]
    with_token = [step["name"] for step in job["steps"] if "GH_TOKEN" in step.get("env", {})]

    assert '["OWNER", "MEMBER", "COLLABORATOR"]' in job["if"]
    assert with_key == ["Record"]
    assert "Record" not in with_token
    assert "GH_TOKEN" not in job["env"]


COUNTS = [
    (Counts(replayed=3), 0),
    (Counts(replayed=30), 0),
    (Counts(), 1),
    (Counts(recorded=1), 1),
    (Counts(replayed=3, miss=1), 1),
    (Counts(replayed=3, error=1), 1),
    (Counts(miss=10, error=20), 1),
]


@pytest.mark.parametrize(("counts", "code"), COUNTS, ids=lambda case: str(case))
def test_a_service_container_fails_on_a_miss_on_an_error_and_where_nothing_was_asked(
    tmp_path: Path, counts: Counts, code: int
) -> None:
    curl = tmp_path / "curl"
    # The first call is for the report.
    curl.write_text(f'#!/bin/sh\necho \'{{"counts":{counts.model_dump_json()},"next":0}}\'\n')
    curl.chmod(0o755)

    done = subprocess.run(
        ["bash", "-e", "-c", _step("github-actions.yml", "Fail on a miss")["run"]],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "TOKEN": "t"},
        capture_output=True,
        text=True,
    )

    assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.parametrize("recorded", [0, 7])
@pytest.mark.parametrize("name", ["github-re-record.yml", "gitlab-ci.yml"])
def test_a_re_recording_fails_where_nothing_was_asked(
    tmp_path: Path, name: str, recorded: int
) -> None:
    report = Report(
        cassettes=[
            reported_cassette(
                CassetteReport("smoke", 0, recorded, 0, 0, (), (), (), dict.fromkeys(TOKENS, 0))
            )
        ],
        upstream_connections=0,
        bypassed=[],
        offline=None,
    )
    (tmp_path / "report").write_text(report.model_dump_json())
    program = tmp_path / "tapeway"
    # It writes the report where its option says.
    program.write_text('#!/bin/sh\n[ "$1 $4" != "run --report" ] || cp report "$5"\n')
    program.chmod(0o755)
    if name.startswith("github"):
        script = _step(name, "Record")["run"]
    else:
        script = "\n".join(_read(name)["re-record"]["script"][1:3])

    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "RUNNER_TEMP": str(tmp_path)},
        capture_output=True,
    )

    assert done.returncode == (0 if recorded else 1)


@pytest.mark.slow
def test_what_is_recorded_anew_is_compared_with_what_was_committed(tmp_path: Path) -> None:
    call = "curl --fail --silent --header 'content-type: application/json' --data @body.json"
    (tmp_path / "call.sh").write_text(f"{call} $OPENAI_BASE_URL/chat/completions\n")
    record = _step("github-re-record.yml", "Record")["run"]
    record = record.replace("pytest -q", "sh call.sh")
    record = record.replace("--mode record", "--mode record --route openai=https://api.openai.com")
    compare = _step("github-re-record.yml", "Compare")["run"]
    prepare = f"export RUNNER_TEMP={tmp_path} GITHUB_OUTPUT={tmp_path}/output\n"
    record = prepare + record
    body = '{{"model":"m","messages":[{{"role":"user","content":"{}"}}]}}'
    git = "git -c user.name=x -c user.email=x@example.com"

    with ExitStack() as stack:
        shell = Shell(stack, tmp_path / "cassettes", folder=tmp_path)
        (tmp_path / "body.json").write_text(body.format("hello"))
        shell.run(record)
        shell.run(f"git init --quiet && git add cassettes && {git} commit --quiet --message first")
        shell.run(prepare + compare)
        same = (tmp_path / "output").read_text()
        (tmp_path / "body.json").write_text(body.format("good evening"))
        shell.run(record)
        shell.run(prepare + compare)

    assert same == "changed=0\n"
    assert (tmp_path / "output").read_text() == "changed=0\nchanged=1\n"
    assert (
        "1 equal, 0 different, 0 only in HEAD:default, 1 only"
        in (tmp_path / "changes.md").read_text()
    )


@pytest.mark.slow
def test_a_service_container_gets_the_cassettes_and_tells_of_a_miss(tmp_path: Path) -> None:
    load = _step("github-actions.yml", "Load")["run"].replace("localhost", "127.0.0.1")
    check = _step("github-actions.yml", "Fail on a miss")["run"].replace("localhost", "127.0.0.1")
    call = "curl --silent http://127.0.0.1:8080/@suite%2Fsmoke/openai/v1/models"
    environment = _read("github-actions.yml")["jobs"]["service-container"]["services"]["tapeway"]
    assert environment["env"]["TAPEWAY_STORE"] == "memory:"

    with ExitStack() as stack:
        shell = Shell(stack, tmp_path / "cassettes", folder=tmp_path)
        shell.run(
            "tapeway run --cassette suite/smoke --route openai=https://api.openai.com -- "
            "sh -c 'curl --fail --silent $OPENAI_BASE_URL/models'"
        )
        shell.run(
            "tapeway serve --mode replay --store memory: --admin-token token-of-this-test"
            " --listen 127.0.0.1:8080 --admin-listen 127.0.0.1:8081 &"
        )
        token = "export TOKEN=token-of-this-test\n"
        shell.run(token + load)
        with pytest.raises(subprocess.CalledProcessError):
            shell.run(token + check)
        replayed = shell.run(f"{call} --include")
        shell.run(token + check)
        shell.run(call.replace("models", "files"))
        with pytest.raises(subprocess.CalledProcessError):
            shell.run(token + check)

    assert "Tapeway-Outcome: replayed" in replayed
