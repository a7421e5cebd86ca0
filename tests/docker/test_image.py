"""The image at work: another user, a read-only root, no privilege, process 1."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docker import sandbox
from tests.docker.child import Child
from tests.docker.image import Image, build
from tests.docker.sandbox import Sandbox
from tests.support.thoroughness import step

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TOKEN = "token-of-this-test"
UPSTREAM = {"TAPEWAY_UPSTREAM": "http://127.0.0.1:9000"}

# A client in the container's network, since nothing outside can reach it.
CLIENT = """
import json, sys, urllib.request
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
request = urllib.request.Request(
    "http://127.0.0.1:8080/v1/chat/completions", body, {"Content-Type": "application/json"}
)
with urllib.request.urlopen(request) as answer:
    print(json.dumps([answer.headers["Tapeway-Outcome"], answer.read().decode()]))
"""


@pytest.fixture(name="image", scope="module")
def _image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    if reason := sandbox.missing():
        pytest.skip(reason)
    with Sandbox(tmp_path_factory.mktemp("sandbox")) as made:
        yield build(made, ROOT)


def test_a_recording_outlives_its_container_and_answers_in_the_next(image: Image) -> None:
    volume = image.volume("recorded")

    with image.run(volume, UPSTREAM | {"TAPEWAY_MODE": "auto"}) as container:
        assert container.ready()["pid"] == 1
        with _upstream(container):
            outcome, recorded = _ask(container)
        os.kill(container.pid, signal.SIGTERM)
        assert container.finish()[0] == 0
    with image.run(volume, {"TAPEWAY_MODE": "replay"}) as container:
        container.ready()
        assert _ask(container) == ["replayed", recorded]

    assert outcome == "recorded"
    assert "chat.completion" in recorded
    assert _owners(image, volume) == {(image.user, image.user)}
    assert _modes(image, volume, Path.is_file) == {0o600}
    assert _modes(image, volume, Path.is_dir) <= {0o700}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT][:: step(2)])
def test_process_1_stops_when_told_to(image: Image, number: signal.Signals) -> None:
    with image.run(image.volume(f"stopped-by-{number.name}")) as container:
        container.ready()
        os.kill(container.pid, number)

        assert container.finish()[0] == 0


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({}, id="as built"),
        pytest.param(
            {"TAPEWAY_ADMIN_LISTEN": "0.0.0.0:8081", "TAPEWAY_ADMIN_TOKEN": TOKEN},
            id="admin published",
        ),
        pytest.param({"TAPEWAY_ADMIN_LISTEN": "off"}, id="no admin"),
    ][:: step(2)],
)
def test_a_serving_container_is_healthy(image: Image, environment: dict[str, str]) -> None:
    volume = image.volume(f"healthy-{len(environment)}")

    with image.run(volume, environment) as container:
        container.ready()

        assert image.check_health(container, environment) == (0, "")


def test_a_configuration_file_comes_before_what_the_image_sets(image: Image) -> None:
    volume = image.volume("configured")
    file = image.sandbox.seen_from_here(volume) / "tapeway.toml"
    file.write_text('listen = "127.0.0.1:9080"\nadmin_listen = "127.0.0.1:9081"\n')
    environment = {"TAPEWAY_CONFIG": f"{image.place}/tapeway.toml"}
    with image.run(volume, environment) as container:
        ready = container.ready()
        health = image.check_health(container, environment)

    assert (ready["proxy"], ready["admin"]) == ("http://127.0.0.1:9080", "http://127.0.0.1:9081")
    assert health == (0, "")


def test_a_container_here_is_as_confined_as_it_claims(image: Image) -> None:
    with image.run(image.volume("confined")) as container:
        container.ready()
        status = image.execute(container, ["cat", "/proc/self/status"]).stdout
        written = image.execute(container, ["touch", "/opt/written"])

    facts = dict(line.split(":\t", 1) for line in status.splitlines())
    assert facts["Uid"].split() == [str(image.user)] * 4
    assert (facts["CapEff"], facts["CapBnd"]) == ("0" * 16, "0" * 16)
    assert facts["NoNewPrivs"] == "1"
    assert written.returncode == 1
    assert "Read-only file system" in written.stderr


def test_the_admin_listener_is_not_published_without_a_token(image: Image) -> None:
    volume = image.volume("published")

    with image.run(volume, {"TAPEWAY_ADMIN_LISTEN": "0.0.0.0:8081"}) as container:
        code, out, err = container.finish()

    assert (code, out) == (2, "")
    assert "token" in err


def test_any_user_who_owns_the_folder_can_run_it(image: Image) -> None:
    volume = image.folder("of-another", owner=4242, mode=0o700)

    with image.run(volume, user=4242) as container:
        container.ready()
        os.kill(container.pid, signal.SIGTERM)

        assert container.finish()[0] == 0


@pytest.mark.parametrize(
    "mode",
    [pytest.param(0o700, id="unreadable"), pytest.param(0o755, id="readable")][:: step(2)],
)
def test_a_folder_of_someone_else_ends_it_with_one_clear_line(image: Image, mode: int) -> None:
    folder = image.folder(f"of-root-{mode}", owner=0, mode=mode)

    with image.run(folder, UPSTREAM | {"TAPEWAY_MODE": "record"}) as container:
        code, out, err = container.finish()

    assert code in {1, 2}
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("tapeway: ")
    assert "/cassettes" in err


def _upstream(container: Child) -> Child:
    """The stand-in upstream in the network of that container, serving on return."""
    upstream = Child([*_beside(container), "-m", "tapeway.testing", "--port", "9000"])
    upstream.ready()
    return upstream


def _ask(container: Child) -> list[str]:
    asked = subprocess.run([*_beside(container), "-c", CLIENT], capture_output=True, text=True)
    assert asked.returncode == 0, asked.stderr
    answer: list[str] = json.loads(asked.stdout)
    return answer


def _beside(container: Child) -> list[str]:
    return ["nsenter", f"--target={container.pid}", "--net", sys.executable]


def _owners(image: Image, volume: Path) -> set[tuple[int, int]]:
    found = image.sandbox.seen_from_here(volume).rglob("*")
    return {(status.st_uid, status.st_gid) for status in (path.lstat() for path in found)}


def _modes(image: Image, volume: Path, kind: Callable[[Path], bool]) -> set[int]:
    found = image.sandbox.seen_from_here(volume).rglob("*")
    return {stat.S_IMODE(path.lstat().st_mode) for path in found if kind(path)}
