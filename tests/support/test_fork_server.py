import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import fork_server

Command = tuple[str, ...]

SCRATCH = (sys.executable, str(Path(sys.executable).with_name("tapeway")))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("nonsense",),
        ("cassette", "list", "--store", "."),
        ("serve", "--store", "ä\n", "--listen", "9"),
    ],
)
def test_a_child_says_and_ends_as_a_start_from_scratch_does(
    arguments: Command, tmp_path: Path
) -> None:
    (tmp_path / "broken.json").write_text("{")

    def ended(command: Command) -> tuple[int, str, str]:
        done = subprocess.run(
            [*command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    assert ended(fork_server.command()) == ended(SCRATCH)


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "import sys; print(sys.argv[1:], __name__)", "a"),
        ("-m", "pack.module", "a"),
        ("pack/module.py", "a"),
        ("-W", "ignore", "pack/module.py", "3"),
    ],
)
def test_a_forked_interpreter_does_what_one_from_scratch_does(
    arguments: Command, tmp_path: Path
) -> None:
    folders = [tmp_path / text for text in ("pack", "found")]
    for folder in folders:
        folder.mkdir()
    told = "import sys, warnings, other\nwarnings.warn('hm')\nprint(sys.argv, __name__)\n"
    (tmp_path / "pack/module.py").write_text(f"{told}sys.exit(len(sys.argv[1]) + other.more)")
    (tmp_path / "found/other.py").write_text("more = 2")
    environ = {"PYTHONPATH": str(tmp_path / "found")}

    def ended(command: Command) -> tuple[int, str, bool]:
        asked = [*command, *arguments]
        done = subprocess.run(
            asked, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout.replace(f"{tmp_path}/", ""), "hm" in done.stderr

    forked = (sys.executable, "-IS", str(fork_server.python(sys.executable, "json")))
    assert ended(forked) == ended((sys.executable,))


@contextmanager
def serving(command: Command, folder: Path) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    """The id of a tapeway that serves the cassette `given`, and the process that was started."""
    options = ("--listen", "127.0.0.1:0", "--admin-listen", "off", "--store", "made")
    with subprocess.Popen(
        [*command, "serve", *options],
        cwd=folder,
        env={"TAPEWAY_CASSETTE": "given"},
        umask=0o027,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as started:
        assert started.stdout is not None
        ready = json.loads(started.stdout.readline())
        assert ready["cassette"] == "given"
        yield int(ready["pid"]), started


def test_a_child_has_the_variables_folder_mask_and_descriptors_of_a_start_from_scratch(
    tmp_path: Path,
) -> None:
    found = []
    for command in (SCRATCH, fork_server.command()):
        with serving(command, tmp_path) as (child, started):
            process = Path(f"/proc/{child}")
            status = (process / "status").read_text().splitlines()
            found.append(
                (
                    (process / "cwd").readlink(),
                    sorted(os.listdir(process / "fd")),
                    [
                        line
                        for line in status
                        if line.startswith(("Umask", "SigBlk", "SigIgn", "SigCgt"))
                    ],
                )
            )
            os.kill(child, signal.SIGTERM)
            assert started.wait() == 0

    assert found[0] == found[1]
