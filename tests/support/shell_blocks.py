"""The shell blocks of a document, run as they stand: only ports and upstream are other ones."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path

from tests.support import fork_server, forked_proxies
from tests.support.inner_run import WITHOUT_OTHERS
from tests.support.markdown import ROOT
from tests.support.ports import free_port

UPSTREAM = "https://api.openai.com"


class Shell:
    """Runs blocks in order, against a stand-in and on free ports.

    A block that ends in `&` goes on in the background, ready before the next one starts. Commands
    are those of `programs`, by default those of this environment.
    """

    def __init__(
        self,
        stack: ExitStack,
        store: Path,
        *,
        folder: Path = ROOT,
        programs: Path | None = None,
    ) -> None:
        self._stack = stack
        self._folder = folder
        self._programs = programs
        ports = {port: free_port() for port in ("8080", "8081", "8090", "8091", "9000")}
        self._ports = {f"127.0.0.1:{port}": f"127.0.0.1:{free}" for port, free in ports.items()}
        self._ports["--port 9000"] = f"--port {ports['9000']}"
        listen = f"--listen 127.0.0.1:{ports['8080']} --admin-listen 127.0.0.1:{ports['8081']}"
        # What an outer make was called with is not for the ones in here.
        outer = {name: os.environ[name] for name in os.environ if "MAKE" not in name}
        self._environment = {
            **outer,
            "ARGS": f"--store {store} {listen}",
            "TAPEWAY_STORE": str(store),
            "PYTEST_ADDOPTS": " ".join(WITHOUT_OTHERS),
            **({} if programs else _forking()),
            "OPENAI_API_KEY": "sk-readme-0123456789abcdef",
        }

    def run(self, text: str, environ: Mapping[str, str] | None = None) -> str:
        """What a block prints, with more variables. Raises CalledProcessError where it fails."""
        command = self._real(text.strip())
        path = [*_folders(self._programs, confined="--offline" in command), os.environ["PATH"]]
        environment = {name: self._real(value) for name, value in (environ or {}).items()}
        environment["PATH"] = ":".join(map(str, path))
        if command.endswith("&"):
            server = background(
                command.removesuffix("&"), self._environment | environment, self._folder
            )
            self._stack.enter_context(server)
            return ""
        done = subprocess.run(  # noqa: S602 - the document's own commands
            f"trap 'kill $(jobs -p) 2>/dev/null || :' EXIT\nset -e\n{command}",
            shell=True,
            executable="/bin/bash",
            env=self._environment | environment,
            cwd=self._folder,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        output = done.stdout
        for shown, used in self._ports.items():
            output = output.replace(used, shown)
        return output

    def _real(self, text: str) -> str:
        """The text with the addresses that are used for those that are shown."""
        if UPSTREAM in text:
            text = text.replace(UPSTREAM, self._upstream)
        for shown, used in self._ports.items():
            text = text.replace(shown, used)
        return text

    @cached_property
    def _upstream(self) -> str:
        stand_in = " ".join([*_forked(), "-m", "tapeway.testing", "--port", "0"])
        return self._stack.enter_context(background(stand_in, os.environ))["url"]


def _forked() -> tuple[str, ...]:
    return (sys.executable, "-IS", str(fork_server.with_clients() / "tapeway"))


def _forking() -> dict[str, str]:
    """Variables of a pytest whose proxies are forked too."""
    plugin = f"-p{forked_proxies.__name__}"
    return {
        forked_proxies.COMMAND: "\n".join(_forked()),
        "PYTEST_ADDOPTS": " ".join([*WITHOUT_OTHERS, plugin]),
        "PYTHONPATH": str(ROOT),
    }


def _folders(programs: Path | None, *, confined: bool) -> list[Path]:
    """Where programs are looked for first. What a fork server starts, nothing confines."""
    own = Path(sys.executable).parent
    if programs is None:
        return [own] if confined else [fork_server.with_clients(), own]
    return [programs]


@contextmanager
def background(
    command: str, environment: Mapping[str, str], folder: Path = ROOT
) -> Iterator[dict[str, str]]:
    """A server for the time of the context; yields its ready line."""
    process = subprocess.Popen(  # noqa: S602 - the document's own commands
        f"exec {command}" if "make" not in command else command,
        shell=True,
        executable="/bin/bash",
        env=dict(environment),
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        lines = (line for line in process.stdout if line.startswith("{"))
        yield json.loads(next(lines))
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)
        if process.stdout is not None:
            process.stdout.close()
