"""`tapeway run --offline`: nothing but loopback is reached, and who was asked for is said."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tapeway.testing import ThreadedStandIn
from tests.process.commands.test_run import ENVIRON, app, recorded
from tests.process.serving import DEADLINE_S
from tests.support import fork_server

# Goes around the base URL in three ways: an SDK that reads no variable, a socket, a name look-up.
AROUND = """
import os, socket, sys, urllib.request

try:
    urllib.request.urlopen("https://sdk.example/v1/models", timeout=10)
except OSError as error:
    print("sdk:", error)
try:
    urllib.request.urlopen("http://user:secret-of-mine@plain.example:8000/x", timeout=10)
except OSError as error:
    print("plain:", error)
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10)
    print("socket: connected")
except OSError as error:
    print("socket:", type(error).__name__)
try:
    print("name:", socket.getaddrinfo("example.com", 443)[0][4][0])
except OSError as error:
    print("name:", type(error).__name__)
print("own:", urllib.request.urlopen(os.environ["TAPEWAY_ADMIN_URL"] + "/healthz").status)
"""
WITHOUT_NAMESPACE = """
import sys
from tapeway.cli.run import command
from tapeway.cli.main import main
command.enter_network_namespace = lambda: False
main(["run", *sys.argv[1:]])
"""


def has_namespaces() -> bool:
    return (
        subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode == 0
    )


needs_namespaces = pytest.mark.skipif(
    not has_namespaces(), reason="the kernel lets this user make no network namespace"
)


@contextmanager
def outside_address() -> Iterator[tuple[str, int]]:
    """A listener of this machine that is not on loopback, as a service on the network would be."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network to keep a command from")
        host = probe.getsockname()[0]
    with socket.create_server((host, 0)) as listener:
        yield host, listener.getsockname()[1]


def offline(
    folder: Path, *arguments: str, start: tuple[str, ...] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*(start or (*fork_server.command(), "run")), "--offline", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=folder,
        env=ENVIRON,
        check=False,
    )


@needs_namespaces
def test_in_a_network_namespace_no_way_around_the_base_url_reaches_anybody(tmp_path: Path) -> None:
    with outside_address() as (host, port):
        ended = offline(
            tmp_path, "--report=r.json", "--", sys.executable, "-c", AROUND, host, str(port)
        )

    said = dict(line.split(": ", 1) for line in ended.stdout.splitlines())
    assert ended.returncode == 3
    assert "403" in said["sdk"]
    assert "403" in said["plain"]
    assert (said["socket"], said["name"], said["own"]) == ("OSError", "gaierror", "200")
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["offline"] == "network namespace"
    assert report["bypassed"] == ["sdk.example:443", "plain.example:8000"]
    assert (
        "offline: in a network namespace of its own\n  bypassed: sdk.example:443\n" in ended.stderr
    )
    assert "secret-of-mine" not in ended.stderr


@pytest.mark.slow
def test_without_a_namespace_the_proxy_variables_hold_and_the_report_says_so(
    tmp_path: Path,
) -> None:
    start = (sys.executable, "-c", WITHOUT_NAMESPACE)
    with outside_address() as (host, port):
        command = ("--", sys.executable, "-c", AROUND, host, str(port))
        ended = offline(tmp_path, "--report=r.json", *command, start=start)

    said = dict(line.split(": ", 1) for line in ended.stdout.splitlines())
    assert ended.returncode == 3
    assert "403" in said["sdk"]
    assert "403" in said["plain"]
    assert (said["socket"], said["own"]) == ("connected", "200")
    assert "offline: by proxy variables alone" in ended.stderr
    assert json.loads((tmp_path / "r.json").read_text())["offline"] == "proxy variables"
    assert "  bypassed: sdk.example:443\n  bypassed: plain.example:8000\n" in ended.stderr


def test_a_command_that_keeps_to_the_base_url_replays(tmp_path: Path) -> None:
    recorded(tmp_path, "one")
    ended = offline(tmp_path, "--", *app(tmp_path, "one"))

    assert (ended.returncode, ended.stdout) == (0, "replayed\n"), ended.stderr
    assert "bypassed" not in ended.stderr


@needs_namespaces
def test_files_stay_those_of_the_user(tmp_path: Path) -> None:
    who = "import os; open('made', 'w').close(); print(os.getuid(), os.stat('made').st_uid)"
    ended = offline(tmp_path, "--", sys.executable, "-c", who)

    uid = (tmp_path / "made").stat().st_uid
    assert ended.stdout == f"{uid} {uid}\n", ended.stderr


def test_a_store_on_the_network_stays_within_reach(tmp_path: Path) -> None:
    with ThreadedStandIn() as upstream:
        ended = offline(tmp_path, f"--store={upstream.url}", "--", "true")

    assert upstream.requests, ended.stderr
