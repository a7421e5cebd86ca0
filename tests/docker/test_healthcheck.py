"""The health check as the container's engine runs it: a process and its exit code."""

import ssl
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import pytest
import trustme

from tests.support.serving_thread import serving

SCRIPT = Path(__file__).parents[2] / "docker" / "healthcheck.py"


class Admin(BaseHTTPRequestHandler):
    """Ready until its server is told otherwise."""

    def do_GET(self) -> None:
        ready = cast("Server", self.server).ready
        self.send_response(200 if ready and self.path == "/readyz" else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it here."""


class Server(ThreadingHTTPServer):
    """An admin listener."""

    ready = True


@pytest.fixture(name="admin")
def _admin() -> Iterator[Server]:
    with serving(Server(("127.0.0.1", 0), Admin)) as server:
        yield server


@pytest.fixture(name="port")
def _port(admin: Server) -> int:
    return admin.server_port


def _check(folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", str(SCRIPT)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", ""])
def test_an_admin_listener_that_is_ready_is_healthy(port: int, host: str) -> None:
    checked = _check(TAPEWAY_ADMIN_LISTEN=f"{host}:{port}")

    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.fixture(name="secure_port")
def _secure_port(admin: Server) -> int:
    """The port of an admin listener with a certificate for another name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("tapeway.example").configure_cert(context)
    admin.socket = context.wrap_socket(admin.socket, server_side=True)
    return admin.server_port


def test_an_admin_listener_with_tls_is_asked_over_tls(secure_port: int, tmp_path: Path) -> None:
    listen = f"127.0.0.1:{secure_port}"
    by_variable = _check(TAPEWAY_ADMIN_LISTEN=listen, TAPEWAY_ADMIN_TLS="true")
    (tmp_path / "tapeway.toml").write_text("admin_tls = true\n", encoding="utf-8")
    by_file = _check(tmp_path, TAPEWAY_ADMIN_LISTEN=listen)
    without = _check(tmp_path, TAPEWAY_ADMIN_LISTEN=listen, TAPEWAY_ADMIN_TLS="off")

    assert (by_variable.returncode, by_variable.stderr) == (0, "")
    assert (by_file.returncode, by_file.stderr) == (0, "")
    assert without.returncode == 1


def test_a_proxy_for_the_outside_is_not_asked(port: int) -> None:
    checked = _check(TAPEWAY_ADMIN_LISTEN=f"127.0.0.1:{port}", http_proxy="http://127.0.0.1:9")

    assert checked.returncode == 0, checked.stderr


def test_a_tapeway_that_is_not_ready_is_unhealthy_and_says_so_in_one_line(admin: Server) -> None:
    admin.ready = False
    checked = _check(TAPEWAY_ADMIN_LISTEN=f"127.0.0.1:{admin.server_port}")

    assert checked.returncode == 1
    assert checked.stderr == "tapeway is not ready: HTTP Error 503: Service Unavailable\n"


def test_nothing_listening_is_unhealthy() -> None:
    checked = _check(TAPEWAY_ADMIN_LISTEN="127.0.0.1:9")

    assert checked.returncode == 1
    assert "Connection refused" in checked.stderr


def test_without_an_admin_listener_the_proxy_port_counts(port: int) -> None:
    alive = _check(TAPEWAY_ADMIN_LISTEN="off", TAPEWAY_LISTEN=f"0.0.0.0:{port}")
    gone = _check(TAPEWAY_ADMIN_LISTEN="off", TAPEWAY_LISTEN="0.0.0.0:9")

    assert (alive.returncode, gone.returncode) == (0, 1)


@pytest.mark.parametrize("key", ["admin_listen", "admin-listen"])
def test_the_listener_of_the_configuration_file_is_asked(
    port: int, key: str, tmp_path: Path
) -> None:
    nobody = tmp_path / "defaults.toml"
    nobody.write_text('admin_listen = "127.0.0.1:9"\n', encoding="utf-8")
    for file, environment in (("tapeway.toml", {}), ("other", {"TAPEWAY_CONFIG": "other"})):
        (tmp_path / file).write_text(f'{key} = "127.0.0.1:{port}"\n', encoding="utf-8")

        checked = _check(tmp_path, TAPEWAY_DEFAULTS=str(nobody), **environment)

        assert (checked.returncode, checked.stderr) == (0, "")
        (tmp_path / file).unlink()
    assert _check(tmp_path, TAPEWAY_DEFAULTS=str(nobody)).returncode == 1
