"""The package tapeway-pytest where tapeway is in no environment of the tests."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tapeway.embedded.deck import serve
from tapeway.testing import ThreadedStandIn
from tests.pytest_plugin.inner import CLIENT_FOLDER, PROJECT, cassettes, write
from tests.support import fork_server

NEEDED = ("_pytest", "iniconfig", "packaging", "pluggy", "py", "pygments", "pytest")
TEST = 'def test_it():\n    assert ask("one") in ("recorded", "replayed")\n'
_ABSENT = ("aiohttp", "click", "orjson", "pydantic", "tapeway")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that is installed: pytest, and the plugin with its entry point."""
    folder = tmp_path_factory.mktemp("packages")
    for name in NEEDED:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        place = Path(spec.origin)
        place = place.parent if place.stem == "__init__" else place
        (folder / place.name).symlink_to(place)
    shutil.copytree(CLIENT_FOLDER / "tapeway_pytest", folder / "tapeway_pytest")
    info = folder / "tapeway_pytest-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tapeway-pytest\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[pytest11]\ntapeway = tapeway_pytest.pytest_plugin.plugin\n"
    )
    return folder


def run(
    folder: Path, packages: Path, *options: str, prefix: str = "pass", **environ: str
) -> "subprocess.CompletedProcess[str]":
    """Run pytest with these packages alone."""
    program = f"{prefix}; import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-S", "-c", program, "-q", "-pno:cacheprovider", *options],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={"PYTHONPATH": str(packages), "PATH": "/usr/bin:/bin", "HOME": str(folder), **environ},
        check=False,
    )


def on_path(folder: Path, name: str, words: str) -> str:
    """A PATH with a program of this name, which hands its arguments on to tapeway."""
    folder.mkdir()
    interpreter, *arguments = fork_server.command()
    command = " ".join([interpreter, *arguments])
    program = folder / name
    # The proxy is no part of the environment of the tests: it does not get their packages.
    program.write_text(
        f'#!/bin/sh\nunset PYTHONPATH\ntest "$*" = "{words + " " if words else ""}child" || exit 3\nexec {command} child\n'
    )
    program.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tapeway", ""),
        ("uvx", "--from tapeway>=1.0.0rc1,<2 tapeway"),
        ("pipx", "run --spec tapeway>=1.0.0rc1,<2 tapeway"),
    ],
)
def test_a_suite_records_and_replays_with_a_tapeway_of_another_environment(
    tmp_path: Path, packages: Path, name: str, words: str
) -> None:
    write(
        tmp_path,
        TEST
        + f"\nimport sys\ndef test_alone():\n    assert not {{*{_ABSENT}}} & {{*sys.modules}}\n",
    )
    path = on_path(tmp_path / "bin", name, words.strip())

    with ThreadedStandIn() as upstream:
        route = f"openai={upstream.url}"
        recorded = run(tmp_path, packages, "--tapeway=record", PATH=path, TAPEWAY_ROUTE=route)
    replayed = run(tmp_path, packages, "--tapeway-report=r.md", PATH=path)

    assert "1 recorded" in recorded.stdout, recorded.stdout + recorded.stderr
    assert "1 replayed" in replayed.stdout, replayed.stdout + replayed.stderr
    assert "2 passed" in replayed.stdout
    assert [*cassettes(tmp_path)] == ["test_it/test_it"]
    assert "test_it/test_it" in (tmp_path / "r.md").read_text()


@pytest.mark.usefixtures("forked_proxies")
def test_a_sidecar_is_found_by_its_admin_url_on_any_system(tmp_path: Path, packages: Path) -> None:
    write(tmp_path, TEST)
    # What Windows has not.
    windows = (
        "import os, signal, socket, sys; sys.modules['fcntl'] = sys.modules['resource'] = None; "
        "del socket.send_fds, socket.recv_fds, os.pread, os.killpg, os.fork, signal.SIGKILL"
    )

    with (
        ThreadedStandIn() as upstream,
        serve(store=str(tmp_path / "kept"), route=[f"openai={upstream.url}"]) as sidecar,
    ):
        environ = {"TAPEWAY_ADMIN_URL": sidecar.admin_url, "PATH": ""}
        recorded = run(tmp_path, packages, "--tapeway=record", prefix=windows, **environ)
        replayed = run(tmp_path, packages, prefix=windows, **environ)
    alone = run(tmp_path, packages, "--tapeway=replay", prefix=windows)

    assert "1 recorded" in recorded.stdout, recorded.stdout + recorded.stderr
    assert "1 replayed" in replayed.stdout, replayed.stdout + replayed.stderr
    assert (tmp_path / "kept/test_it/test_it.json").exists()
    assert "tapeway runs on Linux and macOS" in alone.stderr


def test_without_any_tapeway_the_run_says_how_to_get_one(tmp_path: Path, packages: Path) -> None:
    write(tmp_path, TEST)

    done = run(tmp_path, packages, "--tapeway=replay", PATH=str(tmp_path))
    other = run(tmp_path, packages, "--tapeway=replay", TAPEWAY_BIN="/usr/bin/env echo")

    assert "there is no tapeway: install it" in done.stderr
    assert "this is not tapeway: it printed 'child" in other.stderr


def test_where_both_packages_are_installed_one_plugin_is_loaded(
    tmp_path: Path, packages: Path
) -> None:
    write(tmp_path, "def test_nothing():\n    pass\n")
    info = tmp_path / "tapeway-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tapeway\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pytest11]\ntapeway = tapeway.pytest_plugin.plugin\n")
    both = os.pathsep.join(map(str, (packages, tmp_path, PROJECT / "src")))

    done = run(tmp_path, packages, "--trace-config", "--tapeway=off", PYTHONPATH=both)

    assert "1 passed" in done.stdout, done.stdout + done.stderr
    loaded = [line for line in done.stdout.splitlines() if "pytest_plugin/plugin.py" in line]
    assert len(loaded) == 1, loaded


def test_serve_is_in_the_package_too(tmp_path: Path, packages: Path) -> None:
    program = (
        "from tapeway_pytest import serve\n"
        "with serve(store='memory:', mode='replay') as deck:\n"
        "    print(deck.url('openai').partition('/openai')[1:], deck.mode())\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": str(packages), "PATH": on_path(tmp_path / "bin", "tapeway", "")},
        check=False,
    )

    assert done.stdout == "('/openai', '/v1') replay\n", done.stderr
