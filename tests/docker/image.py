"""The image that the Dockerfile's steps make, and containers of it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.docker.child import Child
from tests.docker.dockerfile import Instruction, Stage, stages
from tests.docker.sandbox import Command, Sandbox
from tests.support.thoroughness import runs_everything

# Where python:3.12-slim has its interpreter, and its search path.
PYTHON = "/usr/local/bin/python"
VENV = "opt/tapeway"
PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Image:
    """A built root file system with what the last stage says about running it."""

    sandbox: Sandbox
    root: Path
    stage: Stage

    @property
    def place(self) -> str:
        """Where the volume is mounted."""
        return self.stage.last("VOLUME").words[0]

    @property
    def user(self) -> int:
        """The uid, and gid, it runs as."""
        return int(self.stage.last("USER").text.split(":")[0])

    def volume(self, name: str) -> Path:
        """A fresh named volume, owned as in the image."""
        return self.sandbox.volume(name, model=self.root / self.place.lstrip("/"))

    def folder(self, name: str, owner: int, mode: int) -> Path:
        """A folder of the host, to be mounted as it is."""
        folder = self.volume(name)
        outside = self.sandbox.seen_from_here(folder)
        os.chown(outside, owner, owner)
        outside.chmod(mode)
        return folder

    def run(
        self, volume: Path, environment: Mapping[str, str] | None = None, user: int | None = None
    ) -> Child:
        """Start a container as `docker run --read-only --cap-drop ALL` would."""
        words = [*self.stage.last("ENTRYPOINT").words, *self.stage.last("CMD").words]
        command = self._command(words, environment or {}, user)
        return self.sandbox.start(self.root, volume, self.place, command)

    def execute(
        self, container: Child, words: list[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a further command in a running container, as `docker exec` does."""
        command = self._command(words, environment or {}, None)
        return subprocess.run(
            ["nsenter", f"--target={container.pid}", "--all", "--root", *command.unprivileged],
            capture_output=True,
            text=True,
        )

    def check_health(
        self, container: Child, environment: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """What HEALTHCHECK says of a container, as code and reason.

        As Docker does, a container is unhealthy only after it has failed so many times: a busy
        machine may be too slow once.
        """
        check = self.stage.last("HEALTHCHECK")
        for _ in range(int(check.flags["retries"])):
            ran = self.execute(container, json.loads(check.text.removeprefix("CMD ")), environment)
            if ran.returncode == 0:
                break
        return ran.returncode, ran.stderr

    def _command(
        self, words: list[str], environment: Mapping[str, str], user: int | None
    ) -> Command:
        number = self.user if user is None else user
        return Command(words, number, number, self.stage.environment | dict(environment))


def build(sandbox: Sandbox, context: Path) -> Image:
    """Run the Dockerfile of that folder, a stage after the other; raises OSError with the output
    of a step that fails."""
    roots: dict[str, Path] = {}
    for stage in stages(context / "Dockerfile"):
        roots[stage.name] = sandbox.layer(stage.name)
        _put_python(sandbox.seen_from_here(roots[stage.name]))
        if len(roots) == 1 and not runs_everything():
            _put_packages(sandbox.seen_from_here(roots[stage.name]))
        folder = "/"
        for line in stage.instructions:
            match line.keyword:
                case "WORKDIR":
                    folder = line.text
                    _below(sandbox, roots[stage.name], folder).mkdir(parents=True, exist_ok=True)
                case "COPY":
                    _copy(sandbox, context, roots, stage, line, folder)
                case "RUN":
                    sandbox.step(roots[stage.name], line.text, _build_environment(), folder)
    return Image(sandbox, roots[stage.name], stage)


def _put_python(root: Path) -> None:
    """Stand in for the base image: the interpreter of these tests, where the image has its own."""
    home = Path(sys.base_prefix)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # A script and no link: an interpreter called through a link looks for its library beside that.
    script = root / PYTHON.lstrip("/")
    script.unlink(missing_ok=True)
    script.write_text(f'#!/bin/sh\nexec {home}/bin/{name} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    for folder in (home, *home.parents[:-1]):
        inside = root / str(folder).lstrip("/")
        inside.chmod(inside.stat().st_mode | 0o055)


def _put_packages(root: Path) -> None:
    """Put the dependencies of these tests' environment where pip will look: it fetches only others.

    To fetch and to compile them all takes longer than all that the containers do.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    target = root / VENV / "lib" / version / "site-packages"
    for name in _closure("tapeway", "postgres") - {"tapeway"}:
        package = distribution(name)
        for file in package.files or ():
            source = Path(str(package.locate_file(file)))
            if ".." not in file.parts and source.exists():
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target / file)


def _closure(name: str, *extras: str) -> set[str]:
    """The installed packages that this one needs, with their own, and itself."""
    found = {name}
    for requirement in map(Requirement, distribution(name).requires or ()):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found |= _closure(requirement.name, *requirement.extras)
    return found


def _copy(
    sandbox: Sandbox,
    context: Path,
    roots: Mapping[str, Path],
    stage: Stage,
    line: Instruction,
    folder: str,
) -> None:
    *sources, last = line.words
    base = sandbox.seen_from_here(roots[line.flags["from"]]) if "from" in line.flags else context
    target = _below(sandbox, roots[stage.name], os.path.join(folder, last))
    for source in sources:
        _copy_one(base / source.lstrip("/"), target, into=last.endswith("/"))


def _copy_one(source: Path, target: Path, *, into: bool) -> None:
    """Copy as COPY does: a folder's contents, a file under its own name into a folder."""
    if source.is_dir():
        no_caches = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=no_caches)
    else:
        target = target / source.name if into else target
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _below(sandbox: Sandbox, root: Path, path: str) -> Path:
    return sandbox.seen_from_here(root) / os.path.normpath(path).lstrip("/")


def _build_environment() -> dict[str, str]:
    """What reaches pip on this machine, without the environment the tests themselves run in."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    return kept | {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8"}
